#pragma once

// The compiled graph as plain data: what the driver's passes build and verify, and what the worker's loop interprets. The wire
// form is weft.v1.Plan, the text form is in plan_text.h; field meanings are documented in proto/weft/v1/plan.proto.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/shape.h"
#include "weft/v1/plan.pb.h"

namespace weft {

constexpr uint32_t kPlanVersion = 1;
// Largest plan that is compiled or loaded, in ops.
constexpr int64_t kMaxOps = 2'000'000;
// Stands for the client (the session) where a worker index is expected.
constexpr int32_t kClient = -1;
// Largest number of slots of an edge or op, and largest execution distance of a wait.
constexpr int32_t kMaxSlots = 4096;
// Largest number of lanes of one kind on a worker.
constexpr int32_t kMaxLanes = 8;
// Largest number of workers of one plan.
constexpr int32_t kMaxWorkers = 65536;
// Largest number of members of one collective: each has a connection to every other, on which headers are exchanged.
constexpr size_t kMaxGroupRanks = 64;

using OpKind = v1::OpKind;
using LaneKind = v1::LaneKind;
using WaitReason = v1::PlanWait::Reason;

struct PlanValue {
  int32_t op = -1;
  int32_t output = 0;
  bool operator==(const PlanValue&) const = default;
};

struct PlanWait {
  int32_t op = -1;
  int32_t distance = 0;
  WaitReason reason = v1::PlanWait::DATA;
  bool operator==(const PlanWait&) const = default;
};

struct PlanOp {
  int32_t id = -1;  // == index in Plan::ops of a whole plan
  OpKind kind = v1::OP_KIND_UNSPECIFIED;
  LaneKind lane = v1::LANE_KIND_UNSPECIFIED;
  int32_t lane_index = 0;
  int32_t worker = 0;
  int32_t node = -1;
  int32_t edge = -1;
  int32_t group = -1;
  int32_t slots = 1;
  // COMPUTE: in the order of the node's args. SEND, WRITE, COLLECTIVE: the one value; none for a control edge, whose SEND or WRITE
  // has a CONTROL wait on the producing COMPUTE instead.
  std::vector<PlanValue> args;
  std::vector<PlanWait> waits;
};

struct PlanWorker {
  std::string name;
  std::string host_id;
  std::string device = "cpu";
};

struct PlanActor {
  int32_t id = -1;  // == index in a whole plan
  std::string name;
  std::string cls;
  int32_t worker = 0;
  v1::Config config;
};

struct PlanNode {
  int32_t id = -1;
  std::string name;
  int32_t actor = -1;
  std::string method;
  v1::Config config;
  std::vector<Spec> outputs;
  // Not empty: it may fail in a way that only its device knows, and this is what the error says where the config has no message. Values then
  // carry status words (UsesStatusWords).
  std::string device_error;
};

// What PlanNode::device_error says of a node that cannot fail on its device by itself, but whose errors may come as numbers (options.launch GRAPH).
constexpr char kFailsOnHost[] = "failed";
constexpr char kFailsElsewhere[] = "its task failed";

// An edge between different places. Edges within a worker have no PlanEdge: the consumer's arg names the producing op.
struct PlanEdge {
  int32_t id = -1;
  int32_t src_worker = kClient;
  int32_t dst_worker = kClient;
  std::string src;
  int32_t src_output = 0;
  std::string dst;
  int32_t dst_arg = 0;
  v1::Transport transport = v1::TRANSPORT_UNSPECIFIED;
  Spec spec;
  uint64_t bytes = 0;
  int32_t slots = 1;
  bool rendezvous = false;
  bool control = false;
  bool emulated = false;
  double emulate_latency_s = 0;
  double emulate_bandwidth = 0;  // bytes/s, 0: unlimited
};

struct PlanGroup {
  int32_t id = -1;
  std::string name;
  v1::CollectiveOp op = v1::ALL_REDUCE;
  v1::ReduceOp reduce = v1::SUM;
  std::vector<int32_t> members;  // worker index of each rank
  std::vector<std::string> member_nodes;
  int32_t root_rank = 0;
  Spec input;
  Spec output;
  v1::Transport transport = v1::GLOO;
};

struct Plan {
  std::string graph;
  std::string hash;
  std::vector<PlanWorker> workers;
  std::vector<PlanActor> actors;
  std::vector<PlanNode> nodes;
  std::vector<PlanEdge> edges;
  std::vector<PlanGroup> groups;
  std::vector<PlanOp> ops;  // in the global linear order
  v1::Options options;
  int32_t part_of = -1;  // in a part: the worker it is for
  std::vector<uint64_t> peak_bytes;
  // In a part: no worker has an output edge, so completed executions are told to the driver.
  bool reports_completion = false;
};

// Wire form. FromProto checks everything that indexing relies on (a part may lack what other workers need, but every index that
// an op of it holds resolves within it), sizes, enums and the version; InvalidArgument names op, edge or field.
v1::Plan PlanToProto(const Plan& plan);
absl::StatusOr<Plan> PlanFromProto(const v1::Plan& proto);

// The part that worker `w` needs: its ops, the edges and groups they touch, its actors and nodes; all workers stay listed.
Plan PartOf(const Plan& plan, int32_t w);

// What PlanFromProto and PlanFromText check of a plan: ids ascend (and equal the index in a whole plan), every id that is held
// resolves, kinds fit lanes, edges, groups and numbers of arguments, sizes are within bounds. It does not prove liveness: that is
// driver/plan/verify.h. InvalidArgument names the first op, edge or field that is wrong.
absl::Status CheckPlan(const Plan& plan);

// Number of values that an op yields: a node's outputs for COMPUTE, 1 for READ, RECV and COLLECTIVE, 0 for SEND and WRITE.
int NumOutputs(const Plan& plan, const PlanOp& op);

// Lookups by id that work in a whole plan and in a part. nullptr when absent.
const PlanOp* FindOp(const Plan& plan, int32_t id);
const PlanEdge* FindEdge(const Plan& plan, int32_t id);
const PlanGroup* FindGroup(const Plan& plan, int32_t id);
const PlanNode* FindNode(const Plan& plan, int32_t id);
const PlanActor* FindActor(const Plan& plan, int32_t id);

// Whether values in device memory carry a status word (kernels_api.h) behind their payload: some node's failure is known to its device alone.
bool UsesStatusWords(const Plan& plan);

// Whether this worker's iterations are captured into CUDA graphs (options.launch GRAPH).
bool IsCaptured(const Plan& plan, int32_t worker);

// Whether a READ of this edge copies the value into a buffer of its own (on a GPU) instead of pointing into the channel's memory. Such a READ
// gives its slot of the edge back once the copy is done, and its buffers are guarded by BUFFER waits as those of RECV.
bool ReadCopies(const Plan& plan, const PlanEdge& edge);
// Bytes of one buffer of the op, on its worker's device; UINT64_MAX / 2 at most. Memory that a READ shares with its WRITE is the writer's.
uint64_t BufferBytes(const Plan& plan, const PlanOp& op);

// "COMPUTE square0", "RECV make0:0 -> square0:0", "ALL_REDUCE grads": how messages, traces and inspect name an op.
std::string OpName(const Plan& plan, const PlanOp& op);
// "edge make0:0 -> square0:0 (w0 -> w3)".
std::string EdgeName(const Plan& plan, const PlanEdge& edge);
// Worker's name, "client" for kClient, "worker(7)" when out of range.
std::string WorkerName(const Plan& plan, int32_t worker);
// "compute", "send0" ...
std::string LaneName(LaneKind kind, int32_t index);

}  // namespace weft
