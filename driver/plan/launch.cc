#include "driver/plan/launch.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"
#include "common/classes/std_messages.h"
#include "driver/plan/memory.h"
#include "driver/plan/verify_cycles.h"
#include "driver/plan/verify_findings.h"
#include "driver/plan/verify_index.h"

namespace weft {
namespace {

constexpr char kRemedy[] = "or set options.launch STREAM";
constexpr size_t kMaxLines = 100;
constexpr size_t kMaxSteps = 30;

bool AnyCaptured(const Plan& plan) {
  if (plan.options.launch() != v1::GRAPH) return false;
  return std::any_of(plan.actors.begin(), plan.actors.end(), [&](const PlanActor& a) { return IsCaptured(plan, a.worker); });
}

bool TouchesCaptured(const Plan& plan, const PlanEdge& e) { return IsCaptured(plan, e.src_worker) || IsCaptured(plan, e.dst_worker); }

bool OfClient(const PlanEdge& e) { return e.src_worker == kClient || e.dst_worker == kClient; }

bool IsFixed(const Spec& spec) {
  return std::all_of(spec.shape.dims.begin(), spec.shape.dims.end(), [](const Dim& d) { return d.kind == Dim::kFixed; });
}

class Problems {
 public:
  template <typename... Parts>
  void Add(const Parts&... parts) {
    if (lines_.size() < kMaxLines) lines_.push_back(absl::StrCat("options.launch GRAPH: ", parts...));
    ++count_;
  }
  absl::Status ToStatus() const {
    if (count_ == 0) return absl::OkStatus();
    std::string text = absl::StrJoin(lines_, "\n");
    if (count_ > lines_.size()) absl::StrAppend(&text, "\nand ", count_ - lines_.size(), " more");
    return absl::InvalidArgumentError(text);
  }

 private:
  std::vector<std::string> lines_;
  size_t count_ = 0;
};

void CheckShapes(const Plan& plan, Problems* problems) {
  const auto check = [&](const Spec& spec, const std::string& what) {
    if (IsFixed(spec)) return;
    problems->Add(what, " is ", spec.ToString(), ", and a captured iteration moves values of fixed shapes: give every dimension a number, ",
                  kRemedy);
  };
  for (const PlanNode& n : plan.nodes) {
    const int32_t worker = plan.actors[n.actor].worker;
    if (!IsCaptured(plan, worker)) continue;
    for (size_t o = 0; o < n.outputs.size(); ++o) {
      check(n.outputs[o], absl::StrCat("output ", o, " of node ", n.name, " on GPU worker ", WorkerName(plan, worker)));
    }
  }
  for (const PlanEdge& e : plan.edges) {
    // What leaves a GPU worker is an output of a node there.
    if (IsCaptured(plan, e.dst_worker) && !IsCaptured(plan, e.src_worker)) {
      check(e.spec, absl::StrCat("the value of ", EdgeName(plan, e), ", which a GPU worker takes,"));
    }
  }
  for (const PlanGroup& g : plan.groups) {
    const bool captured = std::any_of(g.members.begin(), g.members.end(), [&](int32_t w) { return IsCaptured(plan, w); });
    if (captured) check(g.output, absl::StrCat("the result of collective ", g.name));
  }
}

void CheckTransports(const Plan& plan, Problems* problems) {
  for (const PlanEdge& e : plan.edges) {
    if (!TouchesCaptured(plan, e)) continue;
    if (e.emulated) {
      problems->Add(EdgeName(plan, e), " has an emulated link, whose times a captured iteration does not know: leave emulate out, ",
                    kRemedy);
    }
    if (e.transport == v1::SHM || e.transport == v1::IPC || e.transport == v1::NCCL) continue;
    problems->Add(
        EdgeName(plan, e), " goes by ", v1::Transport_Name(e.transport),
        ", and a captured iteration takes and gives values by SHM, IPC and NCCL only: ",
        OfClient(e) ? "use a worker on the driver's host for it, " : "put both nodes on workers of one host, or both on GPU workers, ",
        kRemedy);
  }
}

// --- slots

// With `slots` for everything that captured workers hold.
void SetSlots(int32_t slots, Plan* plan) {
  for (PlanEdge& e : plan->edges) {
    if (TouchesCaptured(*plan, e)) e.slots = slots;
  }
  for (PlanOp& op : plan->ops) {
    const bool receives = op.kind == v1::READ || op.kind == v1::RECV;
    if (receives) op.slots = plan->edges[op.edge].slots;
    if (IsCaptured(*plan, op.worker) && (op.kind == v1::COMPUTE || op.kind == v1::COLLECTIVE)) op.slots = slots;
  }
  plan->peak_bytes.assign(plan->workers.size(), 0);
  for (const PlanOp& op : plan->ops) {
    constexpr uint64_t kHuge = uint64_t{1} << 62;
    uint64_t& peak = plan->peak_bytes[op.worker];
    peak = std::min(kHuge, peak + ReservedBytes(*plan, op));
  }
}

// --- the circle

// Nodes of the graph of one execution: the plan's ops, then start and end of each captured worker's iteration.
class Launches {
 public:
  explicit Launches(const Plan& plan) : plan_(plan), index_(plan), ops_(index_.num_ops()) {}

  absl::Status Check() {
    const int32_t nodes = ops_ + 2 * static_cast<int32_t>(plan_.workers.size());
    std::vector<std::vector<int32_t>> needs(nodes);
    std::vector<int32_t> unit_of(nodes);
    int32_t units = index_.num_units();
    for (int32_t i = 0; i < ops_; ++i) {
      unit_of[i] = index_.unit_of(i);
      AddNeeds(i, &needs);
    }
    for (int32_t i = ops_; i < nodes; ++i) unit_of[i] = units++;

    NeedsTable table;
    table.at.reserve(nodes + 1);
    for (const std::vector<int32_t>& of : needs) {
      table.at.push_back(static_cast<int32_t>(table.needs.size()));
      table.needs.insert(table.needs.end(), of.begin(), of.end());
    }
    table.at.push_back(static_cast<int32_t>(table.needs.size()));
    constexpr size_t kMaxCycles = 5;
    Problems problems;
    for (const Cycle& cycle : FindCycles(unit_of, units, table, kMaxCycles)) Report(cycle, &problems);
    return problems.ToStatus();
  }

 private:
  int32_t Start(int32_t worker) const { return ops_ + 2 * worker; }
  int32_t End(int32_t worker) const { return ops_ + 2 * worker + 1; }

  void AddNeeds(int32_t i, std::vector<std::vector<int32_t>>* needs) const {
    const PlanOp& op = plan_.ops[i];
    std::vector<int32_t>& mine = (*needs)[i];
    if (index_.place_in_lane(i) > 0) mine.push_back(index_.lanes()[index_.lane_of(i)].ops[index_.place_in_lane(i) - 1]);
    index_.ForEachDependency(i, [&](const Dependency& d) {
      if (d.distance == 0 && d.cause != Cause::kValue) mine.push_back(d.op);
    });
    const bool captured = IsCaptured(plan_, op.worker);
    if (captured) {
      mine.push_back(Start(op.worker));
      (*needs)[End(op.worker)].push_back(i);
    }
    if (op.kind != v1::READ || index_.source()[op.edge] < 0) return;
    // The value of a READ: one captured iteration hands it to another on the device, or a host has it in between.
    const PlanEdge& e = plan_.edges[op.edge];
    const int32_t write = index_.source()[op.edge];
    if (e.transport != v1::SHM) {
      mine.push_back(write);
      return;
    }
    const int32_t from = IsCaptured(plan_, e.src_worker) ? End(e.src_worker) : write;
    (captured ? (*needs)[Start(op.worker)] : mine).push_back(from);
  }

  std::string Name(int32_t node) const {
    if (node < ops_) return index_.Name(node);
    const std::string worker = WorkerName(plan_, (node - ops_) / 2);
    return (node - ops_) % 2 == 0 ? absl::StrCat("the start of ", worker, "'s iteration")
                                  : absl::StrCat("the end of ", worker, "'s iteration");
  }

  void Report(const Cycle& cycle, Problems* problems) const {
    std::string text =
        "an iteration of a GPU worker is launched as a whole, once all is there that it takes through hosts, and gives to hosts when "
        "it is done; in this circle it would be needed before it can start:";
    for (size_t i = 0; i < cycle.size(); ++i) {
      if (i == kMaxSteps) {
        absl::StrAppend(&text, "\n  and ", cycle.size() - i, " more");
        break;
      }
      absl::StrAppend(&text, "\n  ", Name(cycle[i].op), " needs ", Name(cycle[i].needs));
    }
    problems->Add(text, "\nGive one of these edges transport IPC or NCCL (between GPU workers), move the nodes between to GPU workers, ",
                  kRemedy);
  }

  const Plan& plan_;
  const PlanIndex index_;
  const int32_t ops_;
};

}  // namespace

absl::Status PrepareLaunch(Plan* plan) {
  if (!AnyCaptured(*plan)) return absl::OkStatus();
  for (PlanNode& n : plan->nodes) {
    const PlanActor& actor = plan->actors[n.actor];
    if (!IsCaptured(*plan, actor.worker)) {
      n.device_error = kFailsElsewhere;
      continue;
    }
    if (actor.cls == "std.Fail" && !n.config.on_device()) {
      n.config.set_on_device(true);
      n.device_error = kFailMessage;
    }
    if (n.device_error.empty()) n.device_error = kFailsOnHost;
  }
  Problems problems;
  CheckShapes(*plan, &problems);
  CheckTransports(*plan, &problems);
  return problems.ToStatus();
}

absl::Status EqualizeSlots(const MemoryLimits& limits, Plan* plan) {
  if (!AnyCaptured(*plan)) return absl::OkStatus();
  int32_t most = 1, fewest = 1;
  for (const PlanEdge& e : plan->edges) {
    if (!TouchesCaptured(*plan, e)) continue;
    most = std::max(most, e.slots);
    if (OfClient(e)) fewest = std::max(fewest, e.slots);
  }
  for (const PlanOp& op : plan->ops) {
    const bool has_slots = op.kind == v1::COMPUTE || op.kind == v1::COLLECTIVE;
    if (has_slots && IsCaptured(*plan, op.worker)) most = std::max(most, op.slots);
  }
  SetSlots(most, plan);
  if (!limits.Fits(*plan)) {
    // Bytes grow with the slots: the last that fit.
    int32_t fit = fewest - 1, too_many = most;
    while (too_many - fit > 1) {
      const int32_t middle = fit + (too_many - fit) / 2;
      SetSlots(middle, plan);
      (limits.Fits(*plan) ? fit : too_many) = middle;
    }
    if (fit < fewest) {
      SetSlots(fewest, plan);
      size_t w = 0;
      const auto over = [&](size_t i) { return limits.of(i) == 0 || plan->peak_bytes[i] <= limits.of(i) ? 0 : plan->peak_bytes[i] - limits.of(i); };
      for (size_t i = 1; i < plan->peak_bytes.size(); ++i) {
        if (over(i) > over(w)) w = i;
      }
      return absl::ResourceExhaustedError(absl::StrCat(
          "options.launch GRAPH gives all edges and ops of GPU workers the same number of buffers, here at least ", fewest,
          fewest > 1 ? " since edges of the client have as many" : "", ": ", plan->workers[w].name, " then needs ",
          FormatBytes(plan->peak_bytes[w]), " (", plan->peak_bytes[w], " bytes), ", limits.Allows(w), ": lower max_in_flight, raise the limit, use more workers or smaller tensors, ", kRemedy));
    }
    SetSlots(fit, plan);
  }
  for (PlanOp& op : plan->ops) {
    for (PlanWait& w : op.waits) {
      if (w.reason == v1::PlanWait::BUFFER) w.distance = op.slots;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLaunch(const Plan& plan) {
  if (!AnyCaptured(plan)) return absl::OkStatus();
  Findings findings;
  PlanIndex::Check(plan, &findings);
  if (!findings.empty()) return findings.ToStatus(absl::StatusCode::kInternal, plan.graph);
  return Launches(plan).Check();
}

}  // namespace weft
