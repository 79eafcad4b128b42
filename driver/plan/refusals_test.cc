// What must be refused (reference of pipeline schedules), at the level of plans. What is of schedules and graphs stands in
// driver/schedules (W before I, a pass twice, a stage on two workers, m not divisible) and memory_test.cc (a byte limit below the minimum).

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "driver/plan/test_plan.h"
#include "driver/plan/verify.h"
#include "driver/simulate/simulator.h"

namespace weft {
namespace {

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// 1F1B with each pass lowered to blocking RECV, COMPUTE, blocking SEND. Both ends of a transfer stand where the lists of their workers put
// them, since no global order has them at one instant.
class BlockingPipeline {
 public:
  BlockingPipeline(int p, int m) : p_(p), m_(m), t_(p), forward_(p, std::vector<int32_t>(m, -1)), out_(forward_), back_(forward_) {
    std::vector<std::vector<Pass>> lists(p);
    for (int r = 0; r < p; ++r) {
      int f = 0, b = 0;
      while (f < std::min(p - 1 - r, m)) lists[r].push_back({false, f++});
      while (f < m) lists[r].push_back({false, f++}), lists[r].push_back({true, b++});
      while (b < m) lists[r].push_back({true, b++});
    }
    // An op that takes a value must be built after the edge: goes round until all lists are through.
    std::vector<size_t> next(p, 0);
    for (int left = 2 * m * p; left > 0;) {
      for (int r = 0; r < p; ++r) {
        while (next[r] < lists[r].size() && Add(r, lists[r][next[r]])) ++next[r], --left;
      }
    }
    t_.NoOverlap();
    plan_ = t_.Finish();
  }

  const Plan& plan() const { return plan_; }

 private:
  struct Pass {
    bool backward;
    int k;
  };

  bool Add(int r, const Pass& pass) {
    std::vector<PlanValue> args;
    if (!pass.backward && r > 0) {
      if (out_[r - 1][pass.k] < 0) return false;
      args.push_back({t_.In(out_[r - 1][pass.k])});
    }
    if (pass.backward) {
      if (r + 1 < p_ && back_[r + 1][pass.k] < 0) return false;
      if (r + 1 < p_) args.push_back({t_.In(back_[r + 1][pass.k])});
      args.push_back({forward_[r][pass.k]});
    }
    const int32_t op = t_.Compute(absl::StrCat(pass.backward ? "gradient" : "F", pass.k, ".", r), r, args, 1, m_);
    if (!pass.backward) forward_[r][pass.k] = op;
    const int to = pass.backward ? r - 1 : r + 1;
    if (to < 0 || to >= p_) return true;
    const int32_t e = t_.Edge({op}, to, {1, true});
    t_.Out(e, {op});
    (pass.backward ? back_ : out_)[r][pass.k] = e;
    return true;
  }

  const int p_, m_;
  TestPlan t_;
  std::vector<std::vector<int32_t>> forward_, out_, back_;  // by worker and microbatch: op, edges
  Plan plan_;
};

}  // namespace

TEST_CASE("1F1B with blocking receives and sends is refused, with its workers and ops") {
  for (int p = 2; p <= 8; ++p) {
    for (const int m : {2, 4, 8, 16}) {
      INFO("p " << p << " m " << m);
      const BlockingPipeline pipeline(p, m);
      const absl::Status s = Verify(pipeline.plan());
      INFO(s.message());
      CHECK(s.code() == absl::StatusCode::kFailedPrecondition);
      const std::string text(s.message());
      CHECK(Contains(text, "V4 these ops wait for each other for ever"));
      // Two neighbours that each stand at a send: the forward one at the last before its first gradient.
      int pairs = 0;
      for (int r = 0; r + 1 < p; ++r) {
        const int k = p - 1 - r;
        pairs += k < m && Contains(text, absl::StrCat("w", r, ": SEND F", k, ".", r, ":0 -> F", k, ".", r + 1, ":0")) &&
                 Contains(text, absl::StrCat("w", r + 1, ": SEND gradient0.", r + 1, ":0 -> gradient0.", r, ":0"));
      }
      CHECK(pairs >= 1);

      // Where it really stands when it is run: the last two workers first.
      const auto run = Simulate(pipeline.plan(), CostModel::Default(), {1, 1, true});
      REQUIRE(run.status().code() == absl::StatusCode::kFailedPrecondition);
      const std::string stuck(run.status().message());
      INFO(stuck);
      CHECK(Contains(stuck, absl::StrCat("w", p - 2, " send0: SEND F1.", p - 2, ":0 -> F1.", p - 1, ":0 of execution 0 is issued and waits for w", p - 1)));
      CHECK(Contains(stuck, absl::StrCat("w", p - 1, " send0: SEND gradient0.", p - 1, ":0 -> gradient0.", p - 2,
                                         ":0 of execution 0 is issued and waits for w", p - 2)));
    }
  }
}

TEST_CASE("1F1B with blocking receives and sends, p = 2, m = 4: the words of the reference") {
  const absl::Status s = Verify(BlockingPipeline(2, 4).plan());
  const std::string text(s.message());
  INFO(text);
  CHECK(Contains(text, "w0: SEND F1.0:0 -> F1.1:0"));
  CHECK(Contains(text, "w1: SEND gradient0.1:0 -> gradient0.0:0"));
  // One microbatch has nothing to cross.
  for (int p = 2; p <= 8; ++p) CHECK(Verify(BlockingPipeline(p, 1).plan()).ok());
}

TEST_CASE("mismatches, missing ends, W before I, an op twice, a stage on two workers") {
  struct Case {
    const char* name;
    std::function<void(Plan*)> damage;
    std::vector<std::string> expect;
  };
  // w0: F -> w1: f, I (its value to w0's J), W.
  const auto build = [] {
    TestPlan t(2);
    const int32_t f0 = t.Compute("F", 0);
    const auto x = t.Transfer(f0, 1, {2, true});
    const int32_t f1 = t.Compute("f", 1, {{x.in}});
    const int32_t i = t.Compute("I", 1, {{f1}});
    t.Compute("W", 1, {{i}});
    const auto g = t.Transfer(i, 0, {2, true});
    t.Compute("J", 0, {{g.in}});
    return t.Finish();
  };
  const auto at = [](Plan* plan, const std::string& name) -> PlanOp& {
    for (PlanOp& o : plan->ops) {
      if (OpName(*plan, o) == name) return o;
    }
    FAIL("no " << name);
    return plan->ops[0];
  };
  const std::vector<Case> cases = {
      {"dtype", [](Plan* p) { p->edges[0].spec.dtype = v1::I32; }, {"V7", "w0: SEND F:0 -> f:0", "F32[4]", "I32[4]"}},
      {"size", [](Plan* p) { p->edges[0].bytes = 20; }, {"V7", "F:0 -> f:0 (w0 -> w1)", "20"}},
      {"one end missing",
       [&](Plan* p) {
         std::vector<int32_t> order = SameOrder(*p);
         order.erase(order.begin() + at(p, "SEND I:0 -> J:0").id);
         *p = Reordered(*p, order);
       },
       {"V7", "I:0 -> J:0", "no SEND on w1"}},
      {"W before I",
       [&](Plan* p) {
         std::vector<int32_t> order = SameOrder(*p);
         std::swap(order[at(p, "COMPUTE W").id], order[at(p, "COMPUTE I").id]);
         *p = Reordered(*p, order);
       },
       {"V7", "w1: COMPUTE W", "w1: COMPUTE I", "defined before"}},
      {"an op twice",
       [&](Plan* p) {
         std::vector<int32_t> order = SameOrder(*p);
         order.push_back(at(p, "COMPUTE W").id);
         *p = Reordered(*p, order);
       },
       {"V7", "w1: COMPUTE W", "once"}},
      {"a stage on two workers", [&](Plan* p) { at(p, "COMPUTE W").worker = 0; }, {"V7", "w0: COMPUTE W", "actor1 lives on w1"}},
  };
  CHECK(Verify(build()).ok());
  for (const Case& c : cases) {
    Plan plan = build();
    c.damage(&plan);
    TestPlan::SetBytes(&plan);
    const std::string text(Verify(plan).message());
    INFO(c.name << ": " << text);
    bool found = false;
    for (size_t from = 0; from < text.size();) {
      size_t to = text.find("\nV", from);
      if (to == std::string::npos) to = text.size();
      const std::string one = text.substr(from, to - from);
      found |= std::all_of(c.expect.begin(), c.expect.end(), [&](const std::string& part) { return Contains(one, part); });
      from = to + 1;
    }
    CHECK(found);
  }
}

}  // namespace weft
