#include "driver/schedules/graph.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "driver/schedules/graph_options.h"

namespace weft {
namespace {

constexpr double kProgressTimeout = 60;  // seconds; the graph's default

class Builder {
 public:
  Builder(const PipelinePlan& plan, const std::string& name) : plan_(plan), s_(plan.schedule) {
    graph_.set_name(name);
    const size_t cells = static_cast<size_t>(s_.stages()) * s_.microbatches;
    forward_.resize(cells);
    backward_.resize(cells);
  }

  v1::Graph Run() {
    NameValues();
    double longest = 0;
    for (int32_t w = 0; w < s_.workers; ++w) {
      v1::Actor* actor = graph_.add_actor();
      actor->set_name(absl::StrCat("stage", w));
      actor->set_class_("std.Delay");
      actor->set_worker(absl::StrCat("w", w));
      for (const PipelineOp& op : s_.orders[w]) longest = std::max(longest, AddNode(w, op));
      v1::Output* output = graph_.add_output();
      output->set_name(absl::StrCat("end", w));
      output->set_node(NodeName(s_.orders[w].back()));
    }
    SetOptions(longest);
    return std::move(graph_);
  }

 private:
  size_t Cell(int32_t stage, int32_t microbatch) const { return static_cast<size_t>(stage) * s_.microbatches + microbatch; }

  static std::string NodeName(const PipelineOp& op) {
    if (op.pass == Pass::kPair) return absl::StrCat("s", op.stage, ".F", op.microbatch, "-s", op.back_stage, ".B", op.back_microbatch);
    return absl::StrCat("s", op.stage, ".", std::string(1, PassLetter(op.pass)), op.microbatch);
  }

  // Which node makes each activation and each gradient.
  void NameValues() {
    for (const auto& order : s_.orders) {
      for (const PipelineOp& op : order) {
        const std::string name = NodeName(op);
        if (op.pass == Pass::kForward || op.pass == Pass::kPair) forward_[Cell(op.stage, op.microbatch)] = name;
        if (op.pass == Pass::kInputGrad || op.pass == Pass::kBackward) backward_[Cell(op.stage, op.microbatch)] = name;
        if (op.pass == Pass::kPair) backward_[Cell(op.back_stage, op.back_microbatch)] = name;
      }
    }
  }

  static void Take(const std::string& from, v1::Node* node) { node->add_arg()->set_node(from); }

  void TakeForward(int32_t stage, int32_t k, v1::Node* node) const {
    if (stage > 0) Take(forward_[Cell(stage - 1, k)], node);
  }
  void TakeBackward(int32_t stage, int32_t k, v1::Node* node) const {
    if (stage + 1 < s_.stages()) Take(backward_[Cell(stage + 1, k)], node);
    Take(forward_[Cell(stage, k)], node);
  }

  double AddNode(int32_t w, const PipelineOp& op) {
    v1::Node* node = graph_.add_node();
    node->set_name(NodeName(op));
    node->set_actor(absl::StrCat("stage", w));
    const double seconds = plan_.costs.ToUnits(plan_.costs.Of(op));
    node->mutable_config()->set_duration_s(seconds);
    switch (op.pass) {
      case Pass::kForward:
        TakeForward(op.stage, op.microbatch, node);
        break;
      case Pass::kInputGrad:
      case Pass::kBackward:
        TakeBackward(op.stage, op.microbatch, node);
        break;
      case Pass::kWeightGrad:
        Take(backward_[Cell(op.stage, op.microbatch)], node);
        Take(forward_[Cell(op.stage, op.microbatch)], node);
        break;
      case Pass::kPair:
        TakeForward(op.stage, op.microbatch, node);
        TakeBackward(op.back_stage, op.back_microbatch, node);
        break;
    }
    return seconds;
  }

  void SetOptions(double longest) {
    SetPipelineOptions(s_, &graph_);
    v1::Options* options = graph_.mutable_options();
    if (plan_.costs.hop > 0) options->mutable_emulate()->set_latency_s(plan_.costs.ToUnits(plan_.costs.hop));
    if (4 * longest > kProgressTimeout) options->set_progress_timeout_s(4 * longest);
  }

  const PipelinePlan& plan_;
  const PipelineSchedule& s_;
  v1::Graph graph_;
  std::vector<std::string> forward_, backward_;  // by stage and microbatch: names of nodes
};

}  // namespace

v1::Graph PipelineGraph(const PipelinePlan& plan, const std::string& name) { return Builder(plan, name).Run(); }

}  // namespace weft
