#pragma once

// The connections of one communicator of FakeNccl: a Unix socket to every other rank.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"

namespace weft {

class FakeNcclMesh {
 public:
  // `name` is the same for all ranks and nobody else. Starts joining on a thread of its own.
  FakeNcclMesh(std::string name, int ranks, int rank, bool report_dead_peers);
  ~FakeNcclMesh();  // aborts

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }

  // kNcclInProgress while ranks are missing, then kNcclSuccess; or the first failure.
  int state(std::string* text);
  // From now on state() says so. What is under way goes on.
  void Fail(int code, const std::string& text);
  // Ends joining and Run; blocks for some milliseconds. Nothing can be run afterwards.
  void Abort();
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  // `kind` must be the same at both ends, as must `bytes`; `what` says it in words.
  struct Transfer {
    bool send;
    int peer;  // not this rank
    char* data;
    uint64_t bytes;
    uint64_t kind;
    const char* what;
  };
  // Makes all transfers at the same time; those with one peer in one direction are matched in order. One Run at a time, others wait.
  // Blocks; false when Abort, or ended(), came first: where a peer has gone or disagrees nothing else ends it.
  bool Run(const std::vector<Transfer>& transfers, const std::function<bool()>& ended);

 private:
  struct Header {
    uint32_t magic, type;
    uint64_t bytes, kind;
  };
  struct Peer {
    int fd = -1;
    bool joined = false;
    bool dead = false;  // nothing more goes to it or comes from it
    std::deque<Header> ready;  // receives that the peer has announced and no send has met
    Header head{};             // being read
    size_t head_got = 0;
  };
  struct Lane;  // a peer's part of one Run

  void Join();
  bool JoinStep(int listening, std::vector<int>* strangers);  // true: all are there, or it has failed
  void Start(const std::vector<Transfer>& transfers, std::vector<Lane>* lanes);
  // Both go on as far as they can without waiting.
  void Read(int peer, Lane* lane);
  void Write(int peer, Lane* lane);
  void TakeHeader(int peer, Lane* lane);
  void Lost(int peer);

  const std::string name_;
  const int ranks_, rank_;
  const bool report_dead_peers_;
  std::atomic<bool> aborted_{false};
  Mutex run_mu_;            // held by Run, and to close
  std::vector<Peer> peers_;  // Join's until it has ended, then under run_mu_
  Mutex mu_;
  int state_ WEFT_GUARDED_BY(mu_);
  std::string text_ WEFT_GUARDED_BY(mu_);
  std::vector<int> watched_ WEFT_GUARDED_BY(mu_);  // sockets of peers, when deaths are reported
  std::thread joining_;
};

}  // namespace weft
