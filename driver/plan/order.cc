#include "driver/plan/order.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <string>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// Why this always completes, for every graph whose values, `after`s and program orders have no circle once the members of each collective
// are merged into one task:
// A unit (one step) waits for nothing but units that lead to it: R of a task for C of local producers, C for its R and for C of the task
// before it in its actor's program, W and sends for C, READ for WRITE, a collective for R of all its members. Project a unit on its
// task (a transfer on the way from its first task to its second): every such edge goes from a task to itself, from R to C to W, or along an
// edge of the merged task graph. That graph has no circle, so neither has the graph of units, and as long as units are left, one of them
// has all its predecessors placed. It is a candidate, either ready or held back by the prefetch bound; the bound alone never stops
// the loop, since a held unit is taken when nothing is ready. So all units get placed.
// And why what comes out cannot block: units at one instant have adjacent ops, and every wait of distance 0 and every lane's order
// leads from a later to an earlier op of this one order. Merging the ops of a unit keeps that, so the zero-distance edges have no circle,
// which is what liveness needs (verify_orders.cc has that proof).
class Orderer {
 public:
  explicit Orderer(const Program& p)
      : p_(p),
        tasks_(static_cast<int32_t>(p.tasks.size())),
        transfer_base_(3 * tasks_),
        group_base_(transfer_base_ + 2 * static_cast<int32_t>(p.transfers.size())),
        units_(group_base_ + p.groups) {}

  absl::StatusOr<std::vector<Step>> Run() {
    Number();
    Connect();
    placed_.assign(units_, false);
    steps_.reserve(to_place_);
    for (int32_t u = 0; u < units_; ++u) {
      if (exists_[u] && waiting_[u] == 0) Candidate(u);
    }
    while (static_cast<int32_t>(steps_.size()) < to_place_) {
      if (!ready_.empty()) {
        const int32_t u = ready_.top().unit;
        ready_.pop();
        PlaceUnit(u);
        continue;
      }
      while (!held_.empty() && !is_held_[held_.top().unit]) held_.pop();
      if (held_.empty()) return Circle();
      const int32_t u = held_.top().unit;
      held_.pop();
      is_held_[u] = false;
      PlaceUnit(u);
    }
    return std::move(steps_);
  }

 private:
  struct Entry {
    uint64_t key;
    int32_t unit;
    bool operator>(const Entry& o) const { return key != o.key ? key > o.key : unit > o.unit; }
  };
  using Heap = std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>>;

  static int32_t Take(int32_t t) { return 3 * t; }
  int32_t RunUnit(int32_t t) const { return p_.tasks[t].group >= 0 ? group_base_ + p_.tasks[t].group : 3 * t + 1; }
  static int32_t Give(int32_t t) { return 3 * t + 2; }
  int32_t Out(int32_t x) const { return transfer_base_ + 2 * x; }  // WRITE, or the whole exchange
  int32_t In(int32_t x) const { return transfer_base_ + 2 * x + (p_.transfers[x].rendezvous ? 0 : 1); }

  static uint64_t Key(bool communication, const Task& t) {
    return static_cast<uint64_t>(!communication) << 62 | static_cast<uint64_t>(t.local) << 31 | static_cast<uint64_t>(t.id);
  }

  // Which units there are, their keys, and each worker's program.
  void Number() {
    exists_.assign(units_, false);
    key_.assign(units_, ~uint64_t{0});
    first_in_.assign(tasks_, false);
    left_.assign(tasks_, 0);
    std::vector<bool> receives(tasks_, false);
    for (size_t x = 0; x < p_.transfers.size(); ++x) {
      const Transfer& tr = p_.transfers[x];
      if (tr.src_task >= 0) {
        exists_[Out(x)] = true;
        key_[Out(x)] = Key(tr.rendezvous, p_.tasks[tr.src_task]);
        ++left_[tr.src_task];
      }
      if (tr.dst_task >= 0) {
        exists_[In(x)] = true;
        key_[In(x)] = std::min(key_[In(x)], Key(tr.rendezvous, p_.tasks[tr.dst_task]));
        receives[tr.dst_task] = true;
      }
    }
    program_at_.assign(p_.workers + 1, 0);
    for (int32_t t = 0; t < tasks_; ++t) {
      const Task& task = p_.tasks[t];
      ++program_at_[task.worker + 1];
      if (!receives[t]) {
        exists_[Take(t)] = true;
        key_[Take(t)] = Key(false, task);
      }
      first_in_[t] = !receives[t];
      if (left_[t] == 0) {
        exists_[Give(t)] = true;
        key_[Give(t)] = Key(false, task);
        left_[t] = 1;
      }
      const int32_t run = RunUnit(t);
      exists_[run] = true;
      key_[run] = std::min(key_[run], Key(task.group >= 0, task));
    }
    for (int32_t w = 0; w < p_.workers; ++w) program_at_[w + 1] += program_at_[w];
    done_.assign(tasks_, false);
    prefix_.assign(p_.workers, 0);
    held_by_worker_.resize(p_.workers);
    is_held_.assign(units_, false);
    to_place_ = static_cast<int32_t>(std::count(exists_.begin(), exists_.end(), true));
  }

  template <typename F>
  void ForEachPrecedence(F f) const {
    for (int32_t t = 0; t < tasks_; ++t) {
      if (exists_[Take(t)]) f(Take(t), RunUnit(t));
      if (exists_[Give(t)]) f(RunUnit(t), Give(t));
    }
    for (size_t x = 0; x < p_.transfers.size(); ++x) {
      const Transfer& tr = p_.transfers[x];
      if (tr.src_task >= 0) f(RunUnit(tr.src_task), Out(x));
      if (tr.src_task >= 0 && tr.dst_task >= 0 && !tr.rendezvous) f(Out(x), In(x));
      if (tr.dst_task >= 0) f(In(x), RunUnit(tr.dst_task));
    }
    for (const auto& [from, to] : p_.local) f(RunUnit(from), first_in_[to] ? Take(to) : RunUnit(to));
    for (const auto& [from, to] : p_.program) f(RunUnit(from), RunUnit(to));
  }

  void Connect() {
    waiting_.assign(units_, 0);
    next_at_.assign(units_ + 1, 0);
    ForEachPrecedence([&](int32_t from, int32_t to) {
      ++next_at_[from + 1];
      ++waiting_[to];
    });
    for (int32_t u = 0; u < units_; ++u) next_at_[u + 1] += next_at_[u];
    next_.resize(next_at_[units_]);
    std::vector<int32_t> fill(next_at_.begin(), next_at_.end() - 1);
    ForEachPrecedence([&](int32_t from, int32_t to) { next_[fill[from]++] = to; });
  }

  // The transfer whose receive this unit is, or -1.
  int32_t ReceiveOf(int32_t u) const {
    if (u < transfer_base_ || u >= group_base_) return -1;
    const int32_t x = (u - transfer_base_) / 2;
    return p_.transfers[x].dst_task >= 0 && In(x) == u ? x : -1;
  }

  // All predecessors of `u` stand.
  void Candidate(int32_t u) {
    const int32_t x = ReceiveOf(u);
    if (x >= 0) {
      const Task& task = p_.tasks[p_.transfers[x].dst_task];
      // So many tasks must be done first.
      const int32_t needed = task.local - p_.transfers[x].depth;
      if (prefix_[task.worker] < needed) {
        is_held_[u] = true;
        held_.push({key_[u], u});
        held_by_worker_[task.worker].push({static_cast<uint64_t>(needed), u});
        return;
      }
    }
    ready_.push({key_[u], u});
  }

  void PlaceUnit(int32_t u) {
    placed_[u] = true;
    steps_.push_back(StepOf(u));
    if (u < transfer_base_) {
      if (u % 3 == 2) LastStep(u / 3);
    } else if (u < group_base_) {
      const int32_t x = (u - transfer_base_) / 2;
      if (u == Out(x) && p_.transfers[x].src_task >= 0) LastStep(p_.transfers[x].src_task);
    }
    for (int32_t i = next_at_[u]; i < next_at_[u + 1]; ++i) {
      if (--waiting_[next_[i]] == 0) Candidate(next_[i]);
    }
  }

  // One more W of the task stands; with the last of them it is done, which may free receives of later tasks.
  void LastStep(int32_t t) {
    if (--left_[t] > 0) return;
    const Task& task = p_.tasks[t];
    const int32_t base = program_at_[task.worker], size = program_at_[task.worker + 1] - base;
    done_[base + task.local] = true;
    int32_t& prefix = prefix_[task.worker];
    while (prefix < size && done_[base + prefix]) ++prefix;
    Heap& held = held_by_worker_[task.worker];
    while (!held.empty() && held.top().key <= static_cast<uint64_t>(prefix)) {
      const int32_t u = held.top().unit;
      held.pop();
      if (!is_held_[u]) continue;  // was taken while nothing else could be
      is_held_[u] = false;
      ready_.push({key_[u], u});
    }
  }

  Step StepOf(int32_t u) const {
    if (u >= group_base_) return {StepKind::kGroup, u - group_base_};
    if (u >= transfer_base_) {
      const int32_t x = (u - transfer_base_) / 2;
      if (p_.transfers[x].rendezvous) return {StepKind::kExchange, x};
      return {u == Out(x) ? StepKind::kWrite : StepKind::kRead, x};
    }
    return {u % 3 == 0 ? StepKind::kTake : u % 3 == 1 ? StepKind::kRun : StepKind::kGive, u / 3};
  }

  // The task that stands for a unit in messages; for a transfer the one that it leads to.
  int32_t TaskOf(int32_t u) const {
    if (u < transfer_base_) return u / 3;
    if (u >= group_base_) {
      for (int32_t t = 0; t < tasks_; ++t) {
        if (p_.tasks[t].group == u - group_base_) return t;
      }
    }
    const Transfer& tr = p_.transfers[(u - transfer_base_) / 2];
    return tr.dst_task >= 0 ? tr.dst_task : tr.src_task;
  }

  // Every unit that is left waits for one that is left: going back from any of them ends in a circle.
  absl::Status Circle() const {
    std::vector<int32_t> before(units_, -1);
    ForEachPrecedence([&](int32_t from, int32_t to) {
      if (!placed_[from] && !placed_[to]) before[to] = from;
    });
    int32_t u = 0;
    while (!exists_[u] || placed_[u] || before[u] < 0) ++u;
    for (int32_t i = 0; i < units_; ++i) u = before[u];  // certainly on the circle by now
    std::vector<int32_t> tasks;
    const int32_t start = u;
    do {
      const int32_t t = TaskOf(u);
      if (tasks.empty() || tasks.back() != t) tasks.push_back(t);
      u = before[u];
    } while (u != start);
    if (tasks.size() > 1 && tasks.back() == tasks.front()) tasks.pop_back();
    std::reverse(tasks.begin(), tasks.end());
    std::string text = "each of these must come before the next, and the last before the first: ";
    constexpr size_t kShown = 20;
    for (size_t i = 0; i < tasks.size() && i < kShown; ++i) {
      absl::StrAppend(&text, i ? ", " : "", p_.name ? p_.name(tasks[i]) : absl::StrCat("task ", tasks[i]));
    }
    if (tasks.size() > kShown) absl::StrAppend(&text, " and ", tasks.size() - kShown, " more");
    return absl::InvalidArgumentError(
        absl::StrCat(text, "; an actor's nodes run in the order of the file: put them in an order that their args allow"));
  }

  const Program& p_;
  const int32_t tasks_, transfer_base_, group_base_, units_;
  std::vector<bool> exists_, placed_, is_held_;
  std::vector<bool> first_in_;  // by task: its R is a step of its own
  std::vector<uint64_t> key_;
  std::vector<int32_t> waiting_;         // predecessors not placed
  std::vector<int32_t> next_, next_at_;  // successors
  std::vector<int32_t> left_;            // by task: W steps not placed
  std::vector<int32_t> program_at_;      // by worker: where its program starts in done_
  std::vector<bool> done_;
  std::vector<int32_t> prefix_;          // by worker: so many first tasks are done
  Heap ready_, held_;
  std::vector<Heap> held_by_worker_;     // keyed by how many tasks must be done first
  int32_t to_place_ = 0;
  std::vector<Step> steps_;
};

}  // namespace

absl::StatusOr<std::vector<Step>> OrderSteps(const Program& program) { return Orderer(program).Run(); }

}  // namespace weft
