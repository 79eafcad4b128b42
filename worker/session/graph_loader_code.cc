// Device code that a graph needs and a library loads only at the first call of its shape: loaded in bootstrap, when nothing of the worker is on the device.
// Done at the first call it could wait for ever: for a receive whose peer waits for this worker's thread, which is inside that call.

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/plan/bootstrap_timeout.h"
#include "worker/run/program.h"
#include "worker/session/graph_loader.h"
#include "worker/session/links.h"

namespace weft {
namespace {

// Graphs whose executions are under way end them in a fraction of a second, if they ever do. So long a part of options.bootstrap_timeout_s is waited for that:
// the driver is to hear from this worker what it waited for.
constexpr double kRestPart = 0.5;
// A library's code is on the GPU in a tenth of a second.
constexpr Nanos kLoadLimit = 60 * kNanosPerSecond;
constexpr std::chrono::microseconds kLook(100);

// A call whose arguments and outputs all lie in the same memory.
class WarmContext : public CallContext {
 public:
  WarmContext(const LocalOp* op, Stream* stream, std::shared_ptr<void> memory, size_t bytes)
      : op_(op), stream_(stream), memory_(std::move(memory)), bytes_(bytes) {}

  int64_t execution() const override { return 0; }
  const v1::Config& config() const override { return op_->node->config; }
  absl::StatusOr<Tensor> AllocateOutput(int i, DType dtype, const Dims& dims) override {
    Tensor t(dtype, dims, memory_.get(), memory_);
    if (i < 0 || i >= static_cast<int>(op_->outputs.size()) || t.bytes() > bytes_) {
      return absl::OutOfRangeError(absl::StrCat("output ", i, " of node ", op_->node->name, " would be ", t.ToString(), ", which the plan does not say"));
    }
    return t;
  }
  void Hold(Nanos) override {}
  Stream* stream() const override { return stream_; }
  int32_t node_id() const override { return op_->node->id; }

 private:
  const LocalOp* const op_;
  Stream* const stream_;
  const std::shared_ptr<void> memory_;
  const size_t bytes_;
};

}  // namespace

struct GraphLoader::CodeCall {
  const LocalOp* op = nullptr;
  Actor* actor = nullptr;
  int method = 0;
  std::vector<Spec> args;
  size_t bytes = 0;  // of its largest argument or output
  std::string key;   // calls of one key need the same code
};

absl::StatusOr<std::vector<GraphLoader::CodeCall>> GraphLoader::CallsThatLoad(const Program& program) {
  std::vector<CodeCall> calls;
  std::set<std::string> keys;
  for (const LocalOp& op : program.ops) {
    if (op.node == nullptr || op.plan->kind != v1::COMPUTE) continue;
    const auto actor = actors_.find(op.node->actor);
    if (actor == actors_.end()) continue;  // GraphRun says so
    CodeCall c;
    c.op = &op;
    c.actor = actor->second.get();
    WEFT_ASSIGN_OR_RETURN(c.method, c.actor->Method(op.node->method));
    if (!c.actor->LoadsByShape(c.method)) continue;
    v1::Config config = op.node->config;  // but for what tells calls of the same shapes apart
    config.clear_microbatch();
    config.clear_slot();
    c.key = absl::StrCat(op.node->method, "|", config.ShortDebugString());
    for (const PlanActor& a : part_.actors) {
      if (a.id == op.node->actor) absl::StrAppend(&c.key, "|", a.cls);
    }
    bool bounded = true;
    const auto add = [&](const Spec& spec) {
      bounded = bounded && !spec.shape.HasDynamic();
      absl::StrAppend(&c.key, "|", spec.ToString());
      if (bounded) c.bytes = std::max<size_t>(c.bytes, spec.MaxBytes());
    };
    for (const LocalArg& a : op.args) {
      c.args.push_back(program.ops[a.op].outputs.at(a.output));
      add(c.args.back());
    }
    for (const Spec& spec : op.outputs) add(spec);
    if (!loads_at_calls_ && !HasFixedShapes(program, op)) {
      loads_at_calls_ = true;
      links_->Keep(env_->LoadsAtCalls());
    }
    if (bounded && !env_->HasCode(c.key) && keys.insert(c.key).second) calls.push_back(std::move(c));
  }
  return calls;
}

absl::Status GraphLoader::LoadCode() {
  if (env_->cuda == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Program program, BuildProgram(part_));
  WEFT_ASSIGN_OR_RETURN(const std::vector<CodeCall> calls, CallsThatLoad(program));
  if (calls.empty()) return absl::OkStatus();
  // The planned memory, which nobody uses yet, unless an actor takes more than any buffer has.
  size_t bytes = 0;
  for (const CodeCall& c : calls) bytes = std::max(bytes, c.bytes);
  std::shared_ptr<void> memory(arena_, arena_->data());
  if (bytes > arena_->bytes()) {
    WEFT_ASSIGN_OR_RETURN(memory, env_->cuda->Allocate(bytes));
  }
  const Nanos began = env_->clock->Now();
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<void> rest,
                        env_->quiet->Rest(part_.graph, began + FromSeconds(kRestPart * BootstrapTimeoutS(part_.options)), [this] { return cancel_->Get(); }));
  const Nanos rests = env_->clock->Now();
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<Stream> stream, env_->device->NewStream(v1::LANE_COMPUTE));
  for (const CodeCall& c : calls) {
    const auto named = [&](const absl::Status& s) {
      return absl::Status(s.code(), absl::StrCat("loading the device code of node ", c.op->node->name, ": ", std::string(s.message())));
    };
    WarmContext context(c.op, stream.get(), memory, bytes);
    std::vector<Tensor> args, outs(c.op->outputs.size());
    for (const Spec& spec : c.args) args.emplace_back(spec.dtype, spec.shape.MaxDims(), memory.get(), memory);
    const absl::Status warmed = c.actor->Warm(c.method, context, args, &outs);
    if (!warmed.ok()) {
      // What a call cannot take is its own error, and perhaps only the largest shapes do not go together.
      SPDLOG_INFO("graph {}: device code of node {} is not loaded ahead: {}", part_.graph, c.op->node->name, std::string(warmed.message()));
    }
    absl::StatusOr<EventRef> done = env_->cuda->Record(stream->native());
    if (!done.ok()) return named(done.status());
    while (!IsReady(*done)) {
      if (env_->clock->Now() - rests > kLoadLimit) return named(absl::DeadlineExceededError("the GPU has not come to its end"));
      std::this_thread::sleep_for(kLook);
    }
    if (const absl::Status s = env_->device->Health(); !s.ok()) return named(s);
    if (warmed.ok()) env_->AddCode(c.key);
  }
  SPDLOG_INFO("graph {}: device code of {} kinds of calls loaded in {:.2f} s, after {:.2f} s of waiting for a rest", part_.graph, calls.size(),
              ToSeconds(env_->clock->Now() - rests), ToSeconds(rests - began));
  return absl::OkStatus();
}

}  // namespace weft
