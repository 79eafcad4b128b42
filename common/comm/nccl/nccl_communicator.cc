#include "common/comm/nccl/nccl_communicator.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/comm/nccl/nccl_capture.h"
#include "common/comm/nccl/nccl_types.h"

namespace weft {
namespace {

constexpr uint64_t kHeaderSlot = 1;
constexpr int32_t kHasStatus = 1;  // CollectiveHeader::flags

// How NCCL sees a collective's elements.
struct Types {
  int64_t elements = 0;
  NcclType type = kNcclUint8;
  NcclOp reduction = kNcclSum;
};

absl::StatusOr<Types> TypesOf(const CollectiveCall& call, DType dtype, const Dims& in) {
  Types t;
  WEFT_ASSIGN_OR_RETURN(t.elements, NumElements(in));
  if (call.op == v1::ALL_REDUCE || call.op == v1::REDUCE_SCATTER) {
    WEFT_ASSIGN_OR_RETURN(t.type, NcclArithmeticType(dtype));
    WEFT_ASSIGN_OR_RETURN(t.reduction, NcclReduction(call.reduce));
    return t;
  }
  t.elements *= static_cast<int64_t>(SizeOf(dtype));  // what is only moved is bytes
  return t;
}

// The collective and, with `mine`, the maximum of all ranks' status words, as one group of calls.
int PutCollective(NcclApi* api, NcclCommHandle comm, const CollectiveCall& call, const Types& t, int ranks, const void* from, void* to,
                  const DeviceStatus* mine, DeviceStatus* all, void* stream) {
  int code = kNcclSuccess;
  const auto note = [&code](int c) {
    if ((code == kNcclSuccess || code == kNcclInProgress) && c != kNcclSuccess) code = c;
  };
  note(api->GroupStart());
  if (code != kNcclSuccess) return code;
  const size_t n = static_cast<size_t>(t.elements);
  if (n > 0) {
    switch (call.op) {
      case v1::ALL_REDUCE: note(api->AllReduce(from, to, n, t.type, t.reduction, comm, stream)); break;
      case v1::ALL_GATHER: note(api->AllGather(from, to, n, t.type, comm, stream)); break;
      case v1::REDUCE_SCATTER: note(api->ReduceScatter(from, to, n / ranks, t.type, t.reduction, comm, stream)); break;
      default: note(api->Broadcast(from, to, n, t.type, call.root_rank, comm, stream)); break;  // Agree, or the plan, refuses what is no collective
    }
  }
  if (mine != nullptr) note(api->AllReduce(&mine->word, &all->word, 1, kNcclUint64, kNcclMax, comm, stream));
  note(api->GroupEnd());  // also after a failure, which the group then returns
  return code;
}

}  // namespace

// One call's headers, on their way between the ranks.
struct NcclCommunicator::Exchange {
  std::vector<CollectiveHeader> headers;  // by rank; this rank's is there, the others' once `done`
  std::atomic<bool> done{false};
};

class NcclCommunicator::Collective : public NcclWork {
 public:
  Collective(const Options& options, const CollectiveCall& call, const Value& in, const Tensor& buffer, Value* out,
             Stream* stream, std::shared_ptr<Exchange> exchange)
      : NcclWork(options.comm, options.device, stream),
        group_(options.group),
        rank_(options.comm->rank()),
        scratch_(options.scratch),
        call_(call),
        in_(in),
        buffer_(buffer),
        out_(out),
        status_(out->status),
        exchange_(std::move(exchange)) {
    Hold(in_.tensor.owner());
    Hold(buffer_.owner());
    Hold(scratch_);
  }

 private:
  Turn MyTurn() override {
    if (!exchange_->done.load(std::memory_order_acquire)) return Turn::kWait;
    if (!concluded_) Conclude();
    if (agreed_.error != nullptr || (!moves_ && !clears_)) return Turn::kSkip;
    return InputIsOrdered(in_.event) ? Turn::kLaunch : Turn::kWait;
  }

  // All ranks do this with the same headers.
  void Conclude() {
    concluded_ = true;
    agreed_ = Agree(group_, exchange_->headers);
    for (const CollectiveHeader& h : exchange_->headers) with_status_ |= (h.flags & kHasStatus) != 0;
    if (agreed_.error == nullptr) {
      const absl::Status s = ChooseTypes();
      // Rank 0's, so that it is the same everywhere.
      if (!s.ok()) agreed_.error = CollectiveError(group_, 0, call_.execution, s);
    }
    if (agreed_.error != nullptr) return;
    moves_ = types_.elements > 0 || with_status_;
    clears_ = !with_status_ && status_ != nullptr;
    out_->tensor = ResultIn(buffer_, agreed_);
  }

  absl::Status ChooseTypes() {
    WEFT_ASSIGN_OR_RETURN(types_, TypesOf(call_, agreed_.dtype, agreed_.in));
    return absl::OkStatus();
  }

  absl::Status Launch() override {
    CudaApi* const cuda = device()->api();
    void* const s = stream()->native();
    const auto clear = [&](DeviceStatus* word) {
      const absl::Status done = device()->Check(cuda->MemsetAsync(word, 0, sizeof *word, s), "clearing a status word");
      return done.ok() ? done : absl::Status(done.code(), absl::StrCat("collective ", group_.name, ": ", std::string(done.message())));
    };
    if (clears_) WEFT_RETURN_IF_ERROR(clear(status_));
    if (with_status_ && in_.status == nullptr) WEFT_RETURN_IF_ERROR(clear(scratch_->missing()));
    if (!moves_) return absl::OkStatus();
    return comm()->Call(absl::StrCat(v1::CollectiveOp_Name(call_.op), " of execution ", call_.execution),
                        [this](NcclApi* api, NcclCommHandle comm) { return Put(api, comm); });
  }

  int Put(NcclApi* api, NcclCommHandle comm) {
    const DeviceStatus* const mine = !with_status_ ? nullptr : in_.status != nullptr ? in_.status : scratch_->missing();
    return PutCollective(api, comm, call_, types_, group_.size(), in_.tensor.data(), buffer_.data(), mine,
                         status_ != nullptr ? status_ : scratch_->unwanted(), stream()->native());
  }

  void Finish(const absl::Status& status) override {
    if (!status.ok()) {
      out_->error = CollectiveError(group_, rank_, call_.execution, status);
    } else {
      out_->error = agreed_.error;
    }
    if (out_->error != nullptr) out_->tensor = Tensor();
    in_ = Value();
  }

  const GroupInfo group_;
  const int rank_;
  const std::shared_ptr<NcclScratch> scratch_;
  const CollectiveCall call_;
  Value in_;
  const Tensor buffer_;
  Value* const out_;
  DeviceStatus* const status_;
  const std::shared_ptr<Exchange> exchange_;

  bool concluded_ = false;
  Agreement agreed_;
  Types types_;
  bool with_status_ = false;  // of any rank
  bool moves_ = false;
  bool clears_ = false;
};

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Create(Options options) {
  const std::string name = options.group.name;
  if (options.mesh->size() != options.comm->size() || options.mesh->rank() != options.comm->rank() ||
      options.group.size() != options.comm->size()) {
    return absl::InvalidArgumentError(absl::StrCat("collective ", name, ": its mesh, communicator and group are of different ranks"));
  }
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(std::move(options)));
  NcclCommunicator* const self = made.get();
  made->thread_ = std::thread([self] { self->Work(); });
  return made;
}

NcclCommunicator::NcclCommunicator(Options options) : options_(std::move(options)) {}

NcclCommunicator::~NcclCommunicator() {
  for (const std::weak_ptr<Collective>& w : outstanding_) {
    if (const std::shared_ptr<Collective> c = w.lock()) c->Cancel();
  }
  Abort(absl::CancelledError(absl::StrCat("collective ", options_.group.name, " was closed")));
  {
    MutexLock lock(&mu_);
    stop_ = true;
    wake_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  for (std::shared_ptr<void>& memory : captured_) options_.comm->KeepUntilEnded(std::move(memory));
}

absl::Status NcclCommunicator::Capture(const CollectiveCall& call, const Value& in, const Tensor& buffer, Value* out, Stream* stream) {
  const auto named = [&](const absl::Status& s) {
    return s.ok() ? s : absl::Status(s.code(), absl::StrCat("collective ", options_.group.name, ": ", std::string(s.message())));
  };
  const absl::StatusOr<Types> types = TypesOf(call, in.tensor.dtype(), in.tensor.dims());
  if (!types.ok()) return named(types.status());
  if (in.status == nullptr || out->status == nullptr) return named(absl::InvalidArgumentError("values of captured iterations have status words"));
  captured_.push_back(in.tensor.owner());
  captured_.push_back(buffer.owner());
  out->tensor = buffer;
  return named(CallNcclNow(options_.comm.get(), "a captured call", [&](NcclApi* api, NcclCommHandle comm) {
    return PutCollective(api, comm, call, *types, size(), in.tensor.data(), buffer.data(), in.status, out->status, stream->native());
  }));
}

void NcclCommunicator::Abort(const absl::Status& cause) {
  options_.comm->Abort(cause);
  options_.mesh->Abort(cause);
}

absl::Status NcclCommunicator::Health() const {
  WEFT_RETURN_IF_ERROR(options_.comm->Health());
  return options_.mesh->Health();
}

void NcclCommunicator::Work() {
  for (;;) {
    std::shared_ptr<Exchange> e;
    {
      MutexLock lock(&mu_);
      while (exchanges_.empty() && !stop_) wake_.Wait(&mu_);
      if (stop_) return;
      e = std::move(exchanges_.front());
      exchanges_.pop_front();
    }
    std::vector<GlooMesh::Piece> sends, recvs;
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      sends.push_back({r, kHeaderSlot, &e->headers[rank()], sizeof(CollectiveHeader)});
      recvs.push_back({r, kHeaderSlot, &e->headers[r], sizeof(CollectiveHeader)});
    }
    const absl::Status s = options_.mesh->Exchange(sends, recvs);
    if (!s.ok()) {
      // The ranks no longer run in step.
      options_.comm->Abort(s);
      return;
    }
    e->done.store(true, std::memory_order_release);
    if (options_.doorbell != nullptr) options_.doorbell->Ring();
  }
}

absl::StatusOr<EventRef> NcclCommunicator::Run(const CollectiveCall& call, const Value& in, const Tensor& buffer, Value* out, Stream* stream) {
  WEFT_RETURN_IF_ERROR(Health());
  if (stream == nullptr) return absl::InvalidArgumentError(absl::StrCat("collective ", options_.group.name, ": NCCL needs a stream"));
  auto exchange = std::make_shared<Exchange>();
  exchange->headers.resize(size());
  exchange->headers[rank()] = MakeCollectiveHeader(options_.group, rank(), call, sequence_++, in, buffer);
  if (in.error == nullptr && in.status != nullptr) exchange->headers[rank()].flags |= kHasStatus;
  auto collective = std::make_shared<Collective>(options_, call, in, buffer, out, stream, exchange);
  while (!outstanding_.empty() && (outstanding_.front().expired() || outstanding_.front().lock()->over())) outstanding_.pop_front();
  outstanding_.push_back(collective);
  {
    MutexLock lock(&mu_);
    exchanges_.push_back(std::move(exchange));
    wake_.NotifyOne();
  }
  options_.queue->Post(collective);
  return EventRef(std::move(collective));
}

}  // namespace weft
