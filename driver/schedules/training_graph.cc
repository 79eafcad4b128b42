#include "driver/schedules/training_graph.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/classes/mlp_stage.h"
#include "driver/schedules/graph_options.h"

namespace weft {
namespace {

class Builder {
 public:
  Builder(const PipelinePlan& plan, const TrainingModel& model, const std::string& name)
      : plan_(plan), s_(plan.schedule), model_(model), slots_(s_.stages()) {
    graph_.set_name(name);
    const size_t cells = static_cast<size_t>(s_.stages()) * s_.microbatches;
    split_.resize(cells);
    slot_.resize(cells);
  }

  v1::Graph Run() {
    Look();
    for (int32_t w = 0; w < s_.workers; ++w) AddWorker(w);
    v1::Output* loss = graph_.add_output();
    loss->set_name("loss");
    loss->set_node("loss-sum");
    for (int32_t s = 0; s < s_.stages(); ++s) {
      v1::Output* output = graph_.add_output();
      const char* const what = model_.weights ? "weights" : "step";
      output->set_name(absl::StrCat(what, s));
      output->set_node(absl::StrCat("s", s, ".", what));
    }
    SetPipelineOptions(s_, &graph_);
    graph_.mutable_options()->set_max_in_flight(model_.in_flight);
    return std::move(graph_);
  }

 private:
  size_t Cell(int32_t stage, int32_t microbatch) const { return static_cast<size_t>(stage) * s_.microbatches + microbatch; }
  static std::string Name(int32_t stage, char pass, int32_t k) { return absl::StrCat("s", stage, ".", std::string(1, pass), k); }
  // The node that gives the gradient of the stage's input.
  std::string BackwardOf(int32_t stage, int32_t k) const { return Name(stage, split_[Cell(stage, k)] ? 'I' : 'B', k); }
  int32_t last() const { return s_.stages() - 1; }

  // Which backwards are split, and where each microbatch's activations lie: the lowest place that is free when its forward begins.
  void Look() {
    std::vector<std::set<int32_t>> free(s_.stages());
    // std.Mlp sums gradients by microbatch: one whose weight gradient comes early keeps its place until its turn.
    std::vector<std::set<int32_t>> early(s_.stages());
    std::vector<int32_t> next(s_.stages(), 0);
    const auto give = [&](int32_t stage, int32_t k) {
      early[stage].insert(k);
      while (early[stage].erase(next[stage]) > 0) free[stage].insert(slot_[Cell(stage, next[stage]++)]);
    };
    const auto take = [&](int32_t stage, int32_t k) {
      if (free[stage].empty()) free[stage].insert(slots_[stage]++);
      slot_[Cell(stage, k)] = *free[stage].begin();
      free[stage].erase(free[stage].begin());
    };
    for (const auto& order : s_.orders) {
      for (const PipelineOp& op : order) {
        switch (op.pass) {
          case Pass::kForward: take(op.stage, op.microbatch); break;
          case Pass::kInputGrad: split_[Cell(op.stage, op.microbatch)] = true; break;
          case Pass::kWeightGrad:
          case Pass::kBackward: give(op.stage, op.microbatch); break;
          case Pass::kPair:
            take(op.stage, op.microbatch);
            give(op.back_stage, op.back_microbatch);
            break;
        }
      }
    }
  }

  v1::Actor* AddActor(const std::string& name, const std::string& cls, int32_t w) {
    v1::Actor* actor = graph_.add_actor();
    actor->set_name(name);
    actor->set_class_(cls);
    actor->set_worker(absl::StrCat("w", w));
    return actor;
  }

  // Behind the worker's node before it.
  v1::Node* AddNode(const std::string& name, const std::string& actor, const std::string& method) {
    v1::Node* node = graph_.add_node();
    node->set_name(name);
    node->set_actor(actor);
    node->set_method(method);
    if (!before_.empty()) node->add_after(before_);
    before_ = name;
    return node;
  }

  v1::Node* AddCall(int32_t stage, char pass, const char* method, int32_t k) {
    v1::Node* node = AddNode(Name(stage, pass, k), absl::StrCat("stage", stage), method);
    node->mutable_config()->set_microbatch(k);
    node->mutable_config()->set_slot(slot_[Cell(stage, k)]);
    return node;
  }

  void AddStage(int32_t s, int32_t w) {
    const int64_t layers = static_cast<int64_t>(model_.widths.size()) - 1;
    const int64_t first = FirstLayer(s, s_.stages(), layers), end = FirstLayer(s + 1, s_.stages(), layers);
    v1::Config* c = AddActor(absl::StrCat("stage", s), "std.Mlp", w)->mutable_config();
    for (int64_t l = first; l <= end; ++l) c->add_widths(model_.widths[l]);
    c->set_dtype(model_.dtype);
    c->set_first_layer(first);
    c->set_rows(model_.rows);
    c->set_microbatches(s_.microbatches);
    c->set_slots(slots_[s]);
    c->set_seed(model_.seed);
    c->set_activation(model_.activation);
    c->set_precision(model_.precision);
    c->set_learning_rate(model_.learning_rate);
    if (s == last()) c->set_loss("mse");
  }

  // The rows of an execution, cut into microbatches; "x" on the first stage's worker, "t" on the last's.
  void AddData(const std::string& name, int64_t width, int32_t w) {
    if (model_.inputs) {
      v1::Input* input = graph_.add_input();
      input->set_name(name);
      input->set_dtype(model_.dtype);
      input->set_shape(absl::StrCat("[", model_.rows * s_.microbatches, ", ", width, "]"));
      v1::Config* c = AddActor(absl::StrCat("cut-", name), "std.Split", w)->mutable_config();
      c->set_parts(s_.microbatches);
      c->set_axis(0);
      AddNode(absl::StrCat(name, "-data"), absl::StrCat("cut-", name), "split")->add_arg()->set_input(name);
      return;
    }
    v1::Config* c = AddActor(absl::StrCat("make-", name), "std.Constant", w)->mutable_config();
    c->set_dtype(model_.dtype);
    c->set_shape(absl::StrCat("[", model_.rows, ", ", width, "]"));
    c->set_fill("random");
    AddNode(absl::StrCat(name, "-data"), absl::StrCat("make-", name), "make");
  }
  void TakeData(const std::string& name, int32_t k, v1::Node* node) const {
    v1::Arg* arg = node->add_arg();
    arg->set_node(absl::StrCat(name, "-data"));
    if (model_.inputs) arg->set_output(k);
  }

  void AddForward(int32_t stage, int32_t k) {
    v1::Node* node = AddCall(stage, 'F', "forward", k);
    if (stage == 0) {
      TakeData("x", k, node);
    } else {
      node->add_arg()->set_node(Name(stage - 1, 'F', k));
    }
    if (stage == last()) TakeData("t", k, node);
  }

  void AddBackward(int32_t stage, char pass, int32_t k) {
    v1::Node* node = AddCall(stage, pass, pass == 'I' ? "input_grad" : "backward", k);
    node->add_arg()->set_node(stage == last() ? Name(stage, 'F', k) : BackwardOf(stage + 1, k));
  }

  void AddOp(const PipelineOp& op) {
    switch (op.pass) {
      case Pass::kForward: return AddForward(op.stage, op.microbatch);
      case Pass::kInputGrad: return AddBackward(op.stage, 'I', op.microbatch);
      case Pass::kBackward: return AddBackward(op.stage, 'B', op.microbatch);
      case Pass::kWeightGrad:
        AddCall(op.stage, 'W', "weight_grad", op.microbatch)->add_arg()->set_node(Name(op.stage, 'I', op.microbatch));
        return;
      case Pass::kPair:
        AddForward(op.stage, op.microbatch);
        return AddBackward(op.back_stage, 'B', op.back_microbatch);
    }
  }

  void AddWorker(int32_t w) {
    before_.clear();
    if (s_.worker_of[0] == w) AddData("x", model_.widths.front(), w);
    if (s_.worker_of[last()] == w) AddData("t", model_.widths.back(), w);
    for (int32_t s = 0; s < s_.stages(); ++s) {
      if (s_.worker_of[s] == w) AddStage(s, w);
    }
    for (const PipelineOp& op : s_.orders[w]) AddOp(op);
    if (s_.worker_of[last()] == w) {
      AddActor("sum", "std.Add", w);
      v1::Node* sum = AddNode("loss-sum", "sum", "add");
      for (int32_t k = 0; k < s_.microbatches; ++k) sum->add_arg()->set_node(Name(last(), 'F', k));
    }
    for (int32_t s = 0; s < s_.stages(); ++s) {
      if (s_.worker_of[s] != w) continue;
      v1::Node* step = AddNode(absl::StrCat("s", s, ".step"), absl::StrCat("stage", s), "step");
      for (int32_t k = 0; k < s_.microbatches; ++k) step->add_arg()->set_node(Name(s, split_[Cell(s, k)] ? 'W' : 'B', k));
      if (model_.weights) AddNode(absl::StrCat("s", s, ".weights"), absl::StrCat("stage", s), "weights")->add_arg()->set_node(step->name());
    }
  }

  const PipelinePlan& plan_;
  const PipelineSchedule& s_;
  const TrainingModel& model_;
  v1::Graph graph_;
  std::vector<char> split_;     // by stage and microbatch: I and W, not B
  std::vector<int32_t> slot_;   // by stage and microbatch
  std::vector<int32_t> slots_;  // by stage
  std::string before_;          // the worker's last node so far
};

absl::Status Check(const PipelineSchedule& s, const TrainingModel& m) {
  const int64_t layers = static_cast<int64_t>(m.widths.size()) - 1;
  if (layers < s.stages()) {
    return absl::InvalidArgumentError(absl::StrCat("the network has ", std::max<int64_t>(layers, 0), " layers, and the schedule ",
                                                   s.stages(), " stages: the smallest number of layers that works is ", s.stages()));
  }
  for (const int64_t w : m.widths) {
    if (w < 1) return absl::InvalidArgumentError(absl::StrCat("a layer has ", w, " features: the smallest number that works is 1"));
  }
  if (m.rows < 1) return absl::InvalidArgumentError(absl::StrCat(m.rows, " rows a microbatch: the smallest number that works is 1"));
  // std.Split's most parts.
  if (m.inputs && s.microbatches > 4096) {
    return absl::InvalidArgumentError(absl::StrCat(s.microbatches, " microbatches of one input: at most 4096 can be cut from it"));
  }
  for (const auto& order : s.orders) {
    if (std::none_of(order.begin(), order.end(), [](const PipelineOp& op) { return op.pass != Pass::kForward; })) {
      return absl::InvalidArgumentError(absl::StrCat(s.name, " has no backwards, so that nothing would be trained; use another schedule"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t FirstLayer(int32_t stage, int32_t stages, int64_t layers) { return stage * layers / stages; }

absl::StatusOr<v1::Graph> TrainingGraph(const PipelinePlan& plan, const TrainingModel& model, const std::string& name) {
  const absl::Status ok = Check(plan.schedule, model);
  if (!ok.ok()) return ok;
  return Builder(plan, model, name).Run();
}

std::vector<uint64_t> TrainingBytes(const v1::Graph& graph, int32_t workers) {
  std::vector<uint64_t> bytes(workers, 0);
  for (const v1::Actor& actor : graph.actor()) {
    if (actor.class_() != "std.Mlp") continue;
    const auto stage = ReadMlpStage(actor.config());
    for (int32_t w = 0; stage.ok() && w < workers; ++w) {
      if (actor.worker() != absl::StrCat("w", w)) continue;
      bytes[w] += static_cast<uint64_t>(2 * stage->parameters() + stage->slots * stage->slot_elements()) * SizeOf(stage->dtype);
    }
  }
  return bytes;
}

}  // namespace weft
