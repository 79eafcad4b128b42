#include "common/device/cuda/fake/fake_nccl.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <set>
#include <utility>

#include "common/device/cuda/fake/fake_nccl_mesh.h"

namespace weft {
namespace {

constexpr char kIdMagic[] = "weft-fake-nccl";
constexpr int kCollectives = -1;  // as a "peer" that is connected at first use

// Of the thread's last failed call, and the storage of what LastError returns.
thread_local std::string thread_problem;
thread_local std::string thread_answer;

std::atomic<uint64_t> next_fake{1};
std::atomic<uintptr_t> next_comm{0x2000};

}  // namespace

struct FakeNccl::Comm {
  std::unique_ptr<FakeNcclMesh> mesh;
  const std::shared_ptr<FakeCuda::Order> order = FakeCuda::NewOrder();
  // The caller's, one thread at a time.
  std::set<int> connected;
  int polls_left = 0;
  std::vector<std::vector<Call>> waiting;  // for connections
};

FakeNccl::FakeNccl(FakeCuda* cuda) : FakeNccl(cuda, Options()) {}
FakeNccl::FakeNccl(FakeCuda* cuda, Options options) : cuda_(cuda), options_(options), id_(next_fake.fetch_add(1)) {}

FakeNccl::~FakeNccl() {
  std::map<NcclCommHandle, std::shared_ptr<Comm>> comms;
  {
    MutexLock lock(&mu_);
    comms.swap(comms_);
  }
  for (const auto& [handle, comm] : comms) comm->mesh->Abort();
}

int FakeNccl::Enter(const char* method) {
  Failure failure;
  {
    MutexLock lock(&mu_);
    const int64_t number = ++calls_[method];
    const auto [from, to] = failures_.equal_range(method);
    const auto it = std::find_if(from, to, [&](const auto& f) { return f.second.call == number; });
    if (it == to) return kNcclSuccess;
    failure = std::move(it->second);
    failures_.erase(it);
  }
  return Fail(failure.code, failure.text.empty() ? std::string(method) + " was told to fail" : failure.text);
}

int FakeNccl::Fail(int code, const std::string& text) const {
  thread_problem = text;
  return code;
}

void FakeNccl::FailCall(const std::string& method, int64_t nth, int code, const std::string& text) {
  MutexLock lock(&mu_);
  failures_.emplace(method, Failure{calls_[method] + nth, code, text});
}

void FakeNccl::SetAsyncError(NcclCommHandle comm, int code) {
  if (const auto c = Find(comm)) c->mesh->Fail(code, "the communicator was told to fail");
}

int64_t FakeNccl::calls(const std::string& method) const {
  MutexLock lock(&mu_);
  const auto it = calls_.find(method);
  return it == calls_.end() ? 0 : it->second;
}

int FakeNccl::max_ctas(NcclCommHandle comm) const {
  MutexLock lock(&mu_);
  const auto it = max_ctas_.find(comm);
  return it == max_ctas_.end() ? -1 : it->second;
}

int FakeNccl::comms() const {
  MutexLock lock(&mu_);
  return static_cast<int>(comms_.size());
}

std::shared_ptr<FakeNccl::Comm> FakeNccl::Find(NcclCommHandle comm) const {
  MutexLock lock(&mu_);
  const auto it = comms_.find(comm);
  return it == comms_.end() ? nullptr : it->second;
}

FakeNccl::Group& FakeNccl::group() const {
  thread_local std::map<uint64_t, Group> groups;
  return groups[id_];
}

const char* FakeNccl::ErrorText(int code) {
  switch (code) {
    case kNcclSuccess: return "no error";
    case kNcclUnhandledCudaError: return "a call of CUDA failed";
    case kNcclSystemError: return "a call of the system failed";
    case kNcclInternalError: return "internal error";
    case kNcclInvalidArgument: return "invalid argument";
    case kNcclInvalidUsage: return "invalid usage";
    case kNcclRemoteError: return "a remote process has gone, or the network has failed";
    case kNcclInProgress: return "in progress";
    default: return "unknown result code";
  }
}

const char* FakeNccl::LastError(NcclCommHandle comm) {
  std::string text;
  if (const auto c = Find(comm)) c->mesh->state(&text);
  thread_answer = text.empty() ? thread_problem : text;
  return thread_answer.c_str();
}

int FakeNccl::Version(int* out) {
  const int code = Enter("Version");
  if (code != kNcclSuccess) return code;
  *out = options_.version;
  return kNcclSuccess;
}

int FakeNccl::GetUniqueId(NcclId* out) {
  const int code = Enter("GetUniqueId");
  if (code != kNcclSuccess) return code;
  if (out == nullptr) return Fail(kNcclInvalidArgument, "GetUniqueId: no place for the id");
  *out = NcclId{};
  std::memcpy(out->bytes, kIdMagic, sizeof(kIdMagic));
  std::random_device source;
  for (size_t i = 64; i < sizeof(out->bytes); ++i) out->bytes[i] = static_cast<char>(source());
  return kNcclSuccess;
}

int FakeNccl::CommInit(NcclCommHandle* comm, int ranks, const NcclId& id, int rank, int max_ctas) {
  const int code = Enter("CommInit");
  if (code != kNcclSuccess) return code;
  if (comm == nullptr || ranks < 1 || rank < 0 || rank >= ranks || max_ctas < 1) {
    return Fail(kNcclInvalidArgument, "CommInit: rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ", " +
                                          std::to_string(max_ctas) + " CTAs");
  }
  if (std::memcmp(id.bytes, kIdMagic, sizeof(kIdMagic)) != 0) return Fail(kNcclInvalidArgument, "CommInit: the id is none of GetUniqueId");
  if (cuda_->ended()) return Fail(kNcclUnhandledCudaError, "CommInit: the device has failed");
  std::string name = "weft-nccl-";
  for (size_t i = 64; i < 96; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned char>(id.bytes[i]));
    name += hex;
  }
  const auto made = std::make_shared<Comm>();
  made->mesh = std::make_unique<FakeNcclMesh>(name, ranks, rank, options_.report_dead_peers);
  *comm = reinterpret_cast<NcclCommHandle>(next_comm.fetch_add(16));
  MutexLock lock(&mu_);
  comms_[*comm] = made;
  max_ctas_[*comm] = max_ctas;
  return kNcclInProgress;
}

int FakeNccl::GetAsyncError(NcclCommHandle comm, int* state) {
  const int code = Enter("GetAsyncError");
  if (code != kNcclSuccess) return code;
  const auto c = Find(comm);
  if (c == nullptr || state == nullptr) return Fail(kNcclInvalidArgument, "GetAsyncError: no such communicator");
  *state = c->mesh->state(nullptr);
  if (*state != kNcclSuccess || c->waiting.empty()) return kNcclSuccess;
  if (c->polls_left > 0) {
    --c->polls_left;
    *state = kNcclInProgress;
    return kNcclSuccess;
  }
  PutWaiting(c);
  *state = c->mesh->state(nullptr);
  return kNcclSuccess;
}

void FakeNccl::PutWaiting(const std::shared_ptr<Comm>& comm) const {
  const std::vector<std::vector<Call>> waiting = std::exchange(comm->waiting, {});
  comm->polls_left = 0;
  for (const auto& calls : waiting) {
    const int code = Put(comm, calls);
    if (code != kNcclSuccess) comm->mesh->Fail(code, thread_problem);
  }
}

int FakeNccl::CommAbort(NcclCommHandle comm) {
  const int code = Enter("CommAbort");
  if (code != kNcclSuccess) return code;
  std::shared_ptr<Comm> c;
  {
    MutexLock lock(&mu_);
    const auto it = comms_.find(comm);
    if (it != comms_.end()) {
      c = std::move(it->second);
      comms_.erase(it);
    }
  }
  if (c == nullptr) return Fail(kNcclInvalidArgument, "CommAbort: no such communicator");
  c->mesh->Abort();
  return kNcclSuccess;
}

int FakeNccl::GroupStart() {
  const int code = Enter("GroupStart");
  if (code == kNcclSuccess) ++group().depth;
  return code;
}

int FakeNccl::GroupEnd() {
  const int told = Enter("GroupEnd");
  Group& g = group();
  if (g.depth == 0) return Fail(kNcclInvalidUsage, "GroupEnd without GroupStart");
  if (told != kNcclSuccess && g.error == kNcclSuccess) g.error = told;
  if (--g.depth > 0) return told;
  const Group ended = std::exchange(g, Group());
  if (ended.error == kNcclSuccess) return Launch(ended.calls);
  Spoil(ended.calls, ended.error);
  return ended.error;
}

void FakeNccl::Spoil(const std::vector<Call>& calls, int code) const {
  const std::string text = thread_problem;
  for (const Call& call : calls) {
    const auto comm = Find(call.comm);
    // While it joins it is only told off, as on a GPU. Where a launch was in progress NCCL may forget the error when that succeeds; here it
    // stays.
    if (comm == nullptr || comm->mesh->state(nullptr) != kNcclSuccess) continue;
    PutWaiting(comm);  // what NCCL's own thread launches all the same
    comm->mesh->Fail(code, text);
  }
}

int FakeNccl::Launch(const std::vector<Call>& calls) {
  const int code = TryLaunch(calls);
  if (code != kNcclSuccess && code != kNcclInProgress) Spoil(calls, code);
  return code;
}

int FakeNccl::Check(const Call& call, Comm* comm) const {
  const FakeNcclOp& op = call.op;
  const std::string name = FakeNcclName(op.kind);
  if (comm == nullptr) return Fail(kNcclInvalidArgument, name + ": no such communicator");
  std::string text;
  const int state = comm->mesh->state(&text);
  if (state == kNcclInProgress || !comm->waiting.empty()) {
    return Fail(kNcclInvalidArgument, name + ": the communicator is used before its last call has become a success");
  }
  if (state != kNcclSuccess) return Fail(state, text);
  const int rank = comm->mesh->rank(), ranks = comm->mesh->ranks();
  if (NcclTypeSize(op.type) == 0) return Fail(kNcclInvalidArgument, name + ": " + std::to_string(op.type) + " is no type");
  if (op.op < kNcclSum || op.op > kNcclMin) return Fail(kNcclInvalidArgument, name + ": " + std::to_string(op.op) + " is no reduction");
  if (op.peer < 0 || op.peer >= ranks) {
    return Fail(kNcclInvalidArgument, name + ": rank " + std::to_string(op.peer) + " of " + std::to_string(ranks));
  }
  const uint64_t reads = FakeNcclReads(op, rank, ranks), writes = FakeNcclWrites(op, rank, ranks);
  if ((reads != 0 && !cuda_->DeviceReachable(op.from, reads)) || (writes != 0 && !cuda_->DeviceReachable(op.to, writes))) {
    return Fail(kNcclInvalidArgument, name + ": its memory is not the device's");
  }
  return kNcclSuccess;
}

int FakeNccl::Add(const Call& call) {
  int code = Enter(FakeNcclName(call.op.kind));
  if (code == kNcclSuccess) code = Check(call, Find(call.comm).get());
  Group& g = group();
  if (code != kNcclSuccess) {
    Spoil({call}, code);
    if (g.depth > 0 && g.error == kNcclSuccess) g.error = code;
  }
  if (g.depth == 0) return code != kNcclSuccess ? code : Launch({call});
  g.calls.push_back(call);
  return code;
}

int FakeNccl::TryLaunch(const std::vector<Call>& calls) {
  std::vector<std::pair<NcclCommHandle, std::vector<Call>>> by_comm;
  for (const Call& call : calls) {
    auto it = std::find_if(by_comm.begin(), by_comm.end(), [&](const auto& c) { return c.first == call.comm; });
    if (it == by_comm.end()) it = by_comm.insert(by_comm.end(), {call.comm, {}});
    it->second.push_back(call);
  }
  std::vector<std::shared_ptr<Comm>> comms;
  for (const auto& [handle, of_comm] : by_comm) {
    comms.push_back(Find(handle));
    if (comms.back() == nullptr) return Fail(kNcclInvalidArgument, "GroupEnd: a communicator has gone since its call");
    std::vector<uint64_t> send_bytes, recv_bytes;  // of this rank to itself
    for (const Call& c : of_comm) {
      if (c.stream != of_comm[0].stream) {
        return Fail(kNcclInvalidUsage, "GroupEnd: the fake takes one stream for each communicator in a group");
      }
      if (c.op.peer != comms.back()->mesh->rank()) continue;
      if (c.op.kind == FakeNcclOp::kSend) send_bytes.push_back(c.op.count * NcclTypeSize(c.op.type));
      if (c.op.kind == FakeNcclOp::kRecv) recv_bytes.push_back(c.op.count * NcclTypeSize(c.op.type));
    }
    if (send_bytes != recv_bytes) {
      return Fail(kNcclInvalidUsage, "GroupEnd: what a rank sends to itself it must receive in the same group, with the same sizes");
    }
  }
  bool in_progress = false;
  for (size_t i = 0; i < by_comm.size(); ++i) {
    const std::shared_ptr<Comm>& comm = comms[i];
    bool connects = false;
    for (const Call& c : by_comm[i].second) {
      const bool point_to_point = c.op.kind == FakeNcclOp::kSend || c.op.kind == FakeNcclOp::kRecv;
      connects |= comm->connected.insert(point_to_point ? c.op.peer : kCollectives).second;
    }
    const int polls = options_.launch_polls + (connects ? options_.connect_polls : 0);
    if (polls > 0) {
      comm->polls_left = polls;
      comm->waiting.push_back(by_comm[i].second);
      in_progress = true;
      continue;
    }
    const int code = Put(comm, by_comm[i].second);
    if (code != kNcclSuccess) return code;
  }
  return in_progress ? kNcclInProgress : kNcclSuccess;
}

int FakeNccl::Put(const std::shared_ptr<Comm>& comm, const std::vector<Call>& calls) const {
  std::vector<FakeNcclOp> ops;
  for (const Call& c : calls) ops.push_back(c.op);
  // The closure may outlive this object: the stream and its graphs hold it.
  const int code = cuda_->EnqueueInOrder(calls[0].stream, [cuda = cuda_, comm, ops] { RunFakeNccl(cuda, comm->mesh.get(), ops); },
                                         ops.size() > 1 ? "a group of NCCL calls" : FakeNcclName(ops[0].kind), comm->order);
  if (code == kCudaSuccess) return kNcclSuccess;
  return Fail(kNcclUnhandledCudaError, std::string(FakeNcclName(ops[0].kind)) + ": CUDA says " + cuda_->ErrorName(code));
}

int FakeNccl::Send(const void* from, size_t count, int type, int peer, NcclCommHandle comm, void* stream) {
  return Add({{FakeNcclOp::kSend, from, nullptr, count, type, kNcclSum, peer}, comm, stream});
}

int FakeNccl::Recv(void* to, size_t count, int type, int peer, NcclCommHandle comm, void* stream) {
  return Add({{FakeNcclOp::kRecv, nullptr, to, count, type, kNcclSum, peer}, comm, stream});
}

int FakeNccl::AllReduce(const void* from, void* to, size_t count, int type, int op, NcclCommHandle comm, void* stream) {
  return Add({{FakeNcclOp::kAllReduce, from, to, count, type, op, 0}, comm, stream});
}

int FakeNccl::AllGather(const void* from, void* to, size_t count_each, int type, NcclCommHandle comm, void* stream) {
  return Add({{FakeNcclOp::kAllGather, from, to, count_each, type, kNcclSum, 0}, comm, stream});
}

int FakeNccl::ReduceScatter(const void* from, void* to, size_t count_each, int type, int op, NcclCommHandle comm, void* stream) {
  return Add({{FakeNcclOp::kReduceScatter, from, to, count_each, type, op, 0}, comm, stream});
}

int FakeNccl::Broadcast(const void* from, void* to, size_t count, int type, int root, NcclCommHandle comm, void* stream) {
  return Add({{FakeNcclOp::kBroadcast, from, to, count, type, kNcclSum, root}, comm, stream});
}

}  // namespace weft
