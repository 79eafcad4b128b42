#pragma once

// TCP connections between all ranks of a small group, over the gloo library, with what gloo lacks: every wait can be ended from
// another thread, and a peer's death ends every wait at once, wherever in a message it happens.

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/channel/doorbell.h"
#include "common/comm/kv_store.h"

// Kept out of this header: gloo's headers are heavy.
namespace gloo::transport {
class Context;
class Device;
class UnboundBuffer;
}  // namespace gloo::transport

namespace weft {

// The address to which connections are bound, and the thread that serves their sockets. One per process is enough.
class GlooDevice {
 public:
  // `address` is a host name or numeric address of this machine, "127.0.0.1" or "::1" for tests; ports are chosen by the system.
  // Makes the process ignore SIGPIPE, if nothing handles it: gloo writes to sockets whose peer may be gone. Unavailable names the
  // address.
  static absl::StatusOr<std::shared_ptr<GlooDevice>> Create(const std::string& address);

  const std::shared_ptr<gloo::transport::Device>& device() const { return device_; }

 private:
  explicit GlooDevice(std::shared_ptr<gloo::transport::Device> device) : device_(std::move(device)) {}
  const std::shared_ptr<gloo::transport::Device> device_;
};

// The peers are trusted: gloo believes the lengths that they send. Its listening sockets exist only until the mesh is connected.
class GlooMesh {
 public:
  struct Options {
    int rank = 0;
    // Where the ranks find each other; lives until Connect returned. Keys begin with `prefix`, which is the same on all ranks and
    // used by no other mesh of the store.
    KeyValueStore* store = nullptr;
    std::string prefix;
    // For messages: "collective grads", "link w0 -> w1".
    std::string label;
    // Workers by rank.
    std::vector<std::string> workers;
    // Rung when the mesh fails. May be nullptr; outlives the mesh.
    Doorbell* doorbell = nullptr;
  };

  // One message from or to a peer. Both ends name the same slot and bytes; messages of one slot and direction match in order.
  struct Piece {
    int peer = 0;
    uint64_t slot = 0;
    void* data = nullptr;
    size_t bytes = 0;  // 0: nothing is sent
  };

  static absl::StatusOr<std::shared_ptr<GlooMesh>> Create(std::shared_ptr<GlooDevice> device, Options options);
  // Ends it; peers see that it was closed.
  ~GlooMesh();
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  // Connects to every peer, once. Blocks, at most `timeout`, or until Abort. DeadlineExceeded and Unavailable name the peer.
  absl::Status Connect(Nanos timeout);

  // Sends and receives all pieces; blocks until all are done. `sends` and `recvs` stay valid until it returns, and nothing touches
  // them afterwards. After an error the mesh has failed. From several threads at once, with different slots.
  // Pre: connected. Errors: that of Abort, or Unavailable naming the peer.
  absl::Status Exchange(const std::vector<Piece>& sends, const std::vector<Piece>& recvs);

  // Ends everything with `cause` and refuses what comes later. The peers are told the cause, unless they take more than 20 ms to
  // read it: then they see a lost peer. Does not block; from any thread; the first cause stays.
  void Abort(const absl::Status& cause);

  // The first cause; OK while there is none. A peer's death is noticed at once, also while nothing is exchanged.
  absl::Status Health() const;

  int rank() const { return options_.rank; }
  int size() const { return static_cast<int>(options_.workers.size()); }
  const Options& options() const { return options_; }

 private:
  class Wait;

  GlooMesh(std::shared_ptr<GlooDevice> device, Options options);
  std::string RankName(int rank) const;
  absl::Status ConnectPairs(Nanos deadline);
  absl::Status StartWatch();
  // The watcher's thread: until something fails, and then to the end of the connections.
  void Watch();
  // Waits for a peer's farewell: true if one came. False: Abort, or with `broken` set a connection failed.
  bool HearFarewell(std::string* broken);
  void SayFarewell();
  std::string FarewellOf(int rank) const;
  bool IsLost(int rank);
  void Fail(const absl::Status& cause);
  void ClosePairs();

  const std::shared_ptr<GlooDevice> device_;
  const Options options_;
  std::unique_ptr<std::thread> watcher_;

  mutable Mutex mu_;
  CondVar changed_;  // failed_ or closed_
  absl::Status cause_ WEFT_GUARDED_BY(mu_);
  bool failed_ WEFT_GUARDED_BY(mu_) = false;
  bool pairs_made_ WEFT_GUARDED_BY(mu_) = false;
  bool watching_ WEFT_GUARDED_BY(mu_) = false;  // the watcher tells the peers and closes the connections
  bool closed_ WEFT_GUARDED_BY(mu_) = false;
  // Buffers on which a thread waits or is about to.
  std::set<gloo::transport::UnboundBuffer*> waits_ WEFT_GUARDED_BY(mu_);

  // A receive from each peer that is only ever answered by its farewell: it fails when the connection does, even in the middle of
  // another message, where gloo does not wake that message's buffer.
  std::vector<char> farewells_;
  std::vector<char> own_farewell_;
  // Last, so that they go first; buffers before the context whose pairs they use.
  std::shared_ptr<gloo::transport::Context> context_;
  std::unique_ptr<gloo::transport::UnboundBuffer> farewell_out_;
  std::unique_ptr<gloo::transport::UnboundBuffer> farewell_in_;
};

}  // namespace weft
