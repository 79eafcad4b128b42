// The wire form of a plan.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/plan/plan.h"

namespace weft {
namespace {

absl::StatusOr<Spec> ReadSpec(const std::string& what, const v1::TensorSpec& proto) {
  absl::StatusOr<Spec> spec = SpecFromProto(proto);
  if (!spec.ok()) return absl::InvalidArgumentError(absl::StrCat("plan: ", what, ": ", std::string(spec.status().message())));
  return spec;
}

absl::StatusOr<PlanEdge> ReadEdge(const v1::PlanEdge& e) {
  PlanEdge out;
  out.id = e.id();
  out.src_worker = e.src_worker();
  out.dst_worker = e.dst_worker();
  out.src = e.src();
  out.src_output = e.src_output();
  out.dst = e.dst();
  out.dst_arg = e.dst_arg();
  out.transport = e.transport();
  WEFT_ASSIGN_OR_RETURN(out.spec, ReadSpec(absl::StrCat("edge ", e.id()), e.spec()));
  out.bytes = e.bytes();
  out.slots = e.slots();
  out.rendezvous = e.rendezvous();
  out.control = e.control();
  out.emulated = e.has_emulate();
  out.emulate_latency_s = e.emulate().latency_s();
  out.emulate_bandwidth = e.emulate().bandwidth();
  return out;
}

absl::StatusOr<PlanGroup> ReadGroup(const v1::PlanGroup& g) {
  PlanGroup out;
  out.id = g.id();
  out.name = g.name();
  out.op = g.op();
  out.reduce = g.reduce();
  out.members.assign(g.member().begin(), g.member().end());
  out.member_nodes.assign(g.member_node().begin(), g.member_node().end());
  out.root_rank = g.root_rank();
  WEFT_ASSIGN_OR_RETURN(out.input, ReadSpec(absl::StrCat("group ", g.id(), " input"), g.input()));
  WEFT_ASSIGN_OR_RETURN(out.output, ReadSpec(absl::StrCat("group ", g.id(), " output"), g.output()));
  out.transport = g.transport();
  return out;
}

PlanOp ReadOp(const v1::PlanOp& op) {
  PlanOp out;
  out.id = op.id();
  out.kind = op.kind();
  out.worker = op.worker();
  out.lane = op.lane();
  out.lane_index = op.lane_index();
  out.node = op.node();
  out.edge = op.edge();
  out.group = op.group();
  out.slots = op.slots();
  out.args.reserve(op.arg_size());
  for (const v1::PlanValue& v : op.arg()) out.args.push_back({v.op(), v.output()});
  out.waits.reserve(op.wait_size());
  for (const v1::PlanWait& w : op.wait()) out.waits.push_back({w.op(), w.distance(), w.reason()});
  return out;
}

}  // namespace

v1::Plan PlanToProto(const Plan& plan) {
  v1::Plan proto;
  proto.set_version(kPlanVersion);
  proto.set_graph(plan.graph);
  proto.set_hash(plan.hash);
  for (const PlanWorker& w : plan.workers) {
    v1::PlanWorker* out = proto.add_worker();
    out->set_name(w.name);
    out->set_host_id(w.host_id);
    out->set_device(w.device);
  }
  for (const PlanActor& a : plan.actors) {
    v1::PlanActor* out = proto.add_actor();
    out->set_id(a.id);
    out->set_name(a.name);
    out->set_class_(a.cls);
    out->set_worker(a.worker);
    *out->mutable_config() = a.config;
  }
  for (const PlanNode& n : plan.nodes) {
    v1::PlanNode* out = proto.add_node();
    out->set_id(n.id);
    out->set_name(n.name);
    out->set_actor(n.actor);
    out->set_method(n.method);
    out->set_device_error(n.device_error);
    *out->mutable_config() = n.config;
    for (const Spec& spec : n.outputs) *out->add_output() = SpecToProto(spec);
  }
  for (const PlanEdge& e : plan.edges) {
    v1::PlanEdge* out = proto.add_edge();
    out->set_id(e.id);
    out->set_src_worker(e.src_worker);
    out->set_dst_worker(e.dst_worker);
    out->set_src(e.src);
    out->set_src_output(e.src_output);
    out->set_dst(e.dst);
    out->set_dst_arg(e.dst_arg);
    out->set_transport(e.transport);
    *out->mutable_spec() = SpecToProto(e.spec);
    out->set_bytes(e.bytes);
    out->set_slots(e.slots);
    out->set_rendezvous(e.rendezvous);
    out->set_control(e.control);
    if (e.emulated) {
      out->mutable_emulate()->set_latency_s(e.emulate_latency_s);
      out->mutable_emulate()->set_bandwidth(e.emulate_bandwidth);
    }
  }
  for (const PlanGroup& g : plan.groups) {
    v1::PlanGroup* out = proto.add_group();
    out->set_id(g.id);
    out->set_name(g.name);
    out->set_op(g.op);
    out->set_reduce(g.reduce);
    for (const int32_t w : g.members) out->add_member(w);
    for (const std::string& node : g.member_nodes) out->add_member_node(node);
    out->set_root_rank(g.root_rank);
    *out->mutable_input() = SpecToProto(g.input);
    *out->mutable_output() = SpecToProto(g.output);
    out->set_transport(g.transport);
  }
  for (const PlanOp& op : plan.ops) {
    v1::PlanOp* out = proto.add_op();
    out->set_id(op.id);
    out->set_kind(op.kind);
    out->set_worker(op.worker);
    out->set_lane(op.lane);
    out->set_lane_index(op.lane_index);
    out->set_node(op.node);
    out->set_edge(op.edge);
    out->set_group(op.group);
    out->set_slots(op.slots);
    for (const PlanValue& v : op.args) {
      v1::PlanValue* arg = out->add_arg();
      arg->set_op(v.op);
      arg->set_output(v.output);
    }
    for (const PlanWait& w : op.waits) {
      v1::PlanWait* wait = out->add_wait();
      wait->set_op(w.op);
      wait->set_distance(w.distance);
      wait->set_reason(w.reason);
    }
  }
  *proto.mutable_options() = plan.options;
  proto.set_part_of(plan.part_of);
  proto.set_reports_completion(plan.reports_completion);
  for (const uint64_t bytes : plan.peak_bytes) proto.add_peak_bytes(bytes);
  return proto;
}

absl::StatusOr<Plan> PlanFromProto(const v1::Plan& proto) {
  if (proto.version() != kPlanVersion) {
    return absl::InvalidArgumentError(absl::StrCat("plan: version ", proto.version(), ", this program reads version ", kPlanVersion,
                                                   ": run the same release of weft on every host"));
  }
  // Before anything is copied: a list that is too long is refused by its length.
  for (const int64_t n : {proto.actor_size(), proto.node_size(), proto.edge_size(), proto.group_size(), proto.op_size()}) {
    if (n > kMaxOps) return absl::InvalidArgumentError(absl::StrCat("plan: a list of ", n, " items: at most ", kMaxOps));
  }
  Plan plan;
  plan.graph = proto.graph();
  plan.hash = proto.hash();
  plan.options = proto.options();
  plan.part_of = proto.part_of();
  plan.reports_completion = proto.reports_completion();
  plan.peak_bytes.assign(proto.peak_bytes().begin(), proto.peak_bytes().end());
  for (const v1::PlanWorker& w : proto.worker()) plan.workers.push_back({w.name(), w.host_id(), w.device()});
  for (const v1::PlanActor& a : proto.actor()) plan.actors.push_back({a.id(), a.name(), a.class_(), a.worker(), a.config()});
  plan.nodes.reserve(proto.node_size());
  for (const v1::PlanNode& n : proto.node()) {
    PlanNode out{n.id(), n.name(), n.actor(), n.method(), n.config(), {}, n.device_error()};
    for (const v1::TensorSpec& spec : n.output()) {
      WEFT_ASSIGN_OR_RETURN(Spec read, ReadSpec(absl::StrCat("node ", n.id()), spec));
      out.outputs.push_back(std::move(read));
    }
    plan.nodes.push_back(std::move(out));
  }
  plan.edges.reserve(proto.edge_size());
  for (const v1::PlanEdge& e : proto.edge()) {
    WEFT_ASSIGN_OR_RETURN(PlanEdge edge, ReadEdge(e));
    plan.edges.push_back(std::move(edge));
  }
  for (const v1::PlanGroup& g : proto.group()) {
    WEFT_ASSIGN_OR_RETURN(PlanGroup group, ReadGroup(g));
    plan.groups.push_back(std::move(group));
  }
  plan.ops.reserve(proto.op_size());
  for (const v1::PlanOp& op : proto.op()) plan.ops.push_back(ReadOp(op));
  WEFT_RETURN_IF_ERROR(CheckPlan(plan));
  return plan;
}

}  // namespace weft
