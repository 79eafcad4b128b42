#include "common/comm/gloo/gloo_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/combine.h"

namespace weft {
namespace {

// So much of each other rank's part of a share is held at once while it is combined.
constexpr size_t kChunkBytes = 4 << 20;
constexpr uint64_t kHeaderSlot = 1;
constexpr uint64_t kDataSlot = 2;

}  // namespace

GlooCommunicator::GlooCommunicator(std::shared_ptr<GlooMesh> mesh, GroupInfo group, Doorbell* doorbell)
    : mesh_(std::move(mesh)), group_(std::move(group)), doorbell_(doorbell), thread_([this] { Work(); }) {}

GlooCommunicator::~GlooCommunicator() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    wake_.NotifyAll();
  }
  mesh_->Abort(absl::CancelledError("closed"));
  thread_.join();
}

absl::Status GlooCommunicator::Health() const { return mesh_->Health(); }

void GlooCommunicator::Abort(const absl::Status& cause) { mesh_->Abort(cause); }

absl::StatusOr<EventRef> GlooCommunicator::Run(const CollectiveCall& call, const Value& in, const Tensor& buffer, Value* out, Stream*) {
  if (!IsReady(in.event)) {
    return absl::FailedPreconditionError(absl::StrCat("collective ", group_.name, ": its input is not ready"));
  }
  WEFT_RETURN_IF_ERROR(Health());
  auto event = std::make_shared<ManualEvent>();
  MutexLock lock(&mu_);
  jobs_.push_back({call, in, buffer, out, event});
  wake_.NotifyOne();
  return EventRef(event);
}

void GlooCommunicator::Work() {
  for (;;) {
    Job job;
    {
      MutexLock lock(&mu_);
      while (jobs_.empty() && !stop_) wake_.Wait(&mu_);
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    absl::Status s = Health();
    if (s.ok()) s = Do(job);
    if (!s.ok()) {
      // What stands in the header's way would stand in the next one's: the ranks no longer run in step.
      mesh_->Abort(s);
      job.out->tensor = Tensor();
      job.out->error = CollectiveError(group_, rank(), job.call.execution, s);
    }
    job.in = Value();  // its memory is given back before the event says so
    job.event->Set();
    if (doorbell_ != nullptr) doorbell_->Ring();
  }
}

absl::Status GlooCommunicator::Do(const Job& job) {
  std::vector<CollectiveHeader> headers(size());
  headers[rank()] = MakeCollectiveHeader(group_, rank(), job.call, sequence_++, job.in, job.buffer);
  std::vector<GlooMesh::Piece> sends, recvs;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    sends.push_back({r, kHeaderSlot, &headers[rank()], sizeof(CollectiveHeader)});
    recvs.push_back({r, kHeaderSlot, &headers[r], sizeof(CollectiveHeader)});
  }
  WEFT_RETURN_IF_ERROR(mesh_->Exchange(sends, recvs));
  const Agreement agreed = Agree(group_, headers);
  if (agreed.error != nullptr) {
    job.out->tensor = Tensor();
    job.out->error = agreed.error;
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(MoveData(job.call, agreed, job));
  job.out->tensor = ResultIn(job.buffer, agreed);
  job.out->error = nullptr;
  return absl::OkStatus();
}

absl::Status GlooCommunicator::MoveData(const CollectiveCall& call, const Agreement& agreed, const Job& job) {
  const size_t item = SizeOf(agreed.dtype);
  const int64_t elements = *NumElements(agreed.in);
  const size_t bytes = static_cast<size_t>(elements) * item;
  if (bytes == 0) return absl::OkStatus();
  char* const in = job.in.tensor.as<char>();
  char* const out = job.buffer.as<char>();
  std::vector<GlooMesh::Piece> sends, recvs;

  if (call.op == v1::BROADCAST) {
    // Down a binomial tree, so that it takes as many transfers one after the other as the logarithm of the ranks: who has the value gives it to
    // the rank that is half of the rest away.
    const int root = call.root_rank, away = (rank() - root + size()) % size();
    const auto rank_at = [&](int distance) { return (distance + root) % size(); };
    if (away == 0) std::memcpy(out, in, bytes);
    int step = 1;
    while (step < size() && (away & step) == 0) step <<= 1;
    if (away != 0) WEFT_RETURN_IF_ERROR(mesh_->Exchange({}, {{rank_at(away - step), kDataSlot, out, bytes}}));
    for (step >>= 1; step > 0; step >>= 1) {
      if (away + step < size()) WEFT_RETURN_IF_ERROR(mesh_->Exchange({{rank_at(away + step), kDataSlot, out, bytes}}, {}));
    }
    return absl::OkStatus();
  }

  if (call.op == v1::ALL_GATHER) {
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      sends.push_back({r, kDataSlot, in, bytes});
      recvs.push_back({r, kDataSlot, out + bytes * r, bytes});
    }
    std::memcpy(out + bytes * rank(), in, bytes);
    return mesh_->Exchange(sends, recvs);
  }

  // Share r of the elements is combined by rank r.
  std::vector<size_t> starts(size()), ends(size());
  for (int r = 0; r < size(); ++r) {
    starts[r] = static_cast<size_t>(elements / size() * r + std::min<int64_t>(r, elements % size())) * item;
    ends[r] = starts[r] + static_cast<size_t>(elements / size() + (r < elements % size() ? 1 : 0)) * item;
  }
  if (call.op == v1::REDUCE_SCATTER) return ReduceShare(call, agreed.dtype, in, starts, ends, out);

  WEFT_RETURN_IF_ERROR(ReduceShare(call, agreed.dtype, in, starts, ends, out + starts[rank()]));
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    sends.push_back({r, kDataSlot, out + starts[rank()], ends[rank()] - starts[rank()]});
    recvs.push_back({r, kDataSlot, out + starts[r], ends[r] - starts[r]});
  }
  return mesh_->Exchange(sends, recvs);
}

absl::Status GlooCommunicator::ReduceShare(const CollectiveCall& call, DType dtype, const char* in, const std::vector<size_t>& starts,
                                           const std::vector<size_t>& ends, char* out) {
  const size_t own = ends[rank()] - starts[rank()];
  size_t longest = 0;
  for (int r = 0; r < size(); ++r) longest = std::max(longest, ends[r] - starts[r]);
  scratch_.resize(std::min(own, kChunkBytes) * (size() - 1));
  for (size_t at = 0; at < longest; at += kChunkBytes) {
    const auto part = [&](int r) { return std::min(kChunkBytes, ends[r] - starts[r] - std::min(at, ends[r] - starts[r])); };
    const size_t mine = part(rank());
    std::vector<GlooMesh::Piece> sends, recvs;
    std::vector<const void*> inputs(size());
    char* next = scratch_.data();
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) {
        inputs[r] = in + starts[r] + at;
        continue;
      }
      sends.push_back({r, kDataSlot, const_cast<char*>(in) + starts[r] + at, part(r)});
      recvs.push_back({r, kDataSlot, next, mine});
      inputs[r] = next;
      next += mine;
    }
    WEFT_RETURN_IF_ERROR(mesh_->Exchange(sends, recvs));
    if (mine > 0) {
      WEFT_RETURN_IF_ERROR(Combine(dtype, call.reduce, inputs, out + at, static_cast<int64_t>(mine / SizeOf(dtype))));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
