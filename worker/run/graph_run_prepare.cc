// What GraphRun takes and resolves before it runs.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/planned_places.h"
#include "worker/run/graph_run.h"

namespace weft {

absl::Status GraphRun::Prepare() {
  worker_ = WorkerName(loaded_.plan, loaded_.plan.part_of);
  status_words_ = UsesStatusWords(loaded_.plan) && device_->kind() == "cuda";
  ranges_ = trace_.enabled() && device_->HasRanges();
  state_.resize(program_.ops.size());
  for (size_t i = 0; i < program_.ops.size(); ++i) WEFT_RETURN_IF_ERROR(PrepareOp(static_cast<int>(i)));
  const Nanos now = clock_->Now();
  for (const LocalLane& l : program_.lanes) {
    Lane lane;
    WEFT_ASSIGN_OR_RETURN(lane.stream, device_->NewStream(l.kind));
    lane.in_order = device_->Polls() && l.kind == v1::LANE_COMPUTE;
    lane.since = now;
    lanes_.push_back(std::move(lane));
  }
  return IsCaptured(loaded_.plan, loaded_.plan.part_of) ? PrepareCaptured() : PlanPlaces();
}

absl::Status GraphRun::PlanPlaces() {
  for (size_t i = 0; i < program_.ops.size(); ++i) {
    const LocalOp& op = program_.ops[i];
    const OpState& s = state_[i];
    if (op.edge == nullptr || op.edge->control) continue;
    if (auto* const to = dynamic_cast<PlannedPlaces*>(s.receiver); to != nullptr) {
      for (size_t slot = 0; slot < s.buffers.size(); ++slot) {
        WEFT_RETURN_IF_ERROR(PlanPlace(to, op.edge->spec, s.buffers[slot], StatusOf(static_cast<int>(i), static_cast<int64_t>(slot))));
      }
    }
    auto* const from = dynamic_cast<PlannedPlaces*>(s.sender);
    if (from == nullptr || op.args.empty()) continue;
    const LocalArg& arg = op.args[0];
    const OpState& maker = state_[arg.op];
    for (int slot = 0; slot < program_.ops[arg.op].slots; ++slot) {
      const bool made = maker.call != nullptr;
      WEFT_RETURN_IF_ERROR(PlanPlace(from, op.edge->spec, made ? maker.call->buffers().At(slot, arg.output) : maker.buffers.at(static_cast<size_t>(slot)),
                                     !status_words_ ? nullptr : made ? maker.call->buffers().StatusAt(slot, arg.output) : StatusOf(arg.op, slot)));
    }
  }
  return absl::OkStatus();
}

absl::Status GraphRun::PlanPlace(PlannedPlaces* port, const Spec& spec, const std::shared_ptr<void>& memory, DeviceStatus* status) {
  if (memory == nullptr || spec.shape.HasDynamic()) return absl::OkStatus();
  return port->Plan(Tensor(spec.dtype, spec.shape.MaxDims(), memory.get(), memory), status);
}

absl::Status GraphRun::PrepareCaptured() {
  CapturedRun::Options o;
  o.clock = clock_;
  o.device = dynamic_cast<CudaDevice*>(device_);
  if (o.device == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("graph ", name(), " on ", worker_,
                                                      ": the plan is for a GPU worker with options.launch GRAPH, and this one "
                                                      "runs on ",
                                                      device_->kind(), ": compile the graph again"));
  }
  o.plan = &loaded_.plan;
  o.program = &program_;
  for (const OpState& s : state_) o.ops.push_back({s.call.get(), s.actor, s.method, s.sender, s.receiver, s.group, &s.buffers});
  for (const Lane& l : lanes_) o.lanes.push_back(l.stream.get());
  o.trace = &trace_;
  o.worker = worker_;
  WEFT_ASSIGN_OR_RETURN(captured_, CapturedRun::Create(std::move(o)));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<void>> GraphRun::Allocate(size_t bytes) {
  return loaded_.arena != nullptr ? loaded_.arena->Take(bytes) : device_->Allocate(bytes);
}

bool GraphRun::BelongsOnHost(const LocalOp& op) const {
  // A copy out of a GPU takes as long as writing so much over the bus would.
  constexpr uint64_t kMostBytes = 4096;
  if (!device_->Polls() || status_words_ || op.outputs.empty() || op.readers.empty()) return false;
  for (const Spec& spec : op.outputs) {
    if (spec.shape.HasDynamic() || spec.MaxBytes() > kMostBytes) return false;
  }
  return std::all_of(op.readers.begin(), op.readers.end(), [&](int r) {
    const PlanEdge* const edge = program_.ops[r].edge;
    return edge != nullptr && (edge->transport == v1::SHM || edge->transport == v1::GLOO || edge->transport == v1::REMOTE);
  });
}

absl::Status GraphRun::PrepareOp(int i) {
  const LocalOp& op = program_.ops[i];
  OpState& s = state_[i];
  const auto missing = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("graph ", name(), " on ", worker_, ": ", Describe(op), " has no ", what,
                                                   ": bootstrap did not make it"));
  };
  switch (op.plan->kind) {
    case v1::COMPUTE: {
      const auto it = loaded_.actors.find(op.node->actor);
      if (it == loaded_.actors.end()) return missing("actor");
      s.actor = it->second.get();
      WEFT_ASSIGN_OR_RETURN(s.method, s.actor->Method(op.node->method));
      s.loads = s.actor->LoadsByShape(s.method) && !HasFixedShapes(program_, op);
      s.on_host = BelongsOnHost(op);
      WEFT_ASSIGN_OR_RETURN(OutputBuffers buffers, OutputBuffers::Create(op, Describe(op), device_, loaded_.arena.get(), status_words_, s.on_host));
      s.call = std::make_unique<ComputeCall>(&op, std::move(buffers));
      // A captured iteration is made once and must hold all that every launch does.
      s.call->set_outputs_persist(!loaded_.plan.options.poison_released() && !IsCaptured(loaded_.plan, loaded_.plan.part_of) &&
                                  std::none_of(op.outputs.begin(), op.outputs.end(), [](const Spec& o) { return o.shape.HasDynamic(); }));
      return absl::OkStatus();
    }
    case v1::READ:
    case v1::RECV: {
      const auto it = loaded_.receivers.find(op.edge->id);
      if (it == loaded_.receivers.end()) return missing("receiving port");
      s.receiver = it->second.get();
      s.buffers.resize(op.slots);
      if (s.receiver->ZeroCopy() || op.edge->spec.shape.HasDynamic()) return absl::OkStatus();
      for (std::shared_ptr<void>& b : s.buffers) {
        WEFT_ASSIGN_OR_RETURN(b, Allocate(BufferSize(op.edge->bytes, status_words_)));
      }
      return absl::OkStatus();
    }
    case v1::SEND:
    case v1::WRITE: {
      const auto it = loaded_.senders.find(op.edge->id);
      if (it == loaded_.senders.end()) return missing("sending port");
      s.sender = it->second.get();
      return absl::OkStatus();
    }
    case v1::COLLECTIVE: {
      const auto it = loaded_.groups.find(op.group->id);
      if (it == loaded_.groups.end()) return missing("communicator");
      s.group = it->second.get();
      s.buffers.resize(op.slots);
      for (std::shared_ptr<void>& b : s.buffers) {
        WEFT_ASSIGN_OR_RETURN(b, Allocate(BufferSize(op.group->output.MaxBytes(), status_words_)));
      }
      return absl::OkStatus();
    }
    default:
      return missing("known kind");
  }
}

}  // namespace weft
