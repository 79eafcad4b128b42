#pragma once

// NCCL without a GPU: ranks of one process and of several processes of this machine (of one network namespace) move data through Unix
// sockets, on the streams of FakeCuda, with NCCL's rules for groups, non-blocking communicators and captures. A send is never done
// before its receive is there, as nothing may rely on buffers in between. Peers that disagree on sizes or kinds get an asynchronous
// error, where NCCL would hang or damage data.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/device/cuda/api/nccl_api.h"
#include "common/device/cuda/fake/fake_cuda.h"
#include "common/device/cuda/fake/fake_nccl_ops.h"

namespace weft {

// Thread-safe as NCCL: one thread at a time for each communicator; groups are the thread's. Buffers must be memory that the FakeCuda knows.
class FakeNccl : public NcclApi {
 public:
  struct Options {
    int version = 22803;
    // What the others learn of a rank whose process or communicator has gone: nothing, as over NVLink (what is under way stays so), or
    // kNcclRemoteError from GetAsyncError.
    bool report_dead_peers = false;
    // Every call outside of a group, and every GroupEnd, answers kNcclInProgress, so do this many calls of GetAsyncError, and only with
    // the next one the operation is put on its stream: an event that is recorded before comes too early. NCCL 2.28 does so with every
    // launch of a non-blocking communicator, for 0.1 to 0.3 ms. 0: it is put there at once, with kNcclSuccess.
    int launch_polls = 0;
    // So many more at the first use of a connection (a peer, or collectives).
    int connect_polls = 0;
  };

  // `cuda` outlives it.
  explicit FakeNccl(FakeCuda* cuda);
  FakeNccl(FakeCuda* cuda, Options options);
  ~FakeNccl() override;  // aborts all communicators

  // The nth call from now (1: the next) of `method`, such as "Send", returns `code`; as after every refused call, its communicator (for
  // GroupEnd: each of the group) then has this error for good. LastError is `text`; empty: one of the fake's own.
  void FailCall(const std::string& method, int64_t nth, int code, const std::string& text = "");
  // From now on GetAsyncError says so, and every other call on `comm` but CommAbort. What is under way goes on.
  void SetAsyncError(NcclCommHandle comm, int code);
  int64_t calls(const std::string& method) const;
  // As given to CommInit; also after CommAbort. -1: no communicator.
  int max_ctas(NcclCommHandle comm) const;
  // Communicators that live.
  int comms() const;

  const char* ErrorText(int code) override;
  const char* LastError(NcclCommHandle comm) override;  // valid until this thread's next call of it
  int Version(int* out) override;

  int GetUniqueId(NcclId* out) override;
  int CommInit(NcclCommHandle* comm, int ranks, const NcclId& id, int rank, int max_ctas) override;
  int GetAsyncError(NcclCommHandle comm, int* state) override;
  int CommAbort(NcclCommHandle comm) override;

  int GroupStart() override;
  int GroupEnd() override;
  int Send(const void* from, size_t count, int type, int peer, NcclCommHandle comm, void* stream) override;
  int Recv(void* to, size_t count, int type, int peer, NcclCommHandle comm, void* stream) override;
  int AllReduce(const void* from, void* to, size_t count, int type, int op, NcclCommHandle comm, void* stream) override;
  int AllGather(const void* from, void* to, size_t count_each, int type, NcclCommHandle comm, void* stream) override;
  int ReduceScatter(const void* from, void* to, size_t count_each, int type, int op, NcclCommHandle comm, void* stream) override;
  int Broadcast(const void* from, void* to, size_t count, int type, int root, NcclCommHandle comm, void* stream) override;

 private:
  struct Comm;
  struct Failure {
    int64_t call = 0;  // its number among those of its method
    int code = kNcclSuccess;
    std::string text;
  };
  struct Call {
    FakeNcclOp op;
    NcclCommHandle comm;
    void* stream;
  };
  // Of one thread.
  struct Group {
    int depth = 0;
    int error = kNcclSuccess;
    std::vector<Call> calls;
  };

  int Enter(const char* method);
  int Fail(int code, const std::string& text) const;  // remembers the text for LastError
  std::shared_ptr<Comm> Find(NcclCommHandle comm) const;
  Group& group() const;
  int Add(const Call& call);
  int Check(const Call& call, Comm* comm) const;
  int Launch(const std::vector<Call>& calls);
  int TryLaunch(const std::vector<Call>& calls);
  // A refused call is an error of its communicator from then on.
  void Spoil(const std::vector<Call>& calls, int code) const;
  int Put(const std::shared_ptr<Comm>& comm, const std::vector<Call>& calls) const;
  void PutWaiting(const std::shared_ptr<Comm>& comm) const;

  FakeCuda* const cuda_;
  const Options options_;
  const uint64_t id_;  // of this object, for the groups of threads

  mutable Mutex mu_;
  std::map<std::string, int64_t> calls_ WEFT_GUARDED_BY(mu_);
  std::multimap<std::string, Failure> failures_ WEFT_GUARDED_BY(mu_);
  std::map<NcclCommHandle, std::shared_ptr<Comm>> comms_ WEFT_GUARDED_BY(mu_);
  std::map<NcclCommHandle, int> max_ctas_ WEFT_GUARDED_BY(mu_);
};

}  // namespace weft
