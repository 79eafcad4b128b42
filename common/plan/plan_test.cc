#include "common/plan/plan.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/plan/plan_text.h"
#include "google/protobuf/stubs/logging.h"

namespace weft {
namespace {

// Two workers: make0 and make1 on w0, an edge by rendezvous and one through shared memory, use and sum on w1, a collective, client edges.
Plan SmallPlan() {
  Plan p;
  p.graph = "small";
  p.workers = {{"w0", "host a", "cpu"}, {"w1", "host a", "cpu"}};
  p.peak_bytes = {64, 128};
  p.options.set_overlap(v1::ON);
  p.options.set_prefetch_depth(1);
  p.options.set_max_in_flight(4);
  p.options.mutable_emulate()->set_latency_s(0.1);
  p.actors = {{0, "a", "std.Source", 0, {}}, {1, "b", "std.Math", 1, {}}};
  p.actors[0].config.set_dtype(v1::F32);
  p.actors[0].config.set_shape("[2, ?<=4]");
  p.actors[1].config.set_scale(-0.0);
  (*p.actors[1].config.mutable_extra())["a \"key\"\n"] = std::string("\x00 \xc3\xa9", 4);
  (*p.actors[1].config.mutable_extra())["b"] = "";
  const Spec spec{v1::F32, *Shape::Parse("[2, ?<=4]")};
  p.nodes = {{0, "make0", 0, "make", p.actors[0].config, {spec}},
             {1, "make1", 0, "make", {}, {spec, spec}},
             {2, "use", 1, "add", {}, {spec}},
             {3, "sum", 1, "peek", {}, {}}};
  p.nodes[3].config.add_fail_on(3);
  p.nodes[3].config.add_fail_on(-1);
  const auto edge = [&](int32_t src, int32_t dst, const char* from, const char* to, v1::Transport t) {
    PlanEdge e;
    e.id = static_cast<int32_t>(p.edges.size());
    e.src_worker = src;
    e.dst_worker = dst;
    e.src = from;
    e.dst = to;
    e.transport = t;
    e.spec = spec;
    e.bytes = 32;
    e.slots = 2;
    p.edges.push_back(e);
    return &p.edges.back();
  };
  edge(0, 1, "make0", "use", v1::GLOO)->rendezvous = true;
  PlanEdge* link = edge(0, 1, "make1", "use", v1::SHM);
  link->rendezvous = link->emulated = true;
  link->src_output = link->dst_arg = 1;
  link->emulate_latency_s = 0.01;
  link->emulate_bandwidth = 1e9 / 3;
  edge(1, kClient, "use", "y", v1::SHM);
  PlanEdge* control = edge(1, 0, "sum", "make1", v1::SHM);
  control->control = true;
  control->spec = Spec{v1::U8, Shape::Of({0})};
  control->bytes = 0;
  PlanGroup g;
  g.id = 0;
  g.name = "grads";
  g.members = {0, 1};
  g.member_nodes = {"make0", "use"};
  g.root_rank = 1;
  g.input = g.output = spec;
  p.groups = {g};
  const auto op = [&](OpKind kind, int32_t worker, LaneKind lane, int32_t node, int32_t e, int32_t group, std::vector<PlanValue> args,
                      std::vector<PlanWait> waits) {
    PlanOp o;
    o.id = static_cast<int32_t>(p.ops.size());
    o.kind = kind;
    o.worker = worker;
    o.lane = lane;
    o.node = node;
    o.edge = e;
    o.group = group;
    o.slots = 2;
    o.args = std::move(args);
    o.waits = std::move(waits);
    p.ops.push_back(std::move(o));
  };
  op(v1::COMPUTE, 1, v1::LANE_COMPUTE, 3, -1, -1, {}, {});
  op(v1::WRITE, 1, v1::LANE_SEND, -1, 3, -1, {}, {{0, 0, v1::PlanWait::CONTROL}});
  op(v1::READ, 0, v1::LANE_RECV, -1, 3, -1, {}, {});
  op(v1::COMPUTE, 0, v1::LANE_COMPUTE, 0, -1, -1, {}, {{5, 2, v1::PlanWait::BUFFER}});
  op(v1::COMPUTE, 0, v1::LANE_COMPUTE, 1, -1, -1, {}, {{2, 0, v1::PlanWait::CONTROL}, {7, 2, v1::PlanWait::BUFFER}});
  op(v1::SEND, 0, v1::LANE_SEND, -1, 0, -1, {{3, 0}}, {{3, 0, v1::PlanWait::DATA}});
  op(v1::RECV, 1, v1::LANE_RECV, -1, 0, -1, {}, {{9, 2, v1::PlanWait::BUFFER}});
  op(v1::SEND, 0, v1::LANE_SEND, -1, 1, -1, {{4, 1}}, {{4, 0, v1::PlanWait::DATA}});
  op(v1::RECV, 1, v1::LANE_RECV, -1, 1, -1, {}, {{9, 2, v1::PlanWait::BUFFER}});
  op(v1::COMPUTE, 1, v1::LANE_COMPUTE, 2, -1, -1, {{6, 0}, {8, 0}}, {{6, 0, v1::PlanWait::DATA}, {8, 0, v1::PlanWait::DATA}});
  op(v1::WRITE, 1, v1::LANE_SEND, -1, 2, -1, {{9, 0}}, {{9, 0, v1::PlanWait::DATA}});
  op(v1::COLLECTIVE, 0, v1::LANE_COLLECTIVE, -1, -1, 0, {{3, 0}}, {{3, 0, v1::PlanWait::DATA}});
  op(v1::COLLECTIVE, 1, v1::LANE_COLLECTIVE, -1, -1, 0, {{9, 0}}, {{9, 0, v1::PlanWait::DATA}, {9, 1, v1::PlanWait::NO_OVERLAP}});
  p.ops[11].lane_index = p.ops[12].lane_index = 1;
  p.hash = HashPlan(p);
  return p;
}

// Any plan that CheckPlan accepts, sense or not.
Plan RandomPlan(uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto upto = [&](int n) { return static_cast<int>(rng() % n); };
  Plan p = SmallPlan();
  p.workers[0].host_id = std::string(upto(20), static_cast<char>(upto(128)));
  for (PlanNode& n : p.nodes) {
    double v;
    const uint64_t bits = rng();
    std::memcpy(&v, &bits, sizeof v);
    if (v == v && upto(2)) n.config.set_duration_s(v);
    if (upto(2)) n.config.set_axis(static_cast<int64_t>(rng()));
    if (upto(2)) n.config.set_seed(rng());
    std::string any;
    for (int i = upto(12); i > 0; --i) any.push_back(static_cast<char>(upto(128)));
    n.config.set_message(any);
    n.method = any;
    (*n.config.mutable_extra())[any] = any;
  }
  for (PlanEdge& e : p.edges) {
    if (e.emulated) e.emulate_bandwidth = std::ldexp(static_cast<double>(rng() >> 11), upto(60) - 60);
  }
  p.options.set_memory_limit_bytes(rng());
  if (upto(2)) p.options.clear_emulate();
  if (upto(2)) p.options.mutable_emulate()->Clear();
  p.peak_bytes = {rng(), rng()};
  if (upto(4) == 0) p.peak_bytes.clear();
  if (upto(4) == 0) p.hash.clear();
  for (PlanOp& op : p.ops) {
    for (int i = upto(3); i > 0; --i) {
      const int32_t on = upto(13);
      if (p.ops[on].worker == op.worker) op.waits.push_back({on, 1 + upto(kMaxSlots), static_cast<WaitReason>(1 + upto(5))});
    }
  }
  return p;
}

std::string Bytes(const Plan& p) {
  // Maps have no order on the wire: compare without.
  v1::Plan proto = PlanToProto(p);
  for (v1::PlanActor& a : *proto.mutable_actor()) a.mutable_config()->clear_extra();
  for (v1::PlanNode& n : *proto.mutable_node()) n.mutable_config()->clear_extra();
  return proto.SerializeAsString();
}

TEST_CASE("a small plan as text") {
  const std::string text = PlanToText(SmallPlan());
  for (const char* line :
       {"weft-plan 1\n", "\ngraph small\n", "\nworker 0 w0 host \"host a\" device cpu peak 64\n",
        "\nactor 0 a class std.Source worker 0 config dtype=F32 shape=\"[2, ?<=4]\"\n",
        "\nactor 1 b class std.Math worker 1 config scale=-0 extra[\"a \\\"key\\\"\\x0a\"]=\"\\x00 \\xc3\\xa9\" extra[\"b\"]=\"\"\n",
        "\nnode 1 make1 actor 0 method make out F32[2,?<=4] F32[2,?<=4]\n", "\nnode 3 sum actor 1 method peek config fail_on=[3,-1]\n",
        "\nedge 1 make1:1 -> use:1 from 0 to 1 SHM F32[2,?<=4] bytes 32 slots 2 rendezvous emulate 0.01 333333333.3333333",
        "\nedge 2 use:0 -> y:0 from 1 to -1 SHM F32[2,?<=4] bytes 32 slots 2\n",
        "\nedge 3 sum:0 -> make1:0 from 1 to 0 SHM U8[0] bytes 0 slots 2 control\n",
        "\ngroup 0 grads ALL_REDUCE SUM members make0@0 use@1 root 1 in F32[2,?<=4] out F32[2,?<=4] GLOO\n",
        "\nop 9 on 1 compute COMPUTE node 2 slots 2 args 6.0 8.0 waits data:6 data:8  # w1: COMPUTE use\n",
        "\nop 12 on 1 collective1 COLLECTIVE group 0 slots 2 args 9.0 waits data:9 no_overlap:9@1  # w1: ALL_REDUCE grads\nend\n",
        "\noptions overlap=ON prefetch_depth=1 max_in_flight=4 emulate.latency_s=0.1\n"}) {
    INFO(text);
    CHECK(text.find(line) != std::string::npos);
  }
}

TEST_CASE("text and wire form read back exactly, for whole plans and parts") {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    INFO("seed " << seed);
    const Plan whole = seed == 0 ? SmallPlan() : RandomPlan(seed);
    REQUIRE(CheckPlan(whole).ok());
    for (int32_t w = -1; w < 2; ++w) {
      const Plan p = w < 0 ? whole : PartOf(whole, w);
      const std::string text = PlanToText(p);
      const auto back = PlanFromText(text);
      INFO(back.status().ToString());
      REQUIRE(back.ok());
      CHECK(PlanToText(*back) == text);
      CHECK(Bytes(*back) == Bytes(p));
      const auto wire = PlanFromProto(PlanToProto(p));
      INFO(wire.status().ToString());
      REQUIRE(wire.ok());
      CHECK(PlanToText(*wire) == text);
    }
  }
}

TEST_CASE("comments, empty lines, tabs and carriage returns do not matter") {
  const std::string text = PlanToText(SmallPlan());
  const std::string loose = "# a plan\n\n" + absl::StrReplaceAll(text, {{"\n", "\r\n  # more\r\n"}, {" slots ", "\tslots  "}});
  const auto back = PlanFromText(loose);
  INFO(back.status().ToString());
  REQUIRE(back.ok());
  CHECK(PlanToText(*back) == text);
}

TEST_CASE("the hash is of everything but itself") {
  Plan p = SmallPlan();
  const std::string hash = HashPlan(p);
  CHECK(hash.size() == 16);
  CHECK(hash.find_first_not_of("0123456789abcdef") == std::string::npos);
  p.hash = "0000000000000000";
  CHECK(HashPlan(p) == hash);
  p.ops[3].waits[0].distance = 3;
  CHECK(HashPlan(p) != hash);
}

TEST_CASE("errors in the text give the line and what was expected") {
  const std::string good = PlanToText(SmallPlan());
  const auto error = [&](const std::string& from, const std::string& to) {
    INFO(from);
    REQUIRE(good.find(from) != std::string::npos);
    const auto p = PlanFromText(absl::StrReplaceAll(good, {{from, to}}));
    INFO(to);
    REQUIRE(p.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(p.status().message());
  };
  CHECK(error("weft-plan 1", "weft-plan 2") == "plan text:1: expected version 1 before this at the end of the line");
  CHECK(error("weft-plan 1", "plan").find("plan text:1: expected \"weft-plan\", found \"plan\"") == 0);
  CHECK(error("\nend\n", "\n").find("stops before \"end\"") != std::string::npos);
  CHECK(error("\nend\n", "\nend\nop").find("nothing after \"end\"") != std::string::npos);
  CHECK(error("overlap=ON", "overlap=MAYBE").find("plan text:4: expected a value of Overlap for overlap") == 0);
  CHECK(error("overlap=ON", "overlap=ON overlap=ON").find("each field once") != std::string::npos);
  CHECK(error("overlap=ON", "overlapp=ON").find("expected a field of Options") != std::string::npos);
  CHECK(error("compute COMPUTE node 2", "compute COMPUTER node 2").find("expected a kind of op before this, not \"COMPUTER\"") != std::string::npos);
  CHECK(error("waits data:6", "waits date:6").find("expected a reason") != std::string::npos);
  CHECK(error("collective1", "collective99999999999").find("expected a smaller lane number") != std::string::npos);
  CHECK(error("F32[2,?<=4] bytes 32 slots 2\n", "F33[2] bytes 32 slots 2\n").find("expected a dtype and shape") != std::string::npos);
  CHECK(error("op 9 on", "op 99999999999 on").find("expected a number within range") != std::string::npos);
  CHECK(error("\ngraph small\n", "\ngraph small small\n").find("plan text:2: expected the end of the line") == 0);
  CHECK(error("worker 1 w1", "worker 7 w1").find("expected worker 1 before this") != std::string::npos);
  CHECK(error("args 6.0", "args 60.0").find("op 9: argument names op 60") != std::string::npos);
  CHECK(PlanFromText("").status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("what indexing relies on is checked, and the message names the place") {
  const auto error = [](const std::function<void(Plan*)>& damage) {
    Plan p = SmallPlan();
    damage(&p);
    const auto checked = PlanFromProto(PlanToProto(p));
    REQUIRE(checked.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(checked.status().message());
  };
  CHECK(error([](Plan* p) { p->ops[4].worker = 2; }).find("op 4: worker 2") != std::string::npos);
  CHECK(error([](Plan* p) { p->ops[4].worker = -1; }).find("op 4: worker -1") != std::string::npos);
  CHECK(error([](Plan* p) { p->ops[4].node = 2; }).find("op 4: node use is of another worker") != std::string::npos);
  CHECK(error([](Plan* p) { p->ops[4].node = 77; }).find("op 4: no node 77") != std::string::npos);
  CHECK(error([](Plan* p) { p->ops[5].edge = -5; }).find("op 5: no edge -5") != std::string::npos);
  CHECK(error([](Plan* p) { p->ops[5].kind = v1::WRITE; }).find("op 5: kind does not fit") != std::string::npos);
  CHECK(error([](Plan* p) { p->ops[5].lane = v1::LANE_RECV; }).find("op 5: transfer on a wrong lane") != std::string::npos);
  CHECK(error([](Plan* p) { p->ops[5].lane_index = 8; }).find("op 5: lane index 8") != std::string::npos);
  CHECK(error([](Plan* p) { p->ops[5].args.clear(); }).find("op 5: 0 arguments, 1 needed") != std::string::npos);
  CHECK(error([](Plan* p) { p->ops[5].args[0].output = 1; }).find("op 5: argument names output 1 of op 3, which has 1") != std::string::npos);
  CHECK(error([](Plan* p) { p->ops[5].waits[0].op = 6; }).find("op 5: waits for op 6") != std::string::npos);
  CHECK(error([](Plan* p) { p->ops[5].waits[0].distance = -1; }).find("op 5: wait distance -1") != std::string::npos);
  CHECK(error([](Plan* p) { p->ops[9].waits[0].op = 9; }).find("op 9: waits for itself") != std::string::npos);
  CHECK(error([](Plan* p) { p->ops[6].slots = 3; }).find("op 6: slots 3 differ") != std::string::npos);
  CHECK(error([](Plan* p) { p->ops[6].id = 5; }).find("ids must ascend") != std::string::npos);
  CHECK(error([](Plan* p) { p->edges[0].bytes = 1; }).find("edge 0: bytes 1 do not fit F32[2, ?<=4] (32)") != std::string::npos);
  CHECK(error([](Plan* p) { p->edges[0].dst_worker = 0; }).find("edge 0: both ends are at one place") != std::string::npos);
  CHECK(error([](Plan* p) { p->edges[1].emulate_latency_s = -1; }).find("edge 1: emulated latency") != std::string::npos);
  CHECK(error([](Plan* p) { p->edges[0].slots = 0; }).find("edge 0: slots 0") != std::string::npos);
  CHECK(error([](Plan* p) { p->groups[0].members[1] = 0; }).find("collective grads: two members on one worker") != std::string::npos);
  CHECK(error([](Plan* p) {
          p->groups[0].members.resize(65);
        }).find("collective grads: 65 members: at most 64") != std::string::npos);
  CHECK(error([](Plan* p) { p->groups[0].root_rank = 2; }).find("collective grads: root is no member") != std::string::npos);
  CHECK(error([](Plan* p) { p->groups[0].member_nodes.pop_back(); }).find("not one node name per member") != std::string::npos);
  CHECK(error([](Plan* p) { p->nodes[0].actor = 9; }).find("node make0: no actor 9") != std::string::npos);
  CHECK(error([](Plan* p) { p->nodes[0].name = "no good"; }).find("node name") != std::string::npos);
  CHECK(error([](Plan* p) { p->part_of = 5; }).find("part_of 5") != std::string::npos);
  CHECK(error([](Plan* p) { p->part_of = 0; }).find("is not one of this plan") != std::string::npos);
  CHECK(error([](Plan* p) { p->workers[1].device = "tpu"; }).find("worker w1: device \"tpu\"") != std::string::npos);
  v1::Plan other = PlanToProto(SmallPlan());
  other.set_version(2);
  CHECK(std::string(PlanFromProto(other).status().message()).find("version 2") != std::string::npos);
}

// No sanitizer, no assertion, no endless loop may fire, whatever comes.
TEST_CASE("damaged wire forms are refused or read, never more") {
  google::protobuf::SetLogHandler(nullptr);  // which would tell of every string that is no UTF-8
  const Plan whole = SmallPlan();
  for (const Plan& p : {whole, PartOf(whole, 1)}) {
    const std::string good = PlanToProto(p).SerializeAsString();
    std::mt19937_64 rng(1);
    int parsed = 0, accepted = 0;
    for (int i = 0; i < 30'000; ++i) {
      std::string bad = good;
      for (int k = 1 + static_cast<int>(rng() % 3); k > 0; --k) {
        const size_t at = rng() % bad.size();
        switch (rng() % 4) {
          case 0:
            bad[at] = static_cast<char>(rng());
            break;
          case 1:
            bad[at] = static_cast<char>(bad[at] ^ 1 << rng() % 8);
            break;
          case 2:
            bad.erase(at, 1 + rng() % 4);
            break;
          default:
            bad.insert(at, 1, static_cast<char>(rng()));
        }
        if (bad.empty()) bad = good;
      }
      v1::Plan proto;
      if (!proto.ParseFromString(bad)) continue;
      ++parsed;
      const auto read = PlanFromProto(proto);
      if (!read.ok()) continue;
      ++accepted;
      // What was accepted can be indexed everywhere.
      for (const PlanOp& op : read->ops) CHECK_FALSE(OpName(*read, op).empty());
      REQUIRE(PlanFromText(PlanToText(*read)).ok());
      for (int32_t w = 0; w < static_cast<int32_t>(read->workers.size()); ++w) {
        if (read->part_of < 0) REQUIRE(PlanFromProto(PlanToProto(PartOf(*read, w))).ok());
      }
    }
    CHECK(parsed > 1000);
    CHECK(accepted > 100);
    CHECK(accepted < parsed);
  }
}

TEST_CASE("damaged texts are refused with a place or read, never more") {
  const std::string good = PlanToText(SmallPlan());
  std::mt19937_64 rng(2);
  for (int i = 0; i < 20'000; ++i) {
    std::string bad = good;
    for (int k = 1 + static_cast<int>(rng() % 3); k > 0; --k) {
      const size_t at = rng() % bad.size();
      switch (rng() % 4) {
        case 0:
          bad[at] = static_cast<char>(rng());
          break;
        case 1:
          bad.erase(at, 1 + rng() % 40);
          break;
        case 2:
          bad.insert(at, bad.substr(rng() % bad.size(), rng() % 40));
          break;
        default:
          bad.resize(at + 1);
      }
    }
    const auto p = PlanFromText(bad);
    if (!p.ok()) CHECK(p.status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("lookups and parts") {
  const Plan p = SmallPlan();
  const Plan part = PartOf(p, 1);
  CHECK(part.part_of == 1);
  CHECK(part.hash == p.hash);
  CHECK(part.workers.size() == 2);
  CHECK(part.actors.size() == 1);
  CHECK(part.nodes.size() == 2);
  CHECK(part.edges.size() == 4);
  CHECK(part.ops.size() == 7);
  CHECK(FindNode(part, 2)->name == "use");
  CHECK(FindNode(part, 0) == nullptr);
  CHECK(FindActor(part, 1)->name == "b");
  CHECK(FindActor(part, 0) == nullptr);
  CHECK(FindOp(part, 9)->node == 2);
  CHECK(FindOp(part, 5) == nullptr);
  CHECK(FindEdge(part, 3)->control);
  CHECK(FindEdge(part, 4) == nullptr);
  CHECK(FindGroup(part, 0)->name == "grads");
  CHECK(FindGroup(part, -1) == nullptr);
  CHECK(NumOutputs(p, p.ops[4]) == 2);
  CHECK(NumOutputs(p, p.ops[0]) == 0);
  CHECK(NumOutputs(p, p.ops[6]) == 1);
  CHECK(NumOutputs(p, p.ops[5]) == 0);
}

TEST_CASE("names") {
  const Plan p = SmallPlan();
  CHECK(OpName(p, p.ops[9]) == "COMPUTE use");
  CHECK(OpName(p, p.ops[7]) == "SEND make1:1 -> use:1");
  CHECK(OpName(p, p.ops[10]) == "WRITE use:0 -> y");
  CHECK(OpName(p, p.ops[2]) == "READ sum -> make1 (after)");
  CHECK(OpName(p, p.ops[11]) == "ALL_REDUCE grads");
  CHECK(EdgeName(p, p.edges[2]) == "edge use:0 -> y (w1 -> client)");
  CHECK(WorkerName(p, kClient) == "client");
  CHECK(WorkerName(p, 1) == "w1");
  CHECK(WorkerName(p, 7) == "worker(7)");
  CHECK(LaneName(v1::LANE_COMPUTE, 0) == "compute");
  CHECK(LaneName(v1::LANE_SEND, 0) == "send0");
  CHECK(LaneName(v1::LANE_COLLECTIVE, 3) == "collective3");
  PlanOp none;
  none.kind = static_cast<OpKind>(77);
  CHECK(OpName(p, none) == "OP(77) edge(-1)");
}

}  // namespace
}  // namespace weft
