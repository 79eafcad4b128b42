#include "common/plan/plan_text.h"

#include <openssl/sha.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/plan/fields_text.h"
#include "common/plan/text_cursor.h"

namespace weft {
namespace {

// "F16[4,?<=8]": Spec::ToString without spaces, so that it is one word.
void AppendSpec(const Spec& spec, std::string* out) {
  for (const char c : spec.ToString()) {
    if (c != ' ') out->push_back(c);
  }
}

void AppendConfig(const v1::Config& config, std::string* out) {
  const size_t before = out->size();
  AppendFields(config, out);
  if (out->size() > before) out->insert(before, " config");
}

void AppendNode(const PlanNode& n, std::string* out) {
  absl::StrAppend(out, "node ", n.id, " ");
  AppendName(n.name, out);
  absl::StrAppend(out, " actor ", n.actor, " method ");
  AppendName(n.method, out);
  if (!n.device_error.empty()) {
    out->append(" device_error ");
    AppendName(n.device_error, out);
  }
  if (!n.outputs.empty()) out->append(" out");
  for (const Spec& spec : n.outputs) {
    out->push_back(' ');
    AppendSpec(spec, out);
  }
  AppendConfig(n.config, out);
  out->push_back('\n');
}

void AppendEdge(const PlanEdge& e, std::string* out) {
  absl::StrAppend(out, "edge ", e.id, " ");
  AppendName(e.src, out);
  absl::StrAppend(out, ":", e.src_output, " -> ");
  AppendName(e.dst, out);
  absl::StrAppend(out, ":", e.dst_arg, " from ", e.src_worker, " to ", e.dst_worker, " ", v1::Transport_Name(e.transport), " ");
  AppendSpec(e.spec, out);
  absl::StrAppend(out, " bytes ", e.bytes, " slots ", e.slots);
  if (e.rendezvous) out->append(" rendezvous");
  if (e.control) out->append(" control");
  if (e.emulated) {
    out->append(" emulate ");
    AppendDouble(e.emulate_latency_s, out);
    out->push_back(' ');
    AppendDouble(e.emulate_bandwidth, out);
  }
  out->push_back('\n');
}

void AppendGroup(const PlanGroup& g, std::string* out) {
  absl::StrAppend(out, "group ", g.id, " ");
  AppendName(g.name, out);
  absl::StrAppend(out, " ", v1::CollectiveOp_Name(g.op), " ", v1::ReduceOp_Name(g.reduce), " members");
  for (size_t i = 0; i < g.members.size(); ++i) {
    out->push_back(' ');
    AppendName(g.member_nodes[i], out);
    absl::StrAppend(out, "@", g.members[i]);
  }
  absl::StrAppend(out, " root ", g.root_rank, " in ");
  AppendSpec(g.input, out);
  out->append(" out ");
  AppendSpec(g.output, out);
  absl::StrAppend(out, " ", v1::Transport_Name(g.transport), "\n");
}

const char* ReasonText(WaitReason reason) {
  switch (reason) {
    case v1::PlanWait::DATA:
      return "data";
    case v1::PlanWait::CONTROL:
      return "control";
    case v1::PlanWait::PROGRAM:
      return "program";
    case v1::PlanWait::BUFFER:
      return "buffer";
    case v1::PlanWait::NO_OVERLAP:
      return "no_overlap";
    default:
      return "unknown";
  }
}

void AppendOp(const Plan& plan, const PlanOp& op, std::string* out) {
  absl::StrAppend(out, "op ", op.id, " on ", op.worker, " ", LaneName(op.lane, op.lane_index), " ", v1::OpKind_Name(op.kind));
  if (op.node != -1) absl::StrAppend(out, " node ", op.node);
  if (op.edge != -1) absl::StrAppend(out, " edge ", op.edge);
  if (op.group != -1) absl::StrAppend(out, " group ", op.group);
  absl::StrAppend(out, " slots ", op.slots);
  if (!op.args.empty()) out->append(" args");
  for (const PlanValue& v : op.args) absl::StrAppend(out, " ", v.op, ".", v.output);
  if (!op.waits.empty()) out->append(" waits");
  for (const PlanWait& w : op.waits) {
    absl::StrAppend(out, " ", ReasonText(w.reason), ":", w.op);
    if (w.distance != 0) absl::StrAppend(out, "@", w.distance);
  }
  absl::StrAppend(out, "  # ", WorkerName(plan, op.worker), ": ", OpName(plan, op), "\n");
}

void AppendHead(const Plan& plan, bool with_hash, std::string* out) {
  absl::StrAppend(out, "weft-plan ", kPlanVersion, "\ngraph ");
  AppendName(plan.graph, out);
  out->push_back('\n');
  if (with_hash && !plan.hash.empty()) {
    out->append("hash ");
    AppendName(plan.hash, out);
    out->push_back('\n');
  }
  if (plan.part_of != -1) absl::StrAppend(out, "part_of ", plan.part_of, "\n");
  out->append("options");
  AppendFields(plan.options, out);
  out->push_back('\n');
  for (size_t i = 0; i < plan.workers.size(); ++i) {
    const PlanWorker& w = plan.workers[i];
    absl::StrAppend(out, "worker ", i, " ");
    AppendName(w.name, out);
    out->append(" host ");
    AppendName(w.host_id, out);
    out->append(" device ");
    AppendName(w.device, out);
    if (i < plan.peak_bytes.size()) absl::StrAppend(out, " peak ", plan.peak_bytes[i]);
    out->push_back('\n');
  }
}

std::string ToText(const Plan& plan, bool with_hash) {
  std::string out;
  out.reserve(256 + 96 * (plan.nodes.size() + plan.edges.size() + plan.ops.size()));
  AppendHead(plan, with_hash, &out);
  for (const PlanActor& a : plan.actors) {
    absl::StrAppend(&out, "actor ", a.id, " ");
    AppendName(a.name, &out);
    out.append(" class ");
    AppendName(a.cls, &out);
    absl::StrAppend(&out, " worker ", a.worker);
    AppendConfig(a.config, &out);
    out.push_back('\n');
  }
  for (const PlanNode& n : plan.nodes) AppendNode(n, &out);
  for (const PlanEdge& e : plan.edges) AppendEdge(e, &out);
  for (const PlanGroup& g : plan.groups) AppendGroup(g, &out);
  for (const PlanOp& op : plan.ops) AppendOp(plan, op, &out);
  out.append("end\n");
  return out;
}

}  // namespace

std::string PlanToText(const Plan& plan) { return ToText(plan, true); }

std::string HashPlan(const Plan& plan) {
  const std::string text = ToText(plan, false);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  static const char kHex[] = "0123456789abcdef";
  std::string out;
  for (int i = 0; i < 8; ++i) {
    out.push_back(kHex[digest[i] >> 4]);
    out.push_back(kHex[digest[i] & 15]);
  }
  return out;
}

}  // namespace weft
