#pragma once

// A worker's part of a plan with every reference turned into a small index: what the loop walks.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/plan/plan.h"

namespace weft {

struct LocalWait {
  int op = -1;  // index into Program::ops
  int distance = 0;
  WaitReason reason = v1::PlanWait::DATA;
  bool same_lane = false;  // of two COMPUTEs: a device that queues keeps their order by itself
};

struct LocalArg {
  int op = -1;
  int output = 0;
};

struct LocalOp {
  const PlanOp* plan = nullptr;  // in the Plan given to BuildProgram, which outlives this
  int lane = -1;                 // index into Program::lanes
  const PlanNode* node = nullptr;
  const PlanEdge* edge = nullptr;
  const PlanGroup* group = nullptr;
  std::vector<LocalArg> args;
  std::vector<LocalWait> waits;
  // Ops that hold this op's value until they are done: those that take it as an argument, and for a control edge's READ or RECV those
  // that wait for it. Each once.
  std::vector<int> readers;
  // One per output value; empty for SEND and WRITE.
  std::vector<Spec> outputs;
  int slots = 1;
  // COMPUTE: the device may find that it fails, so that its values have status words also when no argument brings one.
  bool may_fail_on_device = false;
};

struct LocalLane {
  LaneKind kind = v1::LANE_COMPUTE;
  int index = 0;
  std::vector<int> ops;  // in plan order
};

struct Program {
  std::vector<LocalOp> ops;
  std::vector<LocalLane> lanes;  // only those with ops
};

// Whether a COMPUTE's arguments and outputs have one shape in every execution.
bool HasFixedShapes(const Program& program, const LocalOp& op);

// InvalidArgument names the op and field: a reference to an op of another worker, an argument that does not exist or comes later, a kind
// that does not fit its lane, a negative distance, slots below 1.
absl::StatusOr<Program> BuildProgram(const Plan& part);

}  // namespace weft
