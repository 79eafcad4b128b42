#include "worker/run/program.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

bool LaneFits(OpKind kind, LaneKind lane) {
  switch (kind) {
    case v1::COMPUTE:
      return lane == v1::LANE_COMPUTE;
    case v1::READ:
    case v1::RECV:
      return lane == v1::LANE_RECV || lane == v1::LANE_COPY;
    case v1::SEND:
    case v1::WRITE:
      return lane == v1::LANE_SEND || lane == v1::LANE_COPY;
    case v1::COLLECTIVE:
      return lane == v1::LANE_COLLECTIVE;
    default:
      return false;
  }
}

class Builder {
 public:
  explicit Builder(const Plan& part) : part_(part) {}

  absl::StatusOr<Program> Build() {
    for (const PlanOp& op : part_.ops) {
      if (op.worker == part_.part_of) index_.emplace(op.id, static_cast<int>(index_.size()));
    }
    for (const PlanOp& op : part_.ops) {
      if (op.worker == part_.part_of) WEFT_RETURN_IF_ERROR(Add(op));
    }
    for (size_t i = 0; i < program_.ops.size(); ++i) FindReaders(static_cast<int>(i));
    for (LocalOp& op : program_.ops) {
      if (op.node != nullptr) {
        const std::string& text = op.node->device_error;
        op.may_fail_on_device = !text.empty() && text != kFailsOnHost && text != kFailsElsewhere;
      }
      for (LocalWait& w : op.waits) {
        const PlanOp& from = *program_.ops[w.op].plan;
        w.same_lane = op.plan->kind == v1::COMPUTE && from.kind == v1::COMPUTE && op.plan->lane_index == from.lane_index;
      }
    }
    return std::move(program_);
  }

 private:
  absl::Status Bad(const PlanOp& op, const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("plan of graph ", part_.graph, ", op ", op.id, " (",
                                                   OpName(part_, op), "): ", what,
                                                   "; compile the graph again with this version of weft"));
  }

  absl::Status Add(const PlanOp& op) {
    LocalOp local;
    local.plan = &op;
    const int self = static_cast<int>(program_.ops.size());
    if (!LaneFits(op.kind, op.lane)) return Bad(op, absl::StrCat("does not fit lane ", LaneName(op.lane, op.lane_index)));
    if (op.slots < 1) return Bad(op, absl::StrCat("slots is ", op.slots, ", at least 1 is needed"));
    local.slots = op.slots;
    WEFT_RETURN_IF_ERROR(FindObject(op, &local));
    for (const PlanValue& v : op.args) {
      const auto it = index_.find(v.op);
      if (it == index_.end() || it->second >= self) {
        return Bad(op, absl::StrCat("argument op ", v.op, " is not an earlier op of this worker"));
      }
      const LocalOp& from = program_.ops[it->second];
      if (v.output < 0 || v.output >= static_cast<int>(from.outputs.size())) {
        return Bad(op, absl::StrCat("argument output ", v.output, " of op ", v.op, " does not exist"));
      }
      local.args.push_back({it->second, v.output});
    }
    if (op.kind != v1::COMPUTE && op.kind != v1::READ && op.kind != v1::RECV) {
      const bool control = local.edge != nullptr && local.edge->control;
      if (local.args.size() != 1 && !(control && local.args.empty())) return Bad(op, "needs exactly one argument");
    }
    for (const PlanWait& w : op.waits) {
      const auto it = index_.find(w.op);
      if (it == index_.end()) return Bad(op, absl::StrCat("waits for op ", w.op, ", which this worker does not have"));
      if (w.distance < 0) return Bad(op, absl::StrCat("wait distance ", w.distance, " is negative"));
      if (w.distance == 0 && it->second >= self) return Bad(op, absl::StrCat("waits for the later op ", w.op));
      local.waits.push_back({it->second, w.distance, w.reason, false});
    }
    const auto key = std::make_pair(static_cast<int>(op.lane), op.lane_index);
    const auto [lane, fresh] = lanes_.emplace(key, static_cast<int>(program_.lanes.size()));
    if (fresh) program_.lanes.push_back({op.lane, op.lane_index, {}});
    local.lane = lane->second;
    program_.lanes[local.lane].ops.push_back(self);
    program_.ops.push_back(std::move(local));
    return absl::OkStatus();
  }

  absl::Status FindObject(const PlanOp& op, LocalOp* local) const {
    if (op.kind == v1::COMPUTE) {
      local->node = FindNode(part_, op.node);
      if (local->node == nullptr) return Bad(op, absl::StrCat("node ", op.node, " is not in the plan"));
      local->outputs = local->node->outputs;
      return absl::OkStatus();
    }
    if (op.kind == v1::COLLECTIVE) {
      local->group = FindGroup(part_, op.group);
      if (local->group == nullptr) return Bad(op, absl::StrCat("group ", op.group, " is not in the plan"));
      local->outputs = {local->group->output};
      return absl::OkStatus();
    }
    local->edge = FindEdge(part_, op.edge);
    if (local->edge == nullptr) return Bad(op, absl::StrCat("edge ", op.edge, " is not in the plan"));
    const bool receives = op.kind == v1::READ || op.kind == v1::RECV;
    if ((receives ? local->edge->dst_worker : local->edge->src_worker) != part_.part_of) {
      return Bad(op, absl::StrCat(EdgeName(part_, *local->edge), " does not end at this worker"));
    }
    if (receives) {
      local->outputs = {local->edge->spec};
      local->slots = local->edge->slots;
      if (local->slots < 1) return Bad(op, "its edge has no slots");
    }
    return absl::OkStatus();
  }

  void FindReaders(int i) {
    LocalOp& reader = program_.ops[i];
    const auto add = [&](int from) {
      std::vector<int>& r = program_.ops[from].readers;
      if (std::find(r.begin(), r.end(), i) == r.end()) r.push_back(i);
    };
    for (const LocalArg& a : reader.args) add(a.op);
    for (const LocalWait& w : reader.waits) {
      const LocalOp& from = program_.ops[w.op];
      if (w.reason == v1::PlanWait::CONTROL && from.edge != nullptr && from.edge->control) add(w.op);
    }
  }

  const Plan& part_;
  Program program_;
  std::unordered_map<int32_t, int> index_;
  std::map<std::pair<int, int32_t>, int> lanes_;
};

}  // namespace

absl::StatusOr<Program> BuildProgram(const Plan& part) {
  if (part.part_of < 0 || part.part_of >= static_cast<int>(part.workers.size())) {
    return absl::InvalidArgumentError(absl::StrCat("plan of graph ", part.graph, " is not the part of one worker"));
  }
  return Builder(part).Build();
}

bool HasFixedShapes(const Program& program, const LocalOp& op) {
  const auto fixed = [](const Spec& spec) { return spec.shape.IsStatic(); };
  return std::all_of(op.outputs.begin(), op.outputs.end(), fixed) &&
         std::all_of(op.args.begin(), op.args.end(), [&](const LocalArg& a) { return fixed(program.ops[a.op].outputs.at(a.output)); });
}

}  // namespace weft
