#pragma once

// Builds plans by hand for tests, op after op in the global order, and damages them.

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/plan/plan.h"

namespace weft {

inline Spec TestSpec(DType dtype = v1::F32, Dims dims = {4}) { return Spec{dtype, Shape::Of(dims)}; }

class TestPlan {
 public:
  struct EdgeOptions {
    int32_t slots = 2;
    bool rendezvous = true;
    double seconds = 0;  // an emulated link's latency
    v1::Transport transport = v1::SHM;
    int32_t lane = 0;  // of both ends
  };
  struct Ends {
    int32_t out, in;
  };

  explicit TestPlan(int32_t workers) {
    plan_.graph = "test";
    plan_.options.set_max_in_flight(4);
    for (int32_t w = 0; w < workers; ++w) {
      plan_.workers.push_back({absl::StrCat("w", w), "host", "cpu"});
      plan_.actors.push_back({w, absl::StrCat("actor", w), "std.Delay", w, {}});
    }
  }

  Plan& plan() { return plan_; }
  PlanOp& op(int32_t i) { return plan_.ops[i]; }

  // A call of the worker's actor that takes so long. Args are ops whose output 0 is meant, or values.
  int32_t Compute(const std::string& name, int32_t worker, std::vector<PlanValue> args = {}, double seconds = 0, int32_t slots = 2,
                  std::vector<Spec> outputs = {TestSpec()}) {
    PlanNode node{static_cast<int32_t>(plan_.nodes.size()), name, worker, "run", {}, std::move(outputs)};
    node.config.set_duration_s(seconds);
    PlanOp& o = NewOp(v1::COMPUTE, v1::LANE_COMPUTE, worker, std::move(args));
    o.node = node.id;
    o.slots = slots;
    plan_.nodes.push_back(std::move(node));
    for (size_t a = 0; a < o.args.size(); ++a) {
      const int32_t e = plan_.ops[o.args[a].op].edge;
      if (e < 0 || !plan_.edges[e].dst.empty()) continue;
      plan_.edges[e].dst = name;
      plan_.edges[e].dst_arg = static_cast<int32_t>(a);
    }
    return o.id;
  }
  static PlanValue V(int32_t op, int32_t output = 0) { return {op, output}; }

  // Declares an edge for a value; then Out and In, or both at once by Transfer.
  int32_t Edge(PlanValue value, int32_t to, EdgeOptions options) {
    PlanEdge e;
    e.id = static_cast<int32_t>(plan_.edges.size());
    e.src_worker = plan_.ops[value.op].worker;
    e.dst_worker = to;
    e.src = plan_.ops[value.op].node >= 0 ? plan_.nodes[plan_.ops[value.op].node].name : "value";
    e.src_output = value.output;
    e.transport = options.transport;
    e.spec = SpecOf(value);
    e.bytes = e.spec.MaxBytes();
    e.slots = options.slots;
    e.rendezvous = options.rendezvous;
    e.emulated = options.rendezvous && options.transport == v1::SHM;
    e.emulate_latency_s = e.emulated ? options.seconds : 0;
    plan_.edges.push_back(e);
    lane_.push_back(options.lane);
    return e.id;
  }
  int32_t Out(int32_t edge, PlanValue value) {
    PlanOp& o = NewOp(plan_.edges[edge].rendezvous ? v1::SEND : v1::WRITE, v1::LANE_SEND, plan_.edges[edge].src_worker, {value});
    o.edge = edge;
    o.lane_index = lane_[edge];
    return o.id;
  }
  int32_t In(int32_t edge) {
    PlanOp& o = NewOp(plan_.edges[edge].rendezvous ? v1::RECV : v1::READ, v1::LANE_RECV, plan_.edges[edge].dst_worker, {});
    o.edge = edge;
    o.slots = plan_.edges[edge].slots;
    o.lane_index = lane_[edge];
    return o.id;
  }
  Ends Transfer(PlanValue value, int32_t to, EdgeOptions options) {
    const int32_t e = Edge(value, to, options);
    const int32_t out = Out(e, value);
    return {out, In(e)};
  }
  Ends Transfer(int32_t op, int32_t to, EdgeOptions options) { return Transfer(V(op), to, options); }

  // A buffered control edge: `dst` is built later and must wait for .in (CONTROL).
  Ends Control(int32_t from, int32_t to, const std::string& dst) {
    const int32_t e = Edge(V(from), to, {1, false});
    plan_.edges[e].control = true;
    plan_.edges[e].spec = TestSpec(v1::U8, {0});
    plan_.edges[e].bytes = 0;
    plan_.edges[e].dst = dst;
    const int32_t out = Out(e, V(from));
    op(out).args.clear();
    op(out).waits = {{from, 0, v1::PlanWait::CONTROL}};
    return {out, In(e)};
  }
  // Reads a graph input; writes a graph output.
  int32_t Input(int32_t worker, const std::string& name) {
    PlanEdge e;
    e.id = static_cast<int32_t>(plan_.edges.size());
    e.dst_worker = worker;
    e.src = name;
    e.transport = v1::SHM;
    e.spec = TestSpec();
    e.bytes = e.spec.MaxBytes();
    e.slots = 2;
    plan_.edges.push_back(e);
    lane_.push_back(0);
    return In(e.id);
  }
  int32_t Output(PlanValue value, const std::string& name) {
    const int32_t e = Edge(value, kClient, {2, false});
    plan_.edges[e].dst = name;
    return Out(e, value);
  }

  // ALL_REDUCE of one value a worker.
  std::vector<int32_t> Reduce(const std::string& name, const std::vector<int32_t>& values) {
    PlanGroup g;
    g.id = static_cast<int32_t>(plan_.groups.size());
    g.name = name;
    g.input = g.output = TestSpec();
    for (const int32_t v : values) {
      g.members.push_back(op(v).worker);
      g.member_nodes.push_back("member");
    }
    plan_.groups.push_back(g);
    std::vector<int32_t> ids;
    for (const int32_t v : values) {
      PlanOp& o = NewOp(v1::COLLECTIVE, v1::LANE_COLLECTIVE, op(v).worker, {V(v)});
      o.group = g.id;
      o.slots = 2;
      ids.push_back(o.id);
    }
    return ids;
  }

  void Wait(int32_t op, int32_t on, int32_t distance, WaitReason reason) { plan_.ops[op].waits.push_back({on, distance, reason}); }

  // Every op waits for the op before it in its worker's list, the first for the last of the execution before: nothing overlaps.
  void NoOverlap() {
    std::vector<int32_t> first(plan_.workers.size(), -1), last(plan_.workers.size(), -1);
    for (PlanOp& o : plan_.ops) {
      if (last[o.worker] >= 0) o.waits.push_back({last[o.worker], 0, v1::PlanWait::NO_OVERLAP});
      if (first[o.worker] < 0) first[o.worker] = o.id;
      last[o.worker] = o.id;
    }
    for (size_t w = 0; w < first.size(); ++w) {
      if (first[w] >= 0) Wait(first[w], last[w], 1, v1::PlanWait::NO_OVERLAP);
    }
  }

  // Adds BUFFER waits for all takers of values that are not on their producer's lane, and the stated bytes.
  Plan Finish() {
    for (PlanOp& o : plan_.ops) {
      for (const PlanValue& v : o.args) {
        PlanOp& from = plan_.ops[v.op];
        if (from.kind == v1::READ || from.lane == o.lane) continue;
        const PlanWait wait{o.id, from.slots, v1::PlanWait::BUFFER};
        if (std::find(from.waits.begin(), from.waits.end(), wait) == from.waits.end()) from.waits.push_back(wait);
      }
    }
    SetBytes(&plan_);
    return plan_;
  }

  static void SetBytes(Plan* plan) {
    plan->peak_bytes.assign(plan->workers.size(), 0);
    for (const PlanOp& o : plan->ops) {
      uint64_t bytes = 0;
      if (o.kind == v1::COMPUTE) {
        for (const Spec& s : plan->nodes[o.node].outputs) bytes += s.MaxBytes() * o.slots;
      } else if (o.kind == v1::COLLECTIVE) {
        bytes = plan->groups[o.group].output.MaxBytes() * o.slots;
      } else if (o.kind != v1::SEND) {
        // Memory that both ends share is its writer's.
        const PlanEdge& e = plan->edges[o.edge];
        if (o.kind == (e.rendezvous ? v1::RECV : e.transport == v1::REMOTE ? v1::READ : v1::WRITE)) bytes = e.bytes * e.slots;
      }
      plan->peak_bytes[o.worker] += bytes;
    }
  }

 private:
  PlanOp& NewOp(OpKind kind, LaneKind lane, int32_t worker, std::vector<PlanValue> args) {
    PlanOp o;
    o.id = static_cast<int32_t>(plan_.ops.size());
    o.kind = kind;
    o.lane = lane;
    o.worker = worker;
    for (const PlanValue& v : args) {
      const PlanWait wait{v.op, 0, v1::PlanWait::DATA};
      if (std::find(o.waits.begin(), o.waits.end(), wait) == o.waits.end()) o.waits.push_back(wait);
    }
    o.args = std::move(args);
    plan_.ops.push_back(std::move(o));
    return plan_.ops.back();
  }

  Spec SpecOf(const PlanValue& v) const {
    const PlanOp& o = plan_.ops[v.op];
    if (o.kind == v1::COMPUTE) return plan_.nodes[o.node].outputs[v.output];
    if (o.kind == v1::COLLECTIVE) return plan_.groups[o.group].output;
    return plan_.edges[o.edge].spec;
  }

  Plan plan_;
  std::vector<int32_t> lane_;  // by edge
};

// The plan with its ops in another order: the op at new place i is the old op order[i]. Old ops that are left out vanish, with the waits
// on them; those named twice are doubled.
inline Plan Reordered(const Plan& plan, const std::vector<int32_t>& order) {
  std::vector<int32_t> to(plan.ops.size(), -1);
  for (size_t i = 0; i < order.size(); ++i) {
    if (to[order[i]] < 0) to[order[i]] = static_cast<int32_t>(i);
  }
  Plan out = plan;
  out.ops.clear();
  for (size_t i = 0; i < order.size(); ++i) {
    PlanOp o = plan.ops[order[i]];
    o.id = static_cast<int32_t>(i);
    for (PlanValue& v : o.args) v.op = to[v.op];
    for (PlanWait& w : o.waits) w.op = to[w.op];
    o.waits.erase(std::remove_if(o.waits.begin(), o.waits.end(), [](const PlanWait& w) { return w.op < 0; }), o.waits.end());
    o.args.erase(std::remove_if(o.args.begin(), o.args.end(), [](const PlanValue& v) { return v.op < 0; }), o.args.end());
    out.ops.push_back(std::move(o));
  }
  return out;
}

inline std::vector<int32_t> SameOrder(const Plan& plan) {
  std::vector<int32_t> order(plan.ops.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  return order;
}

// Sets a few fields of a few things to whatever comes, in range or not.
inline void Scramble(std::mt19937* rng, Plan* plan) {
  const auto below = [&](size_t n) { return static_cast<int32_t>((*rng)() % n); };
  const auto any = [&](int32_t n) -> int32_t {
    switch (below(8)) {
      case 0:
        return static_cast<int32_t>((*rng)());
      case 1:
        return -1;
      case 2:
        return n;
      default:
        return below(n + 1);
    }
  };
  using Hit = std::function<void(PlanOp&, PlanEdge&, PlanGroup&)>;
  const int32_t n = static_cast<int32_t>(plan->ops.size());
  const std::vector<Hit> hits = {
      [&](auto& o, auto&, auto&) { o.worker = any(3); },
      [&](auto& o, auto&, auto&) { o.kind = static_cast<OpKind>(any(6)); },
      [&](auto& o, auto&, auto&) { o.lane = static_cast<LaneKind>(any(5)); },
      [&](auto& o, auto&, auto&) { o.lane_index = any(2); },
      [&](auto& o, auto&, auto&) { o.node = any(6); },
      [&](auto& o, auto&, auto&) { o.edge = any(6); },
      [&](auto& o, auto&, auto&) { o.group = any(2); },
      [&](auto& o, auto&, auto&) { o.slots = any(3); },
      [&](auto& o, auto&, auto&) { o.args.push_back({any(n), any(2)}); },
      [&](auto& o, auto&, auto&) { o.args.clear(); },
      [&](auto& o, auto&, auto&) { o.waits.push_back({any(n), any(2), static_cast<WaitReason>(any(5))}); },
      [&](auto& o, auto&, auto&) { o.waits.clear(); },
      [&](auto& o, auto&, auto&) { std::swap(o, plan->ops[below(plan->ops.size())]); },
      [&](auto& o, auto&, auto&) { plan->ops.push_back(PlanOp(o)); },
      [&](auto&, auto& e, auto&) { e.src_worker = any(3); },
      [&](auto&, auto& e, auto&) { e.dst_worker = any(3); },
      [&](auto&, auto& e, auto&) { e.slots = any(3); },
      [&](auto&, auto& e, auto&) { e.rendezvous = !e.rendezvous; },
      [&](auto&, auto& e, auto&) { e.control = !e.control; },
      [&](auto&, auto& e, auto&) { e.src_output = any(3); },
      [&](auto&, auto& e, auto&) { e.dst_arg = any(3); },
      [&](auto&, auto& e, auto&) { e.transport = static_cast<v1::Transport>(any(6)); },
      [&](auto&, auto& e, auto&) {
        const Dim dim{static_cast<Dim::Kind>(below(3)), static_cast<int64_t>((*rng)()) << below(33)};
        e.spec.shape.dims.assign(below(12), dim);
      },
      [&](auto&, auto&, auto& g) { g.members.assign(below(5), any(3)); },
      [&](auto&, auto&, auto& g) { g.root_rank = any(2); },
      [&](auto&, auto&, auto&) { plan->nodes[below(plan->nodes.size())].actor = any(3); },
      [&](auto&, auto&, auto&) { plan->workers.resize(below(4)); },
  };
  for (int h = 1 + below(6); h > 0; --h) {
    PlanOp& o = plan->ops[below(plan->ops.size())];
    hits[below(hits.size())](o, plan->edges[below(plan->edges.size())], plan->groups[below(plan->groups.size())]);
  }
}

}  // namespace weft
