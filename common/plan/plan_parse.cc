// PlanFromText.

#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/plan/fields_text.h"
#include "common/plan/plan_text.h"
#include "common/plan/text_cursor.h"

namespace weft {
namespace {

// Enumeration by name; `parse` is the generated X_Parse.
template <typename E, typename Parse>
bool ReadEnum(TextCursor* c, const char* what, Parse parse, E* out) {
  std::string word;
  return c->Name(&word) && (parse(word, out) || c->Fail(absl::StrCat("a ", what, " before this, not \"", word.substr(0, 40), "\"")));
}

bool ReadSpec(TextCursor* c, Spec* out) {
  std::string word;
  if (!c->Word(&word)) return false;
  const size_t bracket = word.find('[');
  v1::TensorSpec proto;
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  if (bracket == std::string::npos || !v1::DType_Parse(word.substr(0, bracket), &dtype)) {
    return c->Fail(absl::StrCat("a dtype and shape like F16[4,?<=8] before this, not \"", word.substr(0, 40), "\""));
  }
  proto.set_dtype(dtype);
  proto.set_shape(word.substr(bracket));
  absl::StatusOr<Spec> spec = SpecFromProto(proto);
  if (!spec.ok()) return c->Fail(absl::StrCat("a valid spec before this (", std::string(spec.status().message()), ")"));
  *out = *std::move(spec);
  return true;
}

bool ReadConfig(TextCursor* c, v1::Config* config) { return !c->TakeWord("config") || ReadFields(c, config); }

bool ReadWorker(TextCursor* c, Plan* plan) {
  PlanWorker w;
  size_t index = 0;
  if (!c->Number(&index)) return false;
  if (index != plan->workers.size()) return c->Fail(absl::StrCat("worker ", plan->workers.size(), " before this"));
  if (!(c->Name(&w.name) && c->Expect("host") && c->Name(&w.host_id) && c->Expect("device") && c->Name(&w.device))) return false;
  if (c->TakeWord("peak")) {
    uint64_t peak = 0;
    if (!c->Number(&peak)) return false;
    plan->peak_bytes.push_back(peak);
  }
  plan->workers.push_back(std::move(w));
  return true;
}

bool ReadActor(TextCursor* c, Plan* plan) {
  PlanActor a;
  if (!(c->Number(&a.id) && c->Name(&a.name) && c->Expect("class") && c->Name(&a.cls) && c->Expect("worker") &&
        c->Number(&a.worker) && ReadConfig(c, &a.config))) {
    return false;
  }
  plan->actors.push_back(std::move(a));
  return true;
}

bool ReadNode(TextCursor* c, Plan* plan) {
  PlanNode n;
  if (!(c->Number(&n.id) && c->Name(&n.name) && c->Expect("actor") && c->Number(&n.actor) && c->Expect("method") &&
        c->Name(&n.method))) {
    return false;
  }
  if (c->TakeWord("device_error") && !c->Name(&n.device_error)) return false;
  if (c->TakeWord("out")) {
    bool config = false;
    while (!c->Done() && !(config = c->TakeWord("config"))) {
      if (!ReadSpec(c, &n.outputs.emplace_back())) return false;
    }
    if (config && !ReadFields(c, &n.config)) return false;
  } else if (!ReadConfig(c, &n.config)) {
    return false;
  }
  plan->nodes.push_back(std::move(n));
  return !c->failed();
}

bool ReadEdge(TextCursor* c, Plan* plan) {
  PlanEdge e;
  if (!(c->Number(&e.id) && c->Name(&e.src) && c->ExpectChar(':') && c->Number(&e.src_output) && c->Expect("->") &&
        c->Name(&e.dst) && c->ExpectChar(':') && c->Number(&e.dst_arg) && c->Expect("from") && c->Number(&e.src_worker) &&
        c->Expect("to") && c->Number(&e.dst_worker) && ReadEnum(c, "transport", v1::Transport_Parse, &e.transport) &&
        ReadSpec(c, &e.spec) && c->Expect("bytes") && c->Number(&e.bytes) && c->Expect("slots") && c->Number(&e.slots))) {
    return false;
  }
  e.rendezvous = c->TakeWord("rendezvous");
  e.control = c->TakeWord("control");
  e.emulated = c->TakeWord("emulate");
  if (e.emulated && !(c->Number(&e.emulate_latency_s) && c->Number(&e.emulate_bandwidth))) return false;
  plan->edges.push_back(std::move(e));
  return true;
}

bool ReadGroup(TextCursor* c, Plan* plan) {
  PlanGroup g;
  if (!(c->Number(&g.id) && c->Name(&g.name) && ReadEnum(c, "collective operation", v1::CollectiveOp_Parse, &g.op) &&
        ReadEnum(c, "reduction", v1::ReduceOp_Parse, &g.reduce) && c->Expect("members"))) {
    return false;
  }
  // A member may be called "root": only `name@worker` is a member.
  while (!c->Done() && !c->TakeWord("root")) {
    if (!(c->Name(&g.member_nodes.emplace_back()) && c->ExpectChar('@') && c->Number(&g.members.emplace_back()))) return false;
  }
  if (!(c->Number(&g.root_rank) && c->Expect("in") && ReadSpec(c, &g.input) && c->Expect("out") && ReadSpec(c, &g.output) &&
        ReadEnum(c, "transport", v1::Transport_Parse, &g.transport))) {
    return false;
  }
  plan->groups.push_back(std::move(g));
  return true;
}

bool ReadLane(TextCursor* c, PlanOp* op) {
  std::string word;
  if (!c->Name(&word)) return false;
  size_t digits = word.size();
  while (digits > 0 && absl::ascii_isdigit(word[digits - 1])) --digits;
  if (digits < word.size()) {
    const auto [p, ec] = std::from_chars(word.data() + digits, word.data() + word.size(), op->lane_index);
    if (ec != std::errc()) return c->Fail("a smaller lane number before this");
  }
  const std::string name = word.substr(0, digits);
  for (const LaneKind kind : {v1::LANE_COMPUTE, v1::LANE_SEND, v1::LANE_RECV, v1::LANE_COPY, v1::LANE_COLLECTIVE}) {
    const std::string full = LaneName(kind, 1);
    if (full.compare(0, full.size() - 1, name) == 0) {
      op->lane = kind;
      return true;
    }
  }
  return c->Fail(absl::StrCat("a lane (compute, send0, recv0, copy0, collective0) before this, not \"", word.substr(0, 40), "\""));
}

bool ReadReason(TextCursor* c, WaitReason* reason) {
  static const std::pair<const char*, WaitReason> kReasons[] = {{"data", v1::PlanWait::DATA},
                                                                {"control", v1::PlanWait::CONTROL},
                                                                {"program", v1::PlanWait::PROGRAM},
                                                                {"buffer", v1::PlanWait::BUFFER},
                                                                {"no_overlap", v1::PlanWait::NO_OVERLAP}};
  std::string word;
  if (!c->Name(&word)) return false;
  for (const auto& [name, value] : kReasons) {
    if (word == name) {
      *reason = value;
      return true;
    }
  }
  return c->Fail("a reason (data, control, program, buffer, no_overlap) before this");
}

bool ReadOp(TextCursor* c, Plan* plan) {
  PlanOp op;
  if (!(c->Number(&op.id) && c->Expect("on") && c->Number(&op.worker) && ReadLane(c, &op) &&
        ReadEnum(c, "kind of op", v1::OpKind_Parse, &op.kind))) {
    return false;
  }
  if (c->TakeWord("node") && !c->Number(&op.node)) return false;
  if (c->TakeWord("edge") && !c->Number(&op.edge)) return false;
  if (c->TakeWord("group") && !c->Number(&op.group)) return false;
  if (!c->Expect("slots") || !c->Number(&op.slots)) return false;
  bool waits = false;
  if (c->TakeWord("args")) {
    while (!c->Done() && !(waits = c->TakeWord("waits"))) {
      PlanValue v;
      if (!(c->Number(&v.op) && c->ExpectChar('.') && c->Number(&v.output))) return false;
      op.args.push_back(v);
    }
  } else {
    waits = c->TakeWord("waits");
  }
  while (waits && !c->Done()) {
    PlanWait w;
    if (!(ReadReason(c, &w.reason) && c->ExpectChar(':') && c->Number(&w.op))) return false;
    if (c->TakeChar('@') && !c->Number(&w.distance)) return false;
    op.waits.push_back(w);
  }
  plan->ops.push_back(std::move(op));
  return !c->failed();
}

// What has come so far, of lines that may come once.
struct Seen {
  bool version = false, graph = false, hash = false, part_of = false, options = false, end = false;
};

bool Once(TextCursor* c, const char* what, bool* seen) {
  if (*seen) return c->Fail(absl::StrCat("only one ", what, " line"));
  *seen = true;
  return true;
}

bool ReadLine(TextCursor* c, Seen* seen, Plan* plan) {
  if (!seen->version) {
    uint32_t version = 0;
    if (!c->Expect("weft-plan") || !c->Number(&version)) return false;
    if (version != kPlanVersion) return c->Fail(absl::StrCat("version ", kPlanVersion, " before this"));
    seen->version = true;
    return true;
  }
  if (seen->end) return c->Fail("nothing after \"end\"");
  // Most frequent first.
  if (c->TakeWord("op")) return ReadOp(c, plan);
  if (c->TakeWord("edge")) return ReadEdge(c, plan);
  if (c->TakeWord("node")) return ReadNode(c, plan);
  if (c->TakeWord("actor")) return ReadActor(c, plan);
  if (c->TakeWord("group")) return ReadGroup(c, plan);
  if (c->TakeWord("worker")) return ReadWorker(c, plan);
  if (c->TakeWord("graph")) return Once(c, "graph", &seen->graph) && c->Name(&plan->graph);
  if (c->TakeWord("hash")) return Once(c, "hash", &seen->hash) && c->Name(&plan->hash);
  if (c->TakeWord("part_of")) return Once(c, "part_of", &seen->part_of) && c->Number(&plan->part_of);
  if (c->TakeWord("options")) return Once(c, "options", &seen->options) && ReadFields(c, &plan->options);
  if (c->TakeWord("end")) return Once(c, "end", &seen->end);
  return c->Fail("graph, hash, part_of, options, worker, actor, node, edge, group, op or end");
}

}  // namespace

absl::StatusOr<Plan> PlanFromText(const std::string& text) {
  Plan plan;
  Seen seen;
  int64_t line = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    ++line;
    const void* newline = std::memchr(at, '\n', end - at);
    const char* stop = newline == nullptr ? end : static_cast<const char*>(newline);
    const char* next = stop == end ? end : stop + 1;
    if (stop > at && stop[-1] == '\r') --stop;
    TextCursor cursor(at, stop);
    if (!cursor.Done()) {
      if (ReadLine(&cursor, &seen, &plan) && !cursor.Done()) cursor.Fail("the end of the line");
    }
    if (cursor.failed()) return absl::InvalidArgumentError(absl::StrCat("plan text:", line, ": ", cursor.error()));
    at = next;
  }
  if (!seen.version) return absl::InvalidArgumentError("plan text:1: expected \"weft-plan 1\", found nothing");
  if (!seen.end) {
    return absl::InvalidArgumentError(absl::StrCat("plan text:", line, ": the text stops before \"end\": it has been cut"));
  }
  if (static_cast<int64_t>(plan.ops.size()) > kMaxOps) {
    return absl::InvalidArgumentError(absl::StrCat("plan text: ", plan.ops.size(), " ops: at most ", kMaxOps));
  }
  WEFT_RETURN_IF_ERROR(CheckPlan(plan));
  return plan;
}

}  // namespace weft
