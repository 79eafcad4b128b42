#include "driver/plan/compiler.h"

#include <algorithm>
#include <optional>
#include <cctype>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/plan/plan_text.h"
#include "driver/graph/validate.h"
#include "driver/plan/broadcasts.h"
#include "driver/plan/buckets.h"
#include "driver/plan/cost_order.h"
#include "driver/plan/emit.h"
#include "driver/plan/launch.h"
#include "driver/plan/lower.h"
#include "driver/plan/memory.h"
#include "driver/plan/order.h"
#include "driver/plan/overlap.h"
#include "driver/plan/place.h"
#include "driver/plan/same_parts.h"
#include "driver/plan/transport.h"
#include "driver/plan/verify.h"
#include "driver/simulate/simulator.h"

namespace weft {
namespace {

// Most op runs that one prediction may take.
constexpr int64_t kMaxPredictedOps = 20'000'000;
// Most op runs for which two orders are compared, and most ops of a plan of which that is done.
constexpr int64_t kMaxComparedRuns = 500'000;
// Bounds of the search for an order, so that it takes some seconds at most: orders tried, op runs simulated for them; beyond so many ops only
// one is tried.
constexpr int64_t kMaxTriedOrders = 300;
constexpr int64_t kMaxSearchedRuns = 10'000'000;
constexpr int64_t kMaxSearchedOps = 200'000;

// Adds each stretch of time to its pass; a pass that runs several times is listed once.
class Stopwatch {
 public:
  explicit Stopwatch(CompileTimes* times) : times_(times), last_(Clock::Real()->Now()) {}

  void Done(const char* pass) {
    const Nanos now = Clock::Real()->Now();
    const double s = ToSeconds(now - std::exchange(last_, now));
    if (times_ == nullptr) return;
    for (auto& [name, total] : times_->passes) {
      if (name != pass) continue;
      total += s;
      return;
    }
    times_->passes.emplace_back(pass, s);
  }

 private:
  CompileTimes* const times_;
  Nanos last_;
};

// Ops that the plan will have, so that one that is too large is refused before it is built.
int64_t CountOps(const ResolvedGraph& graph, const Edges& edges) {
  int64_t ops = static_cast<int64_t>(graph.nodes.size());
  for (const PlanEdge& e : edges.edges) ops += (e.src_worker != kClient) + (e.dst_worker != kClient);
  for (const ResolvedCollective& c : graph.collectives) ops += static_cast<int64_t>(c.members.size());
  return ops;
}

// A status word lies behind a buffer of planned size.
absl::Status CheckDeviceErrors(const Plan& plan) {
  const auto node = std::find_if(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return !n.device_error.empty(); });
  if (node == plan.nodes.end()) return absl::OkStatus();
  for (const PlanOp& op : plan.ops) {
    if (plan.workers[op.worker].device != "cuda") continue;
    bool dynamic = op.edge >= 0 && plan.edges[op.edge].spec.shape.HasDynamic();
    if (op.kind == v1::COMPUTE) {
      for (const Spec& spec : plan.nodes[op.node].outputs) dynamic |= spec.shape.HasDynamic();
    }
    if (!dynamic) continue;
    return absl::InvalidArgumentError(absl::StrCat("node ", node->name, " may fail on its GPU, which a value tells by a word behind its buffer; ",
                                                   OpName(plan, op), " on ", WorkerName(plan, op.worker),
                                                   " has a \"?\" dimension and so no planned buffer: declare it \"?<=n\""));
  }
  return absl::OkStatus();
}

// NCCL joins GPUs and Gloo host memory; nothing joins both.
absl::Status CheckGroups(const Plan& plan) {
  for (const PlanGroup& g : plan.groups) {
    if (g.transport == v1::NCCL) continue;
    for (size_t i = 0; i < g.members.size(); ++i) {
      if (plan.workers[g.members[i]].device != "cuda") continue;
      return absl::InvalidArgumentError(absl::StrCat("collective ", g.name, ": member ", g.member_nodes[i], " is on ",
                                                     plan.workers[g.members[i]].name, ", a GPU worker, and others are on CPU workers: put all "
                                                     "members on workers of one kind"));
    }
  }
  return absl::OkStatus();
}

// What all plans of one choice have in common.
struct Base {
  const ResolvedGraph& graph;
  const Placement& placement;
  const Cluster& cluster;
  v1::Overlap auto_as = v1::ON;
  Edges edges;
};

absl::StatusOr<Base> Prepare(const ResolvedGraph& graph, const Placement& placement, const Cluster& cluster, v1::Overlap auto_as,
                             Stopwatch* watch) {
  WEFT_ASSIGN_OR_RETURN(Edges edges, ChooseTransports(graph, placement, cluster, auto_as));
  watch->Done("transport");
  const int64_t ops = CountOps(graph, edges);
  if (ops > kMaxOps) {
    return absl::ResourceExhaustedError(absl::StrCat("the plan would have ", ops, " ops, at most ", kMaxOps,
                                                     " are possible: split the graph, or let nodes do more"));
  }
  return Base{graph, placement, cluster, auto_as, std::move(edges)};
}

absl::StatusOr<Plan> PlanOf(const Base& base, const std::vector<Step>& steps, Stopwatch* watch) {
  Plan plan = EmitPlan(base.graph, base.cluster, base.placement, base.edges, steps);
  WEFT_RETURN_IF_ERROR(PrepareLaunch(&plan));
  WEFT_RETURN_IF_ERROR(CheckDeviceErrors(plan));
  WEFT_RETURN_IF_ERROR(CheckGroups(plan));
  watch->Done("emit");
  const v1::Overlap overlap = base.graph.options.overlap() == v1::AUTO ? base.auto_as : base.graph.options.overlap();
  const MemoryLimits limits(plan.options, base.cluster);
  AddOverlapWaits(base.edges.info, overlap != v1::OFF, &plan);
  watch->Done("overlap");
  WEFT_RETURN_IF_ERROR(PlanMemory(base.edges.info, overlap != v1::OFF, limits, &plan));
  watch->Done("memory");
  WEFT_RETURN_IF_ERROR(EqualizeSlots(limits, &plan));
  WEFT_RETURN_IF_ERROR(CheckLaunch(plan));
  watch->Done("launch");
  return plan;
}

// Everything but hash and proof. An empty order is that of the file. Receives stand ahead of their consumers as far as they may be prefetched.
absl::StatusOr<Plan> Draft(const Base& base, const NodeOrder& order, Stopwatch* watch) {
  const Program program = Lower(base.graph, base.placement, base.edges, static_cast<int32_t>(base.cluster.workers.size()), order);
  watch->Done("lower");
  WEFT_ASSIGN_OR_RETURN(const std::vector<Step> steps, OrderSteps(program));
  watch->Done("order");
  return PlanOf(base, steps, watch);
}

bool AnyTime(const Plan& plan, const CostModel& costs) {
  const auto any = [&](const auto& list, const auto& f) {
    return f != nullptr && std::any_of(list.begin(), list.end(), [&](const auto& x) { return f(plan, x) != 0; });
  };
  return any(plan.nodes, costs.compute) || any(plan.edges, costs.transfer) || any(plan.groups, costs.collective) || any(plan.edges, costs.latency) ||
         any(plan.edges, costs.read);
}

// The end of each of some executions, first to last.
absl::StatusOr<std::vector<Nanos>> Ends(const Plan& plan, const CostModel& costs) {
  SimOptions options;
  options.record = false;
  const int64_t ops = std::max<int64_t>(1, static_cast<int64_t>(plan.ops.size()));
  options.executions = std::clamp<int64_t>(kMaxComparedRuns / ops, 1, 2 * plan.options.max_in_flight() + 4);
  WEFT_ASSIGN_OR_RETURN(SimResult result, Simulate(plan, costs, options));
  return std::move(result.execution_end);
}

// As Draft, but receives stand ahead only if no execution then ends later than with each receive at its consumer. A queue that is moved can
// be slower by any amount, since what was moved up may come late and hold up what would have been there; the same queues with fewer waits
// and more buffers cannot. So a graph with overlap is never slower than without it, as far as its costs are known. Where comparing would take
// too long, nothing is moved.
absl::StatusOr<Plan> DraftAhead(const Base& base, const NodeOrder& order, const CostModel& costs, Stopwatch* watch) {
  Program program = Lower(base.graph, base.placement, base.edges, static_cast<int32_t>(base.cluster.workers.size()), order);
  watch->Done("lower");
  WEFT_ASSIGN_OR_RETURN(std::vector<Step> steps, OrderSteps(program));
  watch->Done("order");
  WEFT_ASSIGN_OR_RETURN(Plan ahead, PlanOf(base, steps, watch));
  const bool moves = std::any_of(program.transfers.begin(), program.transfers.end(), [](const Transfer& t) { return t.depth > 0; });
  if (!moves || !AnyTime(ahead, costs)) return ahead;
  for (Transfer& t : program.transfers) t.depth = 0;
  WEFT_ASSIGN_OR_RETURN(const std::vector<Step> plain_steps, OrderSteps(program));
  watch->Done("order");
  if (plain_steps == steps) return ahead;
  WEFT_ASSIGN_OR_RETURN(Plan plain, PlanOf(base, plain_steps, watch));
  if (static_cast<int64_t>(ahead.ops.size()) > kMaxComparedRuns) return plain;
  WEFT_ASSIGN_OR_RETURN(const std::vector<Nanos> ends, Ends(ahead, costs));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Nanos> plain_ends, Ends(plain, costs));
  watch->Done("predict");
  for (size_t k = 0; k < ends.size(); ++k) {
    if (ends[k] > plain_ends[k]) return plain;
  }
  return ahead;
}

absl::StatusOr<Plan> Finish(Plan plan, Stopwatch* watch) {
  plan.hash = HashPlan(plan);
  watch->Done("hash");
  if (const absl::Status status = Verify(plan); !status.ok()) {
    return absl::InternalError(absl::StrCat("a pass of the compiler made a wrong plan, please report this graph:\n",
                                            std::string(status.message())));
  }
  watch->Done("verify");
  return plan;
}

// Whether some edge says `broadcast: true`.
bool WantsBroadcasts(const ResolvedGraph& graph) {
  return std::any_of(graph.overrides.begin(), graph.overrides.end(), [](const EdgeOverride& o) { return o.edge.broadcast(); });
}

// Whether the costs say of some transfer over a communicator that it takes time: else nothing can be gained by doing several at once.
bool SendsTakeTime(const Base& base, const CostModel& costs) {
  const auto sent = [](const PlanEdge& e) { return e.transport == v1::GLOO || e.transport == v1::NCCL; };
  if (!costs.transfer || std::none_of(base.edges.edges.begin(), base.edges.edges.end(), sent)) return false;
  const Plan parts = EmitPlan(base.graph, base.cluster, base.placement, base.edges, {});
  return std::any_of(parts.edges.begin(), parts.edges.end(), [&](const PlanEdge& e) { return sent(e) && costs.transfer(parts, e) > 0; });
}

bool HasAuto(const ResolvedGraph& graph) {
  if (graph.options.overlap() == v1::AUTO) return true;
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const ResolvedNode& n) { return n.overlap == v1::AUTO; }) ||
         std::any_of(graph.overrides.begin(), graph.overrides.end(), [](const EdgeOverride& o) { return o.edge.overlap() == v1::AUTO; });
}

// Seconds per execution with as many in flight as the options allow, and the end of the first execution.
absl::StatusOr<OrderScore> Predict(const Plan& plan, const CostModel& costs) {
  SimOptions options;
  options.record = false;
  const int64_t affordable = kMaxPredictedOps / std::max<int64_t>(1, static_cast<int64_t>(plan.ops.size()));
  options.executions = std::clamp<int64_t>(affordable, 2, 2 * plan.options.max_in_flight() + 4);
  WEFT_ASSIGN_OR_RETURN(const SimResult result, Simulate(plan, costs, options));
  return OrderScore(result.seconds_per_execution, result.done.front());
}

// Whether broadcasts pay, with everything that may overlap doing so: decided in one way for overlap on and off, so that the two plans of a graph are lowered
// alike and the one with overlap is never the slower.
absl::StatusOr<bool> BroadcastsPay(const ResolvedGraph& sends, const Placement& sends_at, const ResolvedGraph& broadcasts,
                                   const Placement& broadcasts_at, const Cluster& cluster, const CostModel& costs, Stopwatch* watch) {
  const auto score = [&](ResolvedGraph graph, const Placement& at) -> absl::StatusOr<OrderScore> {
    graph.options.set_overlap(v1::ON);
    WEFT_ASSIGN_OR_RETURN(const Base base, Prepare(graph, at, cluster, v1::ON, watch));
    WEFT_ASSIGN_OR_RETURN(const Plan plan, DraftAhead(base, {}, costs, watch));
    return Predict(plan, costs);
  };
  const absl::StatusOr<OrderScore> with = score(broadcasts, broadcasts_at);
  if (!with.ok()) return false;
  const absl::StatusOr<OrderScore> without = score(sends, sends_at);
  watch->Done("predict");
  return !without.ok() || *with < *without;
}

// The fastest order that the search finds within its bounds.
absl::StatusOr<NodeOrder> FindOrder(const Base& base, const CostModel& costs, Stopwatch* watch) {
  const Plan parts = EmitPlan(base.graph, base.cluster, base.placement, base.edges, {});
  const TaskCosts tasks = CollectTaskCosts(base.graph, base.placement, base.edges, parts, costs);
  const int64_t ops = std::max<int64_t>(1, CountOps(base.graph, base.edges));
  const int64_t runs = ops * (2 * static_cast<int64_t>(base.graph.options.max_in_flight()) + 4);
  const auto judge = [&](const NodeOrder& order) -> absl::StatusOr<OrderScore> {
    Stopwatch untimed(nullptr);
    WEFT_ASSIGN_OR_RETURN(const Plan plan, Draft(base, order, &untimed));
    return Predict(plan, costs);
  };
  absl::StatusOr<FoundOrder> found = SearchOrder(tasks, judge, ops > kMaxSearchedOps ? 1 : std::min(kMaxTriedOrders, kMaxSearchedRuns / runs));
  watch->Done("search");
  if (!found.ok()) return found.status();
  return std::move(found->order);
}

// "w9" before "w10".
bool NaturallyLess(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!std::isdigit(static_cast<unsigned char>(a[i])) || !std::isdigit(static_cast<unsigned char>(b[j]))) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    const auto digits = [](const std::string& s, size_t from) {
      size_t to = from;
      while (to < s.size() && std::isdigit(static_cast<unsigned char>(s[to]))) ++to;
      while (from + 1 < to && s[from] == '0') ++from;
      return s.substr(from, to - from);
    };
    const std::string x = digits(a, i), y = digits(b, j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
    while (i < a.size() && std::isdigit(static_cast<unsigned char>(a[i]))) ++i;
    while (j < b.size() && std::isdigit(static_cast<unsigned char>(b[j]))) ++j;
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;
}

}  // namespace

Cluster ClusterFromGraph(const v1::Graph& graph) {
  std::vector<std::string> names;
  std::unordered_set<std::string> seen;
  for (const v1::Actor& actor : graph.actor()) {
    if (!actor.worker().empty() && seen.insert(actor.worker()).second) names.push_back(actor.worker());
  }
  if (names.empty()) names.push_back("w0");
  std::sort(names.begin(), names.end(), NaturallyLess);
  Cluster cluster;
  cluster.client_host_id = "local";
  for (std::string& name : names) cluster.workers.push_back({std::move(name), cluster.client_host_id, "cpu"});
  return cluster;
}

absl::StatusOr<Plan> Compile(const v1::Graph& graph, const ClassTable& classes, const Cluster& cluster, CompileTimes* times,
                             const CostModel& costs, const Plan* running) {
  if (times != nullptr) times->passes.clear();
  Stopwatch watch(times);
  WEFT_ASSIGN_OR_RETURN(ResolvedGraph resolved, Validate(graph, classes));
  watch.Done("validate");
  if (cluster.workers.size() > static_cast<size_t>(kMaxWorkers)) {
    return absl::InvalidArgumentError(absl::StrCat("the cluster has ", cluster.workers.size(), " workers: at most ", kMaxWorkers));
  }
  WEFT_ASSIGN_OR_RETURN(Placement placement, Place(resolved, cluster));
  watch.Done("place");
  if (std::optional<ResolvedGraph> fused = FuseCollectives(resolved, placement, cluster); fused.has_value()) {
    resolved = *std::move(fused);
    WEFT_ASSIGN_OR_RETURN(placement, Place(resolved, cluster));
    watch.Done("buckets");
  }

  if (WantsBroadcasts(resolved)) {
    WEFT_ASSIGN_OR_RETURN(const Edges edges, ChooseTransports(resolved, placement, cluster, v1::ON));
    if (std::optional<ResolvedGraph> lowered = LowerBroadcasts(resolved, placement, cluster, edges, /*forced=*/true); lowered.has_value()) {
      resolved = *std::move(lowered);
      WEFT_ASSIGN_OR_RETURN(placement, Place(resolved, cluster));
      watch.Done("broadcasts");
    }
  }

  const bool by_cost = resolved.options.order() == v1::COST, automatic = HasAuto(resolved);
  // The first is what holds when nothing is to be gained.
  absl::StatusOr<Plan> best = absl::InternalError("no choice was made");
  OrderScore best_score;
  const auto consider = [&](absl::StatusOr<Plan> p) -> absl::Status {
    if (!p.ok()) {
      // The order of the file need not be possible where order is free, and what overlaps may not fit the memory.
      if (!best.ok()) best = std::move(p);
      return absl::OkStatus();
    }
    if (running != nullptr && !OnlyOrderDiffers(*p, *running)) {
      if (!best.ok()) {
        best = absl::FailedPreconditionError("every plan by these costs would change more than the order of the running one: tear the graph down and "
                                             "compile it again");
      }
      return absl::OkStatus();
    }
    WEFT_ASSIGN_OR_RETURN(const OrderScore score, Predict(*p, costs));
    watch.Done("predict");
    if (best.ok() && score >= best_score) return absl::OkStatus();
    best = std::move(p);
    best_score = score;
    return absl::OkStatus();
  };
  // With broadcasts in the place of several sends, where that could be cheaper.
  std::optional<ResolvedGraph> broadcasting;
  std::optional<Placement> broadcasting_placement;
  for (const bool broadcasts : {false, true}) {
    if (broadcasts && !broadcasting.has_value()) break;
    const ResolvedGraph& of = broadcasts ? *broadcasting : resolved;
    const Placement& at = broadcasts ? *broadcasting_placement : placement;
    for (const v1::Overlap auto_as : {v1::ON, v1::OFF}) {
      if (auto_as == v1::OFF && !automatic) continue;
      WEFT_ASSIGN_OR_RETURN(const Base base, Prepare(of, at, cluster, auto_as, &watch));
      if (!broadcasts && auto_as == v1::ON && SendsTakeTime(base, costs)) {
        broadcasting = LowerBroadcasts(resolved, placement, cluster, base.edges, /*forced=*/false);
        bool pay = false;
        if (broadcasting.has_value()) {
          WEFT_ASSIGN_OR_RETURN(broadcasting_placement, Place(*broadcasting, cluster));
          // What runs has them or has not; only plans that do the same can take its place.
          if (running == nullptr) {
            WEFT_ASSIGN_OR_RETURN(pay, BroadcastsPay(resolved, placement, *broadcasting, *broadcasting_placement, cluster, costs, &watch));
            if (!pay) broadcasting.reset();
          }
        }
        watch.Done("broadcasts");
        if (pay) break;
      }
      absl::StatusOr<Plan> plan = DraftAhead(base, {}, costs, &watch);
      if (!by_cost && !automatic && running == nullptr && !broadcasting.has_value()) {
        if (!plan.ok()) return plan;
        return Finish(*std::move(plan), &watch);
      }
      WEFT_RETURN_IF_ERROR(consider(std::move(plan)));
      if (!by_cost) continue;
      absl::StatusOr<NodeOrder> order = FindOrder(base, costs, &watch);
      WEFT_RETURN_IF_ERROR(consider(order.ok() ? DraftAhead(base, *order, costs, &watch) : absl::StatusOr<Plan>(order.status())));
    }
  }
  if (!best.ok()) return best;
  return Finish(*std::move(best), &watch);
}

}  // namespace weft
