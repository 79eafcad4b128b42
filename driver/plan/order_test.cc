#include "driver/plan/order.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace weft {
namespace {

// Any acyclic program: tasks in one global order, workers, transfers, collectives and depths at random; the places of a worker's tasks
// are shuffled, so that the prefetch bound stands in the way as badly as it can.
Program RandomProgram(uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto upto = [&](int n) { return static_cast<int>(rng() % n); };
  Program p;
  p.workers = 1 + upto(5);
  const int nodes = 1 + upto(60);
  for (int t = 0; t < nodes; ++t) p.tasks.push_back({upto(p.workers), 0, t, -1});
  std::vector<int> made;  // tasks whose value can be taken, in an order that has no circle
  for (int t = 0; t < nodes; ++t) {
    for (int k = upto(4); k > 0 && !made.empty(); --k) {
      const int from = made[upto(static_cast<int>(made.size()))];
      if (p.tasks[from].worker == p.tasks[t].worker) {
        p.local.push_back({from, t});
      } else if (p.tasks[from].group < 0) {
        p.transfers.push_back({from, t, rng() % 2 == 0, upto(3)});
      }
    }
    if (rng() % 8 == 0) p.transfers.push_back({-1, t, false, upto(3)});
    if (rng() % 8 == 0) p.transfers.push_back({t, -1, false, 0});
    made.push_back(t);
    if (rng() % 6 == 0) {
      // A collective over the last task of some workers.
      std::vector<int> last(p.workers, -1);
      for (int u = 0; u <= t; ++u) last[p.tasks[u].worker] = u;
      const int group = p.groups++;
      for (int w = 0; w < p.workers; ++w) {
        if (last[w] < 0) continue;
        const int member = static_cast<int>(p.tasks.size());
        p.tasks.push_back({w, 0, last[w], group});
        p.local.push_back({last[w], member});
        made.push_back(member);
      }
    }
  }
  std::vector<std::vector<int>> of(p.workers);
  for (size_t t = 0; t < p.tasks.size(); ++t) of[p.tasks[t].worker].push_back(static_cast<int>(t));
  for (std::vector<int>& list : of) {
    std::shuffle(list.begin(), list.end(), rng);
    for (size_t i = 0; i < list.size(); ++i) p.tasks[list[i]].local = static_cast<int>(i);
  }
  // Program order where it contradicts nothing: by number.
  std::vector<int> last(p.workers, -1);
  for (int t = 0; t < nodes; ++t) {
    const int w = p.tasks[t].worker;
    if (last[w] >= 0 && rng() % 2 == 0) p.program.push_back({last[w], t});
    last[w] = t;
  }
  return p;
}

TEST_CASE("every acyclic program is ordered completely, each step once and after what it needs") {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const Program p = RandomProgram(seed);
    const auto steps = OrderSteps(p);
    INFO("seed " << seed);
    REQUIRE(steps.ok());
    const int tasks = static_cast<int>(p.tasks.size());
    std::vector<int> take(tasks, -1), run(tasks, -1), give(tasks, -1), out(p.transfers.size(), -1), in(p.transfers.size(), -1);
    const auto once = [](int* place, int at) {
      REQUIRE(*place == -1);
      *place = at;
    };
    for (int i = 0; i < static_cast<int>(steps->size()); ++i) {
      const Step& s = (*steps)[i];
      switch (s.kind) {
        case StepKind::kTake:
          once(&take[s.index], i);
          break;
        case StepKind::kRun:
          once(&run[s.index], i);
          break;
        case StepKind::kGive:
          once(&give[s.index], i);
          break;
        case StepKind::kGroup:
          for (int t = 0; t < tasks; ++t) {
            if (p.tasks[t].group == s.index) once(&run[t], i);
          }
          break;
        case StepKind::kExchange:
          once(&out[s.index], i);
          once(&in[s.index], i);
          break;
        case StepKind::kWrite:
          once(&out[s.index], i);
          break;
        case StepKind::kRead:
          once(&in[s.index], i);
          break;
      }
    }
    for (int t = 0; t < tasks; ++t) REQUIRE(run[t] >= 0);
    for (size_t x = 0; x < p.transfers.size(); ++x) {
      const Transfer& t = p.transfers[x];
      if (t.src_task >= 0) REQUIRE(out[x] > run[t.src_task]);
      if (t.dst_task >= 0) {
        REQUIRE(in[x] >= 0);
        REQUIRE(in[x] < run[t.dst_task]);
      }
      if (t.src_task >= 0 && t.dst_task >= 0) REQUIRE((t.rendezvous ? out[x] == in[x] : out[x] < in[x]));
    }
    for (const auto& [from, to] : p.local) REQUIRE(run[from] < run[to]);
    for (const auto& [from, to] : p.program) REQUIRE(run[from] < run[to]);
    CHECK(*OrderSteps(p) == *steps);
  }
}

TEST_CASE("the prefetch bound gives way rather than block: both actors send first, depth 0") {
  Program p;
  p.workers = 2;
  p.tasks = {{0, 0, 1, -1}, {1, 0, 2, -1}, {1, 1, 3, -1}, {0, 1, 4, -1}};
  p.transfers = {{0, 2, true, 0}, {1, 3, true, 0}};
  p.program = {{0, 3}, {1, 2}};
  const auto steps = OrderSteps(p);
  REQUIRE(steps.ok());
  CHECK(std::count_if(steps->begin(), steps->end(), [](const Step& s) { return s.kind == StepKind::kExchange; }) == 2);
}

TEST_CASE("a circle is refused and its tasks are named") {
  Program p;
  p.workers = 2;
  p.tasks = {{0, 0, 0, -1}, {0, 1, 1, -1}, {1, 0, 2, -1}, {1, 1, 3, -1}};
  p.program = {{0, 1}};
  p.transfers = {{1, 2, true, 1}, {2, 0, true, 1}};
  p.name = [](int32_t t) { return "node n" + std::to_string(t); };
  const auto steps = OrderSteps(p);
  REQUIRE(!steps.ok());
  CHECK(steps.status().code() == absl::StatusCode::kInvalidArgument);
  const std::string text(steps.status().message());
  for (const char* name : {"node n0", "node n1", "node n2"}) CHECK(text.find(name) != std::string::npos);
  CHECK(text.find("node n3") == std::string::npos);
}

TEST_CASE("a long chain over two workers is ordered in well under a second per hundred thousand tasks") {
  Program p;
  p.workers = 2;
  constexpr int kTasks = 200'000;
  for (int t = 0; t < kTasks; ++t) {
    p.tasks.push_back({t % 2, t / 2, t, -1});
    if (t > 0) p.transfers.push_back({t - 1, t, t % 3 == 0, 1});
    if (t > 1) p.program.push_back({t - 2, t});
  }
  const auto start = std::chrono::steady_clock::now();
  const auto steps = OrderSteps(p);
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  REQUIRE(steps.ok());
  CHECK(s < 5);  // takes 0.1 s; a quadratic order would take minutes
}

}  // namespace
}  // namespace weft
