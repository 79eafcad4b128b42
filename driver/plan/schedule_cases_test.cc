// Small graphs with known orders: what the order pass alone gives, projected on each worker. R stands at a task's last receive, W at its
// last send.

#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "driver/plan/order.h"

namespace weft {
namespace {

// Builds a program with one actor per worker; tasks of a worker in the order in which they are added.
class Case {
 public:
  Case(int workers, int depth) : depth_(depth) {
    p_.workers = workers;
    last_.assign(workers, -1);
    size_.assign(workers, 0);
  }

  int Task(int worker, int id) {
    const int t = AddTask(worker, id, -1);
    if (last_[worker] >= 0) p_.program.push_back({last_[worker], t});
    last_[worker] = t;
    return t;
  }
  // A member of a collective with a value of its worker.
  int Member(int worker, int id, int group, int of) {
    const int t = AddTask(worker, id, group);
    p_.groups = std::max(p_.groups, group + 1);
    p_.local.push_back({of, t});
    return t;
  }
  void Local(int from, int to) { p_.local.push_back({from, to}); }
  void Comm(int from, int to) { p_.transfers.push_back({from, to, true, depth_}); }
  void Shm(int from, int to) { p_.transfers.push_back({from, to, false, depth_}); }

  // "0R 0C 0W 1R 1C 1W" of one worker.
  std::string List(int worker) {
    const auto steps = OrderSteps(p_);
    REQUIRE(steps.ok());
    std::map<int, int> in, out;  // transfers of each task that have not been placed
    for (const Transfer& t : p_.transfers) ++in[t.dst_task], ++out[t.src_task];
    std::vector<std::string> list;
    const auto show = [&](int task, char step) {
      if (p_.tasks[task].worker == worker) list.push_back(absl::StrCat(p_.tasks[task].local, std::string(1, step)));
    };
    for (const Step& s : *steps) {
      switch (s.kind) {
        case StepKind::kTake:
          show(s.index, 'R');
          break;
        case StepKind::kGive:
          show(s.index, 'W');
          break;
        case StepKind::kRun:
          show(s.index, 'C');
          break;
        case StepKind::kGroup:
          for (size_t t = 0; t < p_.tasks.size(); ++t) {
            if (p_.tasks[t].group == s.index) show(static_cast<int>(t), 'C');
          }
          break;
        default: {
          const Transfer& t = p_.transfers[s.index];
          if (s.kind != StepKind::kRead && --out[t.src_task] == 0) show(t.src_task, 'W');
          if (s.kind != StepKind::kWrite && --in[t.dst_task] == 0) show(t.dst_task, 'R');
        }
      }
    }
    return absl::StrJoin(list, " ");
  }

  static std::string InOrder(int tasks) {
    std::vector<std::string> list;
    for (int t = 0; t < tasks; ++t) list.push_back(absl::StrCat(t, "R ", t, "C ", t, "W"));
    return absl::StrJoin(list, " ");
  }

 private:
  int AddTask(int worker, int id, int group) {
    p_.tasks.push_back({worker, size_[worker]++, id, group});
    return static_cast<int>(p_.tasks.size()) - 1;
  }

  const int depth_;
  Program p_;
  std::vector<int> last_, size_;
};

constexpr int kUnbounded = 1000;

TEST_CASE("one actor: program order") {
  Case chain(1, kUnbounded);
  const int first = chain.Task(0, 1), second = chain.Task(0, 2);
  chain.Local(first, second);
  CHECK(chain.List(0) == Case::InOrder(2));

  Case fan(1, kUnbounded);
  const int t1 = fan.Task(0, 1), t2 = fan.Task(0, 2), t3 = fan.Task(0, 3);
  fan.Local(t1, t2);
  fan.Local(t1, t3);
  CHECK(fan.List(0) == Case::InOrder(3));
}

TEST_CASE("two actors that each send first") {
  for (const bool comm : {false, true}) {
    Case c(2, kUnbounded);
    const int a0 = c.Task(0, 1), b0 = c.Task(1, 2), b1 = c.Task(1, 3), a1 = c.Task(0, 4);
    if (comm) {
      c.Comm(a0, b1);
      c.Comm(b0, a1);
    } else {
      c.Shm(a0, b1);
      c.Shm(b0, a1);
    }
    CHECK(c.List(0) == Case::InOrder(2));
    CHECK(c.List(1) == (comm ? "1R 0R 0C 0W 1C 1W" : Case::InOrder(2)));
  }
}

TEST_CASE("1F1B on two workers with two microbatches") {
  for (const bool comm : {false, true}) {
    Case c(2, kUnbounded);
    std::vector<int> t(9);
    for (int id = 1; id <= 8; ++id) t[id] = c.Task(id <= 4 ? 0 : 1, id);
    const auto move = [&](int from, int to) { comm ? c.Comm(t[from], t[to]) : c.Shm(t[from], t[to]); };
    move(1, 5);
    c.Local(t[5], t[6]);
    move(6, 3);
    move(2, 7);
    c.Local(t[7], t[8]);
    move(8, 4);
    CHECK(c.List(0) == Case::InOrder(4));
    CHECK(c.List(1) == (comm ? "0R 0C 0W 2R 1R 1C 1W 2C 2W 3R 3C 3W" : Case::InOrder(4)));
  }
}

TEST_CASE("1F1B with a task that reads the input first") {
  Case c(2, kUnbounded);
  const int read = c.Task(0, 1), f1 = c.Task(0, 2), f2 = c.Task(0, 3), b1 = c.Task(0, 8), b2 = c.Task(0, 9);
  const int g1 = c.Task(1, 4), h1 = c.Task(1, 5), g2 = c.Task(1, 6), h2 = c.Task(1, 7);
  c.Local(read, f1);
  c.Local(read, f2);
  c.Comm(f1, g1);
  c.Local(g1, h1);
  c.Comm(h1, b1);
  c.Comm(f2, g2);
  c.Local(g2, h2);
  c.Comm(h2, b2);
  CHECK(c.List(0) == "0R 0C 0W 1R 1C 1W 3R 2R 2C 2W 4R 3C 3W 4C 4W");
  CHECK(c.List(1) == Case::InOrder(4));
}

TEST_CASE("a value to two actors and back") {
  Case c(3, kUnbounded);
  const int a0 = c.Task(0, 1), b = c.Task(1, 2), d = c.Task(2, 3), a1 = c.Task(0, 4);
  c.Comm(a0, b);
  c.Comm(a0, d);
  c.Comm(b, a1);
  c.Comm(d, a1);
  CHECK(c.List(0) == Case::InOrder(2));
  CHECK(c.List(1) == Case::InOrder(1));
  CHECK(c.List(2) == Case::InOrder(1));
}

TEST_CASE("a ring of three") {
  Case c(3, kUnbounded);
  const int a0 = c.Task(0, 1), b0 = c.Task(1, 2), c0 = c.Task(2, 3);
  const int a1 = c.Task(0, 4), b1 = c.Task(1, 5), c1 = c.Task(2, 6);
  c.Comm(a0, b1);
  c.Comm(b0, c1);
  c.Comm(c0, a1);
  CHECK(c.List(0) == Case::InOrder(2));
  CHECK(c.List(1) == "1R 0R 0C 0W 1C 1W");
  CHECK(c.List(2) == "1R 0R 0C 0W 1C 1W");
}

TEST_CASE("two senders and two tasks of one receiver") {
  Case c(3, kUnbounded);
  const int s1 = c.Task(0, 1), s2 = c.Task(1, 2), r0 = c.Task(2, 3), r1 = c.Task(2, 4);
  c.Comm(s1, r0);
  c.Comm(s2, r1);
  CHECK(c.List(2) == "0R 1R 0C 0W 1C 1W");
}

TEST_CASE("a send before a collective, received after it") {
  Case c(2, kUnbounded);
  const int x = c.Task(0, 1), y = c.Task(1, 2), t = c.Task(0, 3);
  c.Member(0, 4, 0, x);
  c.Member(1, 5, 0, y);
  const int recv = c.Task(1, 6);
  c.Comm(t, recv);
  CHECK(c.List(1) == "0R 0C 0W 2R 1R 1C 1W 2C 2W");
}

TEST_CASE("a collective after each backward: the same lists on all workers") {
  for (const int workers : {2, 4}) {
    Case c(workers, kUnbounded);
    std::vector<int> bwd0, bwd1;
    int id = 0;
    for (int w = 0; w < workers; ++w) bwd0.push_back(c.Task(w, ++id));
    for (int w = 0; w < workers; ++w) c.Member(w, ++id, 0, bwd0[w]);
    for (int w = 0; w < workers; ++w) {
      bwd1.push_back(c.Task(w, ++id));
      c.Local(bwd0[w], bwd1[w]);
    }
    for (int w = 0; w < workers; ++w) c.Member(w, ++id, 1, bwd1[w]);
    for (int w = 0; w < workers; ++w) CHECK(c.List(w) == Case::InOrder(4));
  }
}

TEST_CASE("three senders and one receiver") {
  for (const int depth : {kUnbounded, 1}) {
    Case c(4, depth);
    std::vector<int> s, r;
    for (int i = 0; i < 3; ++i) s.push_back(c.Task(i, i + 1));
    for (int i = 0; i < 3; ++i) r.push_back(c.Task(3, i + 4));
    for (int i = 0; i < 3; ++i) c.Comm(s[i], r[i]);
    CHECK(c.List(3) == (depth == 1 ? "0R 1R 0C 0W 2R 1C 1W 2C 2W" : "0R 1R 2R 0C 0W 1C 1W 2C 2W"));
  }
}

}  // namespace
}  // namespace weft
