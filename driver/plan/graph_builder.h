#pragma once

// Builds small graphs of std.Delay nodes for tests.

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/classes/signature.h"
#include "common/plan/plan_text.h"
#include "driver/graph/validate.h"
#include "driver/plan/compiler.h"
#include "driver/plan/verify.h"
#include "driver/simulate/simulator.h"

namespace weft {

class GraphBuilder {
 public:
  GraphBuilder() { g_.set_name("test"); }

  v1::Graph& graph() { return g_; }
  v1::Options& options() { return *g_.mutable_options(); }

  // A std.Delay actor whose calls take so long, on the worker of that name; "": automatic.
  GraphBuilder& Actor(const std::string& name, const std::string& worker, double seconds = 0) {
    v1::Actor* a = g_.add_actor();
    a->set_name(name);
    a->set_class_("std.Delay");
    a->set_worker(worker);
    a->mutable_config()->set_duration_s(seconds);
    return *this;
  }
  // A call that takes the first outputs of `args`: nodes; inputs as "<name"; collectives as "+name". F32[256], 1 KiB, without args.
  v1::Node& Node(const std::string& name, const std::string& actor, const std::vector<std::string>& args = {}) {
    v1::Node* n = g_.add_node();
    n->set_name(name);
    n->set_actor(actor);
    for (const std::string& arg : args) {
      v1::Arg* a = n->add_arg();
      if (arg[0] == '<') {
        a->set_input(arg.substr(1));
      } else if (arg[0] == '+') {
        a->set_collective(arg.substr(1));
      } else {
        a->set_node(arg);
      }
    }
    if (args.empty()) n->mutable_config()->set_shape("[256]");
    return *n;
  }
  v1::Edge& Edge(const std::string& from, const std::string& to) {
    v1::Edge* e = g_.add_edge();
    e->set_from(from);
    e->set_to(to);
    return *e;
  }
  v1::Edge& Comm(const std::string& from, const std::string& to) {
    v1::Edge& e = Edge(from, to);
    e.set_transport(v1::GLOO);
    return e;
  }
  GraphBuilder& Input(const std::string& name, const std::string& shape = "[256]") {
    v1::Input* in = g_.add_input();
    in->set_name(name);
    in->set_dtype(v1::F32);
    in->set_shape(shape);
    return *this;
  }
  GraphBuilder& Output(const std::string& name, const std::string& node) {
    v1::Output* out = g_.add_output();
    out->set_name(name);
    node[0] == '+' ? out->set_collective(node.substr(1)) : out->set_node(node);
    return *this;
  }
  v1::Collective& AllReduce(const std::string& name, const std::vector<std::string>& nodes) {
    v1::Collective* c = g_.add_collective();
    c->set_name(name);
    c->set_op(v1::ALL_REDUCE);
    c->set_reduce(v1::SUM);
    for (const std::string& n : nodes) c->add_member()->set_node(n);
    return *c;
  }

  ResolvedGraph Resolve() const {
    auto r = Validate(g_, ClassTable::Std());
    INFO(r.status().ToString());
    REQUIRE(r.ok());
    return *std::move(r);
  }
  // Workers named in the graph, on one host.
  absl::StatusOr<Plan> TryCompile() const { return Compile(g_, ClassTable::Std(), ClusterFromGraph(g_)); }
  Plan CompileOk() const { return CompileOk(ClusterFromGraph(g_)); }
  Plan CompileOk(const Cluster& cluster) const {
    auto plan = Compile(g_, ClassTable::Std(), cluster);
    INFO(plan.status().ToString());
    REQUIRE(plan.ok());
    return *std::move(plan);
  }

 private:
  v1::Graph g_;
};

// Workers w0, w1, ..., one for each host id; `device` for all.
inline Cluster TestCluster(const std::vector<std::string>& hosts, const std::string& device = "cpu") {
  Cluster c;
  c.client_host_id = "h0";
  for (const std::string& host : hosts) c.workers.push_back({absl::StrCat("w", c.workers.size()), host, device});
  return c;
}

inline bool Contains(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

// The op of that name ("COMPUTE a"), which must exist; on the worker, when it is given.
inline const PlanOp& OpNamed(const Plan& plan, const std::string& name, int32_t worker = -1) {
  const PlanOp* found = nullptr;
  for (const PlanOp& op : plan.ops) {
    if (OpName(plan, op) == name && (worker < 0 || op.worker == worker)) found = &op;
  }
  INFO(name);
  REQUIRE(found != nullptr);
  return *found;
}

// "data:COMPUTE a buffer:SEND a:0 -> b:0@2": waits of an op, in their order.
inline std::string WaitsOf(const Plan& plan, const PlanOp& op) {
  return absl::StrJoin(op.waits, ", ", [&](std::string* out, const PlanWait& w) {
    absl::StrAppend(out, v1::PlanWait::Reason_Name(w.reason), " ", OpName(plan, plan.ops[w.op]));
    if (w.distance != 0) absl::StrAppend(out, " @", w.distance);
  });
}

// Verifies and simulates the plan to the end with 1 and with 4 executions in flight.
inline void MustRun(const Plan& plan) {
  const absl::Status verified = Verify(plan);
  INFO(verified.ToString());
  REQUIRE(verified.ok());
  for (const int in_flight : {1, 4}) {
    SimOptions options;
    options.executions = 10;
    options.in_flight = in_flight;
    const auto result = Simulate(plan, CostModel::Default(), options);
    INFO(result.status().ToString());
    REQUIRE(result.ok());
    REQUIRE(result->events.size() == 10 * plan.ops.size());
  }
}

// Seconds per execution.
inline double PredictSeconds(const Plan& plan, int executions, int in_flight) {
  SimOptions options;
  options.executions = executions;
  options.in_flight = in_flight;
  const auto result = Simulate(plan, CostModel::Default(), options);
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  return result->seconds_per_execution;
}

}  // namespace weft
