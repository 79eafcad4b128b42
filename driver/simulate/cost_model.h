#pragma once

// What the parts of a plan cost, as the simulator asks for it.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/plan/plan.h"

namespace weft {

// While any op runs on lane `beside` of a worker, ops on lane `slowed` of it take longer.
struct Contention {
  LaneKind slowed = v1::LANE_COMPUTE;
  std::string node;  // only this node's calls; empty: all ops of the lane
  v1::Transport slowed_transport = v1::TRANSPORT_UNSPECIFIED;  // only transfers and collectives over it
  LaneKind beside = v1::LANE_RECV;
  v1::Transport beside_transport = v1::TRANSPORT_UNSPECIFIED;
  int64_t factor = 1'000'000;  // in millionths, at least 1'000'000
};

// Functions that are not set mean 0. All are asked once for each node, edge or group before the simulation starts; none may give less than 0.
struct CostModel {
  // Time that the compute lane is held by a node's call. Default: std.Delay's duration, else 0.
  std::function<Nanos(const Plan&, const PlanNode&)> compute;
  // Time of a transfer on an edge: both lanes are held by SEND and RECV, one by WRITE; over ipc one by READ, which is what copies there.
  // Default: an emulated link's latency + bytes / bandwidth, else 0.
  std::function<Nanos(const Plan&, const PlanEdge&)> transfer;
  // Time of a collective from when all members have issued it. Default 0.
  std::function<Nanos(const Plan&, const PlanGroup&)> collective;

  // Buffered edges: from the end of WRITE until READ finds the value; holds no lane.
  std::function<Nanos(const Plan&, const PlanEdge&)> latency;
  // Buffered edges: time that READ holds its lane.
  std::function<Nanos(const Plan&, const PlanEdge&)> read;

  // What execution 0 takes longer.
  std::function<Nanos(const Plan&, const PlanNode&)> first_call;
  std::function<Nanos(const Plan&, const PlanEdge&)> first_transfer;
  std::function<Nanos(const Plan&, const PlanGroup&)> first_collective;
  // What the first transfer from one worker to another over one transport takes longer, besides first_transfer. Asked for each edge; that of
  // the first edge in the plan's order counts.
  std::function<Nanos(const Plan&, const PlanEdge&)> first_contact;

  std::vector<Contention> contention;

  static CostModel Default();
};

// Time of a collective as all predictions take it: what the model says; of one that stands for edges (driver/plan/broadcasts.h) and of which it says
// nothing, as many of the slowest of these edges' transfers one after the other as the tree of a broadcast is high.
Nanos CollectiveCost(const CostModel& costs, const Plan& plan, const PlanGroup& group);

}  // namespace weft
