#pragma once

// Hand-built parts of plans for tests of the loop.

#include <string>
#include <utility>
#include <vector>

#include "common/plan/plan.h"

namespace weft {

class TestPlan {
 public:
  explicit TestPlan(std::vector<std::string> workers, int part_of = 0) {
    plan.graph = "g";
    plan.hash = "00000000000000aa";
    plan.part_of = part_of;
    for (std::string& w : workers) plan.workers.push_back({std::move(w), "h", "cpu"});
  }

  static Spec F32Spec(const std::string& shape) { return {v1::F32, *Shape::Parse(shape)}; }

  int Actor(const std::string& cls) {
    PlanActor a;
    a.id = static_cast<int>(plan.actors.size());
    a.name = "a" + std::to_string(a.id);
    a.cls = cls;
    a.worker = plan.part_of;
    plan.actors.push_back(a);
    return a.id;
  }

  // A COMPUTE of a new node; returns the op's id. DATA waits come with the args.
  int Compute(const std::string& name, int actor, const std::string& method, std::vector<PlanValue> args, int slots = 2,
              std::vector<Spec> outputs = {F32Spec("[2]")}) {
    PlanNode n;
    n.id = static_cast<int>(plan.nodes.size());
    n.name = name;
    n.actor = actor;
    n.method = method;
    n.outputs = std::move(outputs);
    plan.nodes.push_back(n);
    PlanOp op;
    op.kind = v1::COMPUTE;
    op.lane = v1::LANE_COMPUTE;
    op.node = n.id;
    op.slots = slots;
    return Push(op, std::move(args));
  }

  int Edge(int src_worker, int dst_worker, bool rendezvous = false, int slots = 2, Spec spec = F32Spec("[2]")) {
    PlanEdge e;
    e.id = static_cast<int>(plan.edges.size());
    e.src_worker = src_worker;
    e.dst_worker = dst_worker;
    e.src = "p" + std::to_string(e.id);
    e.dst = "c" + std::to_string(e.id);
    e.transport = v1::SHM;
    e.bytes = spec.MaxBytes();
    e.spec = std::move(spec);
    e.slots = slots;
    e.rendezvous = rendezvous;
    plan.edges.push_back(e);
    return e.id;
  }

  int Receive(int edge) {
    PlanOp op;
    op.kind = plan.edges[edge].rendezvous ? v1::RECV : v1::READ;
    op.lane = v1::LANE_RECV;
    op.edge = edge;
    op.slots = plan.edges[edge].slots;
    return Push(op, {});
  }

  int Send(int edge, PlanValue value) {
    PlanOp op;
    op.kind = plan.edges[edge].rendezvous ? v1::SEND : v1::WRITE;
    op.lane = v1::LANE_SEND;
    op.edge = edge;
    return Push(op, {value});
  }

  void Wait(int op, int on, int distance, WaitReason reason) { plan.ops[op].waits.push_back({on, distance, reason}); }

  Plan plan;

 private:
  int Push(PlanOp op, std::vector<PlanValue> args) {
    op.id = static_cast<int>(plan.ops.size());
    op.worker = plan.part_of;
    for (const PlanValue& v : args) op.waits.push_back({v.op, 0, v1::PlanWait::DATA});
    op.args = std::move(args);
    plan.ops.push_back(op);
    return op.id;
  }
};

}  // namespace weft
