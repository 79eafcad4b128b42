#include "driver/plan/verify.h"

#include <functional>
#include <map>
#include <random>

#include <catch2/catch.hpp>

#include "common/base/clock.h"
#include "driver/plan/test_plan.h"

namespace weft {
namespace {

// Three workers with every kind of op: an input, a rendezvous and a buffered edge from w0, two collectives over w1 and w2, a pair of
// transfers back, a control edge, an output.
struct Good {
  TestPlan t{3};
  int32_t in, a, b, c, d, e, f, out, z;
  TestPlan::Ends ab, ac, ba, da, ctl;
  std::vector<int32_t> sum, max;
  Plan plan;

  Good() {
    in = t.Input(0, "x");
    a = t.Compute("a", 0, {{in}}, 0, 2, {TestSpec(), TestSpec(v1::F16, {8})});
    ab = t.Transfer(a, 1, {2, true});
    ac = t.Transfer({a, 1}, 2, {2, false});
    b = t.Compute("b", 1, {{ab.in}});
    c = t.Compute("c", 2, {{ac.in}});
    sum = t.Reduce("sum", {b, c});
    max = t.Reduce("max", {b, c});
    d = t.Compute("d", 1, {{sum[0]}, {max[0]}, {ab.in}});
    e = t.Compute("e", 2, {{sum[1]}, {max[1]}});
    ctl = t.Control(e, 0, "f");
    ba = t.Transfer(b, 0, {2, true});
    da = t.Transfer(d, 0, {2, true});
    z = t.Output({max[0]}, "z");
    f = t.Compute("f", 0, {{da.in}, {ba.in}});
    t.Wait(f, ctl.in, 0, v1::PlanWait::CONTROL);
    out = t.Output({f}, "y");
    plan = t.Finish();
  }

  void Swap(int32_t x, int32_t y) {
    std::vector<int32_t> order = SameOrder(plan);
    std::swap(order[x], order[y]);
    plan = Reordered(plan, order);
  }
  void Drop(int32_t x) {
    std::vector<int32_t> order = SameOrder(plan);
    order.erase(order.begin() + x);
    plan = Reordered(plan, order);
  }
  void Double(int32_t x) {
    std::vector<int32_t> order = SameOrder(plan);
    order.insert(order.begin() + x + 1, x);
    plan = Reordered(plan, order);
  }
  void DropWaits(int32_t op, int32_t on) {
    auto& w = plan.ops[op].waits;
    const size_t before = w.size();
    w.erase(std::remove_if(w.begin(), w.end(), [&](const PlanWait& x) { return x.op == on; }), w.end());
    REQUIRE(w.size() < before);
  }
  void StretchWaits(int32_t op, int32_t on) {
    bool found = false;
    for (PlanWait& w : plan.ops[op].waits) {
      if (w.op != on || w.reason != v1::PlanWait::BUFFER) continue;
      ++w.distance;
      found = true;
    }
    REQUIRE(found);
  }
  void Rebyte() { TestPlan::SetBytes(&plan); }
};

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The line (with its indented continuation) of a finding that has all the parts.
bool HasFinding(const std::string& text, const std::vector<std::string>& parts) {
  size_t at = 0;
  while (at < text.size()) {
    size_t end = text.find("\nV", at);
    if (end == std::string::npos) end = text.size();
    const std::string one = text.substr(at, end - at);
    if (std::all_of(parts.begin(), parts.end(), [&](const std::string& p) { return Contains(one, p); })) return true;
    at = end + 1;
  }
  return false;
}

struct Damage {
  const char* name;
  std::function<void(Good&)> apply;
  std::vector<std::string> expect;  // all in one finding
};

const std::vector<Damage>& Damages() {
  static const std::vector<Damage> all = {
      {"sends swapped", [](Good& g) { g.Swap(g.ba.out, g.da.out); }, {"V1", "w1: SEND d:0 -> f:0", "w0: RECV b:0 -> f:1"}},
      {"sends swapped: standstill", [](Good& g) { g.Swap(g.ba.out, g.da.out); }, {"V4", "w1: SEND d:0 -> f:0", "w0: RECV b:0 -> f:1"}},
      {"recvs swapped", [](Good& g) { g.Swap(g.ba.in, g.da.in); }, {"V1", "w1: SEND b:0 -> f:1", "w0: RECV d:0 -> f:0"}},
      {"data wait missing", [](Good& g) { g.DropWaits(g.b, g.ab.in); }, {"V7", "w1: COMPUTE b", "w1: RECV a:0 -> b:0", "without waiting"}},
      {"data wait of an earlier execution",
       [](Good& g) { g.plan.ops[g.b].waits[0].distance = 1; },
       {"V7", "w1: COMPUTE b", "w1: RECV a:0 -> b:0", "without waiting"}},
      {"send's data wait missing", [](Good& g) { g.DropWaits(g.ab.out, g.a); }, {"V7", "w0: SEND a:0 -> b:0", "w0: COMPUTE a"}},
      {"collective's data wait missing", [](Good& g) { g.DropWaits(g.sum[1], g.c); }, {"V7", "w2: ALL_REDUCE sum", "w2: COMPUTE c"}},
      {"send buffer reused", [](Good& g) { g.DropWaits(g.a, g.ab.out), g.DropWaits(g.a, g.ac.out); }, {"V5", "w0: COMPUTE a", "w0: SEND a:0 -> b:0"}},
      {"send buffer of a buffered edge reused", [](Good& g) { g.DropWaits(g.a, g.ac.out); }, {"V5", "w0: COMPUTE a", "w0: WRITE a:1 -> c:0"}},
      {"send buffer waited for too late", [](Good& g) { g.StretchWaits(g.a, g.ab.out), g.StretchWaits(g.a, g.ac.out); }, {"V5", "w0: COMPUTE a", "w0: SEND a:0 -> b:0"}},
      {"fewer buffers than waited for",
       [](Good& g) {
         g.plan.ops[g.a].slots = 1;
         g.Rebyte();
       },
       {"V5", "w0: COMPUTE a", "w0: SEND a:0 -> b:0"}},
      {"receive buffer reused", [](Good& g) { g.DropWaits(g.ba.in, g.f); }, {"V5", "w0: RECV b:0 -> f:1", "w0: COMPUTE f"}},
      {"receive buffer with a late second reader",
       [](Good& g) {
         g.DropWaits(g.ab.in, g.d);  // b reads it too, but d is the last
       },
       {"V5", "w1: RECV a:0 -> b:0", "w1: COMPUTE d"}},
      {"collective's buffer reused", [](Good& g) { g.DropWaits(g.max[0], g.z); }, {"V5", "w1: ALL_REDUCE max", "w1: WRITE value:0 -> z", "distance of 1 to 2"}},
      {"value under a collective reused", [](Good& g) { g.DropWaits(g.b, g.max[0]); }, {"V5", "w1: COMPUTE b", "w1: ALL_REDUCE max"}},
      {"credit differs from buffers", [](Good& g) { ++g.plan.edges[g.plan.ops[g.ac.in].edge].slots; }, {"V7", "w2: READ a:1 -> c:0", "w0"}},
      {"no credit at all", [](Good& g) { g.plan.edges[g.plan.ops[g.ac.in].edge].slots = 0; }, {"V7", "a -> c", "w0", "w2", "slots"}},
      {"no buffer at all", [](Good& g) { g.plan.ops[g.c].slots = 0; }, {"V7", "w2", "slots"}},
      {"collectives reordered on one rank", [](Good& g) { g.Swap(g.sum[0], g.max[0]); }, {"V2", "w1", "w2", "ALL_REDUCE sum", "ALL_REDUCE max"}},
      {"collectives reordered: standstill", [](Good& g) { g.Swap(g.sum[0], g.max[0]); }, {"V4", "w1: ALL_REDUCE sum", "w2: ALL_REDUCE max"}},
      {"launch orders differ on two lanes",
       [](Good& g) { g.Swap(g.max[0], g.ba.out), g.Swap(g.max[1], g.ctl.in); },
       {"V7", "w1", "comes after"}},
      {"compute twice", [](Good& g) { g.Double(g.e), g.Rebyte(); }, {"V7", "w2: COMPUTE e", "once"}},
      {"send twice", [](Good& g) { g.Double(g.ab.out); }, {"V7", "w0: SEND a:0 -> b:0", "once"}},
      {"read twice", [](Good& g) { g.Double(g.ac.in), g.Rebyte(); }, {"V7", "w2: READ a:1 -> c:0", "once"}},
      {"collective twice", [](Good& g) { g.Double(g.sum[1]), g.Rebyte(); }, {"V7", "w2: ALL_REDUCE sum", "once"}},
      {"send missing", [](Good& g) { g.Drop(g.da.out); }, {"V7", "d:0 -> f:0", "no SEND on w1"}},
      {"recv missing", [](Good& g) { g.Drop(g.da.in); }, {"V7", "d:0 -> f:0", "no RECV on w0"}},
      {"write missing", [](Good& g) { g.Drop(g.ac.out); }, {"V7", "a:1 -> c:0", "no WRITE on w0"}},
      {"read missing", [](Good& g) { g.Drop(g.ac.in); }, {"V7", "a:1 -> c:0", "no READ on w2"}},
      {"input's read missing", [](Good& g) { g.Drop(g.in); }, {"V7", "x", "no READ on w0"}},
      {"output's write missing", [](Good& g) { g.Drop(g.out); }, {"V7", "y", "no WRITE on w0"}},
      {"collective's member missing", [](Good& g) { g.Drop(g.max[1]); }, {"V7", "collective max", "no op on w2"}},
      {"compute missing", [](Good& g) { g.Drop(g.e); }, {"V7", "w2", "node e", "no COMPUTE"}},
      {"edge's dtype differs",
       [](Good& g) {
         PlanEdge& e = g.plan.edges[g.plan.ops[g.ab.in].edge];
         e.spec.dtype = v1::I32;  // of the same size
       },
       {"V7", "w0: SEND a:0 -> b:0", "F32[4]", "I32[4]"}},
      {"edge's shape differs",
       [](Good& g) {
         PlanEdge& e = g.plan.edges[g.plan.ops[g.ab.in].edge];
         e.spec = TestSpec(v1::F32, {5});
         e.bytes = 20;
         g.Rebyte();
       },
       {"V7", "w0: SEND a:0 -> b:0", "F32[5]"}},
      {"edge's bytes differ", [](Good& g) { g.plan.edges[g.plan.ops[g.ab.in].edge].bytes = 12; }, {"V7", "a:0 -> b:0", "12", "16", "w0 -> w1"}},
      {"collective's spec differs",
       [](Good& g) { g.plan.groups[0].input = g.plan.groups[0].output = TestSpec(v1::I32); },
       {"V7", "w1: ALL_REDUCE sum", "F32[4]", "I32[4]"}},
      {"collective's output does not fit", [](Good& g) { g.plan.groups[0].op = v1::ALL_GATHER; }, {"V7", "collective sum", "F32[4]"}},
      {"wait for another worker's op", [](Good& g) { g.plan.ops[g.f].waits.push_back({g.d, 0, v1::PlanWait::DATA}); }, {"V7", "w0: COMPUTE f", "w1: COMPUTE d", "another worker"}},
      {"argument from another worker", [](Good& g) { g.plan.ops[g.f].args[0] = {g.d, 0}; }, {"V7", "w0: COMPUTE f", "w1: COMPUTE d", "another worker"}},
      {"argument out of range", [](Good& g) { g.plan.ops[g.f].args[0] = {999, 0}; }, {"V7", "w0", "999"}},
      {"argument's output does not exist", [](Good& g) { g.plan.ops[g.ab.out].args[0].output = 2; }, {"V7", "w0: SEND a:0 -> b:0", "w0: COMPUTE a", "no output 2"}},
      {"the wrong output sent", [](Good& g) { g.plan.ops[g.ab.out].args[0].output = 1; }, {"V7", "w0: SEND a:0 -> b:0", "w0: COMPUTE a"}},
      {"a write's value", [](Good& g) { g.plan.ops[g.f].args[0] = {g.out, 0}; }, {"V7", "w0: COMPUTE f", "w0: WRITE", "no output"}},
      {"arguments crossed", [](Good& g) { std::swap(g.plan.ops[g.f].args[0], g.plan.ops[g.f].args[1]); }, {"V7", "w0: COMPUTE f", "w0: RECV b:0 -> f:1", "w0: RECV d:0 -> f:0"}},
      {"used before it is defined", [](Good& g) { g.Swap(g.f, g.out); }, {"V7", "w0: WRITE f:0 -> y", "w0: COMPUTE f", "defined before"}},
      {"compute where its actor is not", [](Good& g) { g.plan.actors[2].worker = 1; }, {"V7", "w2: COMPUTE c", "actor2 lives on w1"}},
      {"send on a compute lane", [](Good& g) { g.plan.ops[g.ab.out].lane = v1::LANE_COMPUTE; }, {"V7", "w0", "SEND is on a lane"}},
      {"lane that does not exist", [](Good& g) { g.plan.ops[g.ab.out].lane_index = 1; }, {"V7", "w0", "SEND is on lane 1 of 1"}},
      {"wait for the future", [](Good& g) { g.plan.ops[g.f].waits[0].distance = -1; }, {"V7", "w0", "distance -1"}},
      {"wait out of range", [](Good& g) { g.plan.ops[g.f].waits[0].op = -1; }, {"V7", "w0", "waits for op -1"}},
      {"buffered op on a rendezvous edge", [](Good& g) { g.plan.ops[g.ab.out].kind = v1::WRITE; }, {"V7", "w0: WRITE a:0 -> b:0", "rendezvous"}},
      {"edge's other end elsewhere", [](Good& g) { g.plan.edges[g.plan.ops[g.ab.in].edge].dst_worker = 2; }, {"V7", "w1: RECV a:0 -> b:0", "w0 -> w2"}},
      {"edge within one place", [](Good& g) { g.plan.edges[g.plan.ops[g.ab.in].edge].dst_worker = 0; }, {"V7", "w0 -> w0", "one place"}},
      {"edge to nowhere", [](Good& g) { g.plan.edges[g.plan.ops[g.ab.in].edge].dst_worker = 17; }, {"V7", "a -> b", "worker 17"}},
      {"gloo without rendezvous", [](Good& g) { g.plan.edges[g.plan.ops[g.ac.in].edge].transport = v1::GLOO; }, {"V7", "a:1 -> c:0", "w0 -> w2", "GLOO"}},
      {"member twice", [](Good& g) { g.plan.groups[0].members = {1, 1}; }, {"V7", "collective sum", "two members on w1"}},
      {"root that is no member", [](Good& g) { g.plan.groups[0].root_rank = 2; }, {"V7", "collective sum", "root 2"}},
      {"control wait missing", [](Good& g) { g.DropWaits(g.f, g.ctl.in); }, {"V7", "w0: READ e -> f", "waits for"}},
      {"control edge sent too early", [](Good& g) { g.DropWaits(g.ctl.out, g.e); }, {"V7", "w2: WRITE e -> f", "w2: COMPUTE e"}},
      {"op with a wrong id", [](Good& g) { g.plan.ops[3].id = 4; }, {"V7", "op 3", "id 4"}},
      {"node out of range", [](Good& g) { g.plan.ops[g.e].node = 77; }, {"V7", "w2", "node 77"}},
      {"node twice", [](Good& g) { g.plan.nodes[g.plan.ops[g.e].node].name = "c"; }, {"V7", "w2", "node c", "twice"}},
      {"bytes misstated", [](Good& g) { g.plan.peak_bytes[1] -= 1; }, {"V6", "w1"}},
      {"bytes above the limit", [](Good& g) { g.plan.options.set_memory_limit_bytes(100); }, {"V6", "w0", "limit is 100", "COMPUTE a"}},
      {"unbounded under a limit",
       [](Good& g) {
         g.plan.options.set_memory_limit_bytes(1 << 20);
         g.plan.nodes[g.plan.ops[g.f].node].outputs[0].shape.dims[0].kind = Dim::kDynamic;
         PlanEdge& e = g.plan.edges[g.plan.ops[g.out].edge];
         e.spec.shape.dims[0].kind = Dim::kDynamic;
         e.bytes = 0;
         g.Rebyte();
       },
       {"V6", "w0: COMPUTE f", "?"}},
      {"a receive before the compute that its producer needs",
       [](Good& g) { g.plan.ops[g.a].waits.push_back({g.ba.in, 0, v1::PlanWait::NO_OVERLAP}); },
       {"V4", "w0: COMPUTE a", "w0: RECV b:0 -> f:1", "w1: COMPUTE b", "w0: SEND a:0 -> b:0"}},
      {"a circle through a buffered edge",
       [](Good& g) { g.plan.ops[g.a].waits.push_back({g.ctl.in, 0, v1::PlanWait::NO_OVERLAP}); },
       {"V4", "w0: COMPUTE a", "w0: READ e -> f (after) waits for w2: WRITE e -> f (after), whose value it takes", "w2: COMPUTE e", "w2: COMPUTE c", "w0: WRITE a:1 -> c:0"}},
      {"a wait for itself", [](Good& g) { g.plan.ops[g.e].waits.push_back({g.e, 0, v1::PlanWait::PROGRAM}); }, {"V4", "w2: COMPUTE e waits for w2: COMPUTE e"}},
      {"a buffer wait within one execution",
       [](Good& g) {
         for (PlanWait& w : g.plan.ops[g.ba.in].waits) w.distance = 0;
       },
       {"V4", "w0: RECV b:0 -> f:1", "w0: COMPUTE f"}},
  };
  return all;
}

}  // namespace

TEST_CASE("a good plan is accepted") {
  const Good g;
  const absl::Status s = Verify(g.plan);
  INFO(s.message());
  CHECK(s.ok());
  CHECK(Verify(Plan{}).ok());
}

TEST_CASE("every damage is found, with its rule, workers and ops") {
  for (const Damage& d : Damages()) {
    Good g;
    d.apply(g);
    const absl::Status s = Verify(g.plan);
    INFO(d.name << ": " << s.message());
    CHECK(s.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(HasFinding(std::string(s.message()), d.expect));
  }
}

TEST_CASE("the damages are of many kinds and break every rule but V3, which has its own") {
  std::map<std::string, int> rules;
  for (const Damage& d : Damages()) ++rules[d.expect[0]];
  CHECK(Damages().size() >= 60);
  for (const char* rule : {"V1", "V2", "V4", "V5", "V6", "V7"}) CHECK(rules[rule] >= 1);
}

TEST_CASE("launch orders swapped on one worker") {
  // Two transfers that need nothing of each other, one each way: in the same order on both workers, then not.
  TestPlan t(2);
  const int32_t a = t.Compute("a", 0), b = t.Compute("b", 1);
  const auto ab = t.Transfer(a, 1, {2, true, 0, v1::GLOO}), ba = t.Transfer(b, 0, {2, true, 0, v1::GLOO});
  t.Compute("c", 1, {{ab.in}});
  t.Compute("d", 0, {{ba.in}});
  const Plan good = t.Finish();
  CHECK(Verify(good).ok());
  std::vector<int32_t> order = SameOrder(good);
  std::swap(order[ab.in], order[ba.out]);
  const absl::Status s = Verify(Reordered(good, order));
  INFO(s.message());
  CHECK(HasFinding(std::string(s.message()),
                   {"V3", "w0 has SEND a:0 -> c:0 before RECV b:0 -> d:0", "w1 has SEND b:0 -> d:0 before RECV a:0 -> c:0"}));
  CHECK_FALSE(Contains(std::string(s.message()), "V1"));
}

TEST_CASE("launch orders of one device must fit into one order, even where lanes would flow") {
  // Each worker has its send before its receive: fine for the lanes, not for one launch order.
  TestPlan t(2);
  const int32_t a = t.Compute("a", 0), b = t.Compute("b", 1);
  const int32_t ea = t.Edge({a}, 1, {2, true, 0, v1::GLOO}), eb = t.Edge({b}, 0, {2, true, 0, v1::GLOO});
  t.Out(ea, {a});
  t.Out(eb, {b});
  const int32_t ra = t.In(ea), rb = t.In(eb);
  t.Compute("c", 1, {{ra}});
  t.Compute("d", 0, {{rb}});
  const absl::Status s = Verify(t.Finish());
  INFO(s.message());
  CHECK(HasFinding(std::string(s.message()), {"V3", "w0", "w1", "SEND a:0 -> c:0", "RECV b:0 -> d:0"}));
  CHECK_FALSE(Contains(std::string(s.message()), "V4"));
}

TEST_CASE("buffers: what lanes imply needs no wait of its own") {
  TestPlan t(2);
  const int32_t a = t.Compute("a", 0, {}, 0, 1);
  const int32_t b = t.Compute("b", 0, {{a}}, 0, 1);  // same lane as a
  const auto ab = t.Transfer(b, 1, {1, true});
  const auto ab2 = t.Transfer(b, 1, {1, true});
  const int32_t c = t.Compute("c", 1, {{ab.in}, {ab2.in}});
  Plan plan = t.Finish();
  CHECK(Verify(plan).ok());
  // One wait for the last op of the send lane covers both sends; a distance of slots - 1 covers the whole lane.
  auto& waits = plan.ops[b].waits;
  waits.erase(std::remove(waits.begin(), waits.end(), PlanWait{ab.out, 1, v1::PlanWait::BUFFER}), waits.end());
  CHECK(Verify(plan).ok());
  for (PlanWait& w : waits) {
    if (w.op == ab2.out) w.op = ab.out;
  }
  CHECK_FALSE(Verify(plan).ok());
  plan.ops[b].slots = 2;
  TestPlan::SetBytes(&plan);
  CHECK(Verify(plan).ok());
  CHECK(plan.ops[c].args.size() == 2);
}

TEST_CASE("transfers that cross are fine where nothing blocks") {
  TestPlan t(2);
  const int32_t a = t.Compute("a", 0), b = t.Compute("b", 1);
  const auto ab = t.Transfer(a, 1, {1, true});
  const auto ba = t.Transfer(b, 0, {1, true});
  t.Compute("c", 1, {{ab.in}});
  t.Compute("d", 0, {{ba.in}});
  const absl::Status s = Verify(t.Finish());
  INFO(s.message());
  CHECK(s.ok());
}

TEST_CASE("parts and findings without end") {
  Good g;
  CHECK(Contains(std::string(Verify(PartOf(g.plan, 1)).message()), "w1"));
  for (PlanOp& o : g.plan.ops) o.id = 7;
  for (int i = 0; i < 1000; ++i) g.plan.ops.push_back(g.plan.ops[0]);
  const std::string text(Verify(g.plan).message());
  CHECK(std::count(text.begin(), text.end(), '\n') == 101);
  CHECK(Contains(text, "more"));
}

TEST_CASE("any plan at all is survived") {
  std::mt19937 rng(7);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    Good g;
    Scramble(&rng, &g.plan);
    refused += !Verify(g.plan).ok();
  }
  CHECK(refused > 2000);
}

// A pipeline of many stages over four workers; run with [.bench] to see the time.
TEST_CASE("a million ops", "[.bench]") {
  TestPlan t(4);
  int32_t v = t.Compute("n0", 0);
  for (int i = 1; i < 334000; ++i) v = t.Compute(absl::StrCat("n", i), i % 4, {{t.Transfer(v, i % 4, {2, i % 3 != 0}).in}});
  const Plan plan = t.Finish();
  const Nanos start = Clock::Real()->Now();
  const absl::Status s = Verify(plan);
  WARN(plan.ops.size() << " ops verified in " << ToSeconds(Clock::Real()->Now() - start) << " s");
  INFO(s.message());
  CHECK(s.ok());
}

}  // namespace weft
