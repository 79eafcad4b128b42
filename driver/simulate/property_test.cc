// Random plans: what the verifier accepts runs to its end under any number in flight and any times, and waits that only take overlap away
// never make a plan faster.

#include <map>
#include <random>
#include <tuple>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "driver/plan/test_plan.h"
#include "driver/plan/verify.h"
#include "driver/simulate/simulator.h"

namespace weft {
namespace {

class Generator {
 public:
  explicit Generator(uint32_t seed) : rng_(seed) {}

  int Below(int n) { return static_cast<int>(rng_() % static_cast<uint32_t>(n)); }

  // 2 to 6 workers; values move by links, shared memory and collectives; both ends of a link stand next to each other, reads anywhere after
  // their writes.
  TestPlan Make() {
    const int workers = 2 + Below(5);
    TestPlan t(workers);
    const int recv_lanes = 1 + Below(2);
    t.plan().options.set_send_lanes(recv_lanes);
    t.plan().options.set_recv_lanes(recv_lanes);
    std::vector<std::vector<int32_t>> values(workers);  // ops with a value there
    std::vector<int32_t> unread;                        // buffered edges that are written but not read
    const int steps = 4 + Below(36);
    for (int w = 0; w < workers; ++w) {
      if (Below(2) == 0) values[w].push_back(t.Input(w, absl::StrCat("in", w)));
    }
    for (int i = 0; i < steps; ++i) {
      const int w = Below(workers);
      switch (Below(6)) {
        case 0:
        case 1:
        case 2: {
          std::vector<PlanValue> args;
          for (int a = Below(3); a > 0 && !values[w].empty(); --a) args.push_back({Any(values[w])});
          values[w].push_back(t.Compute(absl::StrCat("n", i), w, args, Below(4), 1 + Below(3)));
          break;
        }
        case 3:
        case 4: {
          const int to = (w + 1 + Below(workers - 1)) % workers;
          if (values[w].empty()) break;
          const int32_t v = Any(values[w]);
          const bool link = Below(2) == 0;
          const int32_t e = t.Edge({v}, to, {1 + Below(3), link, static_cast<double>(Below(4)), v1::SHM, Below(recv_lanes)});
          t.Out(e, {v});
          if (link || Below(2) == 0) {
            values[to].push_back(t.In(e));
          } else {
            unread.push_back(e);
          }
          break;
        }
        default: {
          std::vector<int32_t> members;
          for (int m = 0; m < workers; ++m) {
            if (!values[m].empty() && Below(3) > 0) members.push_back(Any(values[m]));
          }
          if (members.size() < 2) break;
          for (const int32_t op : t.Reduce(absl::StrCat("g", i), members)) values[t.op(op).worker].push_back(op);
        }
      }
      if (!unread.empty() && Below(3) == 0) Read(&t, &unread, &values);
    }
    while (!unread.empty()) Read(&t, &unread, &values);
    // Everything brought must be taken; some of it goes out.
    for (int w = 0; w < workers; ++w) {
      std::vector<PlanValue> args;
      for (const int32_t v : values[w]) args.push_back({v});
      const int32_t last = t.Compute(absl::StrCat("last", w), w, args, 1);
      if (Below(2) == 0) t.Output({last}, absl::StrCat("out", w));
    }
    return t;
  }

 private:
  int32_t Any(const std::vector<int32_t>& list) { return list[Below(static_cast<int>(list.size()))]; }

  void Read(TestPlan* t, std::vector<int32_t>* unread, std::vector<std::vector<int32_t>>* values) {
    const int i = Below(static_cast<int>(unread->size()));
    const int32_t in = t->In((*unread)[i]);
    unread->erase(unread->begin() + i);
    (*values)[t->op(in).worker].push_back(in);
  }

  std::mt19937 rng_;
};

// Times drawn by lot but fixed for a node or edge.
CostModel RandomCosts(uint32_t seed) {
  const auto draw = [seed](int32_t id, uint32_t salt) {
    std::mt19937 rng(seed ^ (static_cast<uint32_t>(id) * 2654435761u) ^ salt);
    return static_cast<Nanos>(rng() % 3 == 0 ? 0 : rng() % 1000);
  };
  CostModel c;
  c.compute = [draw](const Plan&, const PlanNode& n) { return draw(n.id, 1); };
  c.transfer = [draw](const Plan&, const PlanEdge& e) { return draw(e.id, 2); };
  c.collective = [draw](const Plan&, const PlanGroup& g) { return draw(g.id, 3); };
  return c;
}

// Every event of a complete run keeps the rules: checked independently of the simulator's own bookkeeping.
void CheckRun(const Plan& plan, const SimResult& r, int64_t executions) {
  const size_t ops = plan.ops.size();
  REQUIRE(r.events.size() == ops * executions);
  std::vector<SimEvent> at(ops * executions, SimEvent{-1, 0, 0, 0});
  for (const SimEvent& e : r.events) {
    REQUIRE(at[e.execution * ops + e.op].op == -1);
    at[e.execution * ops + e.op] = e;
  }
  std::map<std::tuple<int, int, int>, Nanos> lane_end;
  bool good = true;
  for (int64_t k = 0; k < executions; ++k) {
    for (size_t i = 0; i < ops; ++i) {
      const PlanOp& o = plan.ops[i];
      const SimEvent& e = at[k * ops + i];
      Nanos& free = lane_end[{o.worker, o.lane, o.lane_index}];
      good &= e.start >= free && e.end >= e.start;
      free = e.end;
      for (const PlanWait& w : o.waits) good &= k < w.distance || at[(k - w.distance) * ops + w.op].end <= e.start;
    }
  }
  // A value is not read before it is written, and its slot not written before all its readers are done.
  std::vector<int32_t> out(plan.edges.size(), -1), in = out;
  for (const PlanOp& o : plan.ops) {
    if (o.kind == v1::WRITE || o.kind == v1::SEND) out[o.edge] = o.id;
    if (o.kind == v1::READ || o.kind == v1::RECV) in[o.edge] = o.id;
  }
  for (const PlanOp& o : plan.ops) {
    for (const PlanValue& v : o.args) {
      const PlanOp& from = plan.ops[v.op];
      const int32_t writer = from.kind == v1::READ ? out[from.edge] : from.id;
      if (writer < 0) continue;  // the client's
      for (int64_t k = 0; k + from.slots < executions; ++k) good &= at[(k + from.slots) * ops + writer].start >= at[k * ops + o.id].end;
      for (int64_t k = 0; k < executions; ++k) good &= at[k * ops + v.op].end <= at[k * ops + o.id].start;
    }
  }
  for (const PlanEdge& e : plan.edges) {
    if (out[e.id] < 0 || in[e.id] < 0) continue;
    for (int64_t k = 0; k < executions; ++k) {
      const SimEvent &s = at[k * ops + out[e.id]], &d = at[k * ops + in[e.id]];
      good &= e.rendezvous ? s.start == d.start && s.end == d.end : d.start >= s.end;
    }
  }
  CHECK(good);
}

}  // namespace

TEST_CASE("a verified plan runs to its end, whatever is in flight and whatever things take") {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    Generator g(seed);
    const Plan plan = g.Make().Finish();
    const absl::Status verified = Verify(plan);
    INFO(verified.message());
    REQUIRE(verified.ok());
    Nanos before = -1;
    for (const int32_t in_flight : {64, 8, 3, 2, 1}) {
      const absl::StatusOr<SimResult> r = Simulate(plan, RandomCosts(seed), {6, in_flight, true});
      INFO(r.status().message());
      REQUIRE(r.ok());
      CheckRun(plan, *r, 6);
      CHECK(r->makespan >= before);  // fewer in flight is never faster
      before = r->makespan;
      CHECK(Simulate(plan, CostModel::Default(), {6, in_flight, false}).ok());
    }
  }
}

TEST_CASE("waits that take overlap away never make a plan faster") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    Generator g(seed), same(seed);
    const Plan overlapped = g.Make().Finish();
    TestPlan t = same.Make();
    t.NoOverlap();
    const Plan plain = t.Finish();
    REQUIRE(plain.ops.size() == overlapped.ops.size());
    const absl::Status verified = Verify(plain);
    INFO(verified.message());
    REQUIRE(verified.ok());
    for (const int32_t in_flight : {1, 4}) {
      const auto a = Simulate(overlapped, RandomCosts(seed), {5, in_flight, false});
      const auto b = Simulate(plain, RandomCosts(seed), {5, in_flight, false});
      REQUIRE(a.ok());
      REQUIRE(b.ok());
      CHECK(a->makespan <= b->makespan);
      for (size_t k = 0; k < 5; ++k) CHECK(a->execution_end[k] <= b->execution_end[k]);
    }
  }
}

TEST_CASE("liveness and simulation agree on damaged orders and waits") {
  int stuck = 0, live = 0;
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    INFO("seed " << seed);
    Generator g(seed);
    Plan plan = g.Make().Finish();
    for (int h = 1 + g.Below(3); h > 0; --h) {
      if (g.Below(2) == 0) {
        std::vector<int32_t> order = SameOrder(plan);
        std::swap(order[g.Below(static_cast<int>(order.size()))], order[g.Below(static_cast<int>(order.size()))]);
        plan = Reordered(plan, order);
      } else {
        PlanOp& o = plan.ops[g.Below(static_cast<int>(plan.ops.size()))];
        const int32_t on = g.Below(static_cast<int>(plan.ops.size()));
        if (plan.ops[on].worker == o.worker) o.waits.push_back({on, g.Below(2), v1::PlanWait::NO_OVERLAP});
      }
    }
    const absl::Status s = Verify(plan);
    const bool v4 = s.message().find("V4") != absl::string_view::npos;
    for (const int32_t in_flight : {1, 5}) {
      const absl::StatusOr<SimResult> r = Simulate(plan, RandomCosts(seed), {7, in_flight, false});
      INFO(s.message() << "\n" << r.status().message());
      CHECK(r.ok() == !v4);
    }
    ++(v4 ? stuck : live);
  }
  CHECK(stuck > 100);
  CHECK(live > 100);
}

TEST_CASE("damage that the verifier lets pass is harmless: no value is taken before it is there, no buffer overwritten while it is read") {
  int refused = 0, harmless = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    INFO("seed " << seed);
    Generator g(seed);
    Plan plan = g.Make().Finish();
    const auto any_op = [&]() -> PlanOp& { return plan.ops[g.Below(static_cast<int>(plan.ops.size()))]; };
    for (int h = 1 + g.Below(2); h > 0; --h) {
      PlanOp& o = any_op();
      switch (g.Below(5)) {
        case 0:
          if (!o.waits.empty()) o.waits.erase(o.waits.begin() + g.Below(static_cast<int>(o.waits.size())));
          break;
        case 1:
          if (!o.waits.empty()) o.waits[g.Below(static_cast<int>(o.waits.size()))].distance += 1;
          break;
        case 2:
          o.slots = std::max(1, o.slots - 1);
          break;
        case 3:
          if (o.edge >= 0) {
            PlanEdge& e = plan.edges[o.edge];
            e.slots = std::max(1, e.slots + (g.Below(2) == 0 ? 1 : -1));
            for (PlanOp& x : plan.ops) {
              if (x.edge == e.id && (x.kind == v1::READ || x.kind == v1::RECV)) x.slots = e.slots;
            }
          }
          break;
        default: {
          std::vector<int32_t> order = SameOrder(plan);
          std::swap(order[o.id], order[any_op().id]);
          plan = Reordered(plan, order);
        }
      }
    }
    TestPlan::SetBytes(&plan);
    if (!Verify(plan).ok()) {
      ++refused;
      continue;
    }
    ++harmless;
    for (uint32_t costs = 0; costs < 3; ++costs) {
      const absl::StatusOr<SimResult> r = Simulate(plan, RandomCosts(seed + costs * 7919), {6, 3, true});
      INFO(r.status().message());
      REQUIRE(r.ok());
      CheckRun(plan, *r, 6);
    }
  }
  CHECK(refused > 500);
  CHECK(harmless > 150);
}

TEST_CASE("any plan at all is survived, and what is verified runs") {
  std::mt19937 rng(11);
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    Generator g(seed);
    Plan plan = g.Make().Finish();
    if (plan.edges.empty() || plan.groups.empty()) continue;
    Scramble(&rng, &plan);
    const bool verified = Verify(plan).ok();
    const absl::StatusOr<SimResult> r = Simulate(plan, RandomCosts(seed), {3, 2, true});
    INFO("seed " << seed << ": " << r.status().message());
    CHECK((r.ok() || !verified));
  }
}

TEST_CASE("the same plan gives the same result") {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Generator g(seed);
    const Plan plan = g.Make().Finish();
    const auto a = Simulate(plan, RandomCosts(seed), {5, 3, true}), b = Simulate(plan, RandomCosts(seed), {5, 3, true});
    REQUIRE(a.ok());
    REQUIRE(a->events.size() == b->events.size());
    for (size_t i = 0; i < a->events.size(); ++i) {
      const SimEvent &x = a->events[i], &y = b->events[i];
      REQUIRE((x.op == y.op && x.execution == y.execution && x.start == y.start && x.end == y.end));
    }
  }
}

}  // namespace weft
