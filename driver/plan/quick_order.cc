#include "driver/plan/quick_order.h"

#include <algorithm>
#include <random>
#include <utility>

namespace weft {
namespace {

Nanos Plus(Nanos a, Nanos b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }

// One run, with what held each node up.
class QuickRun {
 public:
  explicit QuickRun(const TaskCosts& t) : t_(t) {
    int32_t workers = 0;
    for (const int32_t w : t.worker) workers = std::max(workers, w + 1);
    last_on_.resize(workers);
  }

  Nanos Run(const NodeOrder& order) {
    const size_t n = t_.cost.size();
    needs_ = t_.needs;
    there_.assign(n, 0);
    held_by_.assign(n, -1);
    before_.assign(n, -1);
    end_.assign(n, 0);
    std::fill(last_on_.begin(), last_on_.end(), -1);
    makespan_ = 0;
    last_ = -1;
    for (size_t v = t_.nodes; v < n; ++v) {
      if (needs_[v] == 0) Finish(static_cast<int32_t>(v), t_.cost[v]);
    }
    for (const int32_t v : order) {
      int32_t& last = last_on_[t_.worker[v]];
      before_[v] = last;
      Nanos start = there_[v];
      // Of equal causes the worker's is the one that an order can mend.
      if (last >= 0 && end_[last] >= start) {
        start = end_[last];
        held_by_[v] = last;
      }
      last = v;
      Finish(v, Plus(start, t_.cost[v]));
    }
    return makespan_;
  }

  // Stretches of the longest way that one worker runs: at least two nodes, first to last.
  std::vector<std::vector<int32_t>> Stretches() const {
    std::vector<std::vector<int32_t>> all;
    std::vector<int32_t> here;
    const auto close = [&] {
      if (here.size() > 1) all.emplace_back(here.rbegin(), here.rend());
      here.clear();
    };
    for (int32_t v = last_; v >= 0; v = held_by_[v]) {
      if (v >= t_.nodes) {
        close();
        continue;
      }
      if (!here.empty() && before_[here.back()] != v) close();
      here.push_back(v);
    }
    close();
    return all;
  }

 private:
  void Finish(int32_t v, Nanos end) {
    end_[v] = end;
    if (end >= makespan_) {
      makespan_ = end;
      last_ = v;
    }
    for (int32_t k = t_.next_at[v]; k < t_.next_at[v + 1]; ++k) {
      const int32_t to = t_.next[k].to;
      const Nanos there = Plus(end, t_.next[k].way);
      if (there >= there_[to]) {
        there_[to] = there;
        held_by_[to] = v;
      }
      if (--needs_[to] == 0 && to >= t_.nodes) Finish(to, Plus(there_[to], t_.cost[to]));
    }
  }

  const TaskCosts& t_;
  std::vector<int32_t> needs_, held_by_, before_, last_on_;
  std::vector<Nanos> there_, end_;
  Nanos makespan_ = 0;
  int32_t last_ = -1;
};

}  // namespace

Nanos QuickMakespan(const TaskCosts& tasks, const NodeOrder& order) { return QuickRun(tasks).Run(order); }

NodeOrder QuickSearch(const TaskCosts& tasks, const NodeOrder& from, int64_t steps) {
  QuickRun run(tasks);
  NodeOrder now = from, best = from;
  Nanos now_s = run.Run(now), best_s = now_s;
  std::vector<std::vector<int32_t>> stretches = run.Stretches();
  std::mt19937_64 rng(1);
  std::vector<int64_t> key(tasks.nodes);
  for (int64_t i = 0; i < steps; ++i) {
    if (stretches.empty()) break;  // nothing but values holds anybody up
    const std::vector<int32_t>& stretch = stretches[rng() % stretches.size()];
    for (size_t at = 0; at < now.size(); ++at) key[now[at]] = 2 * static_cast<int64_t>(at);
    const size_t which = rng() % stretch.size();
    const bool forward = which == 0 || (which + 1 < stretch.size() && rng() % 2);
    const int64_t target = key[forward ? stretch.back() : stretch.front()];
    key[stretch[which]] = target + (forward ? 1 : -1);
    NodeOrder next = OrderByKey(tasks, key);
    const Nanos next_s = run.Run(next);
    const Nanos margin = static_cast<Nanos>(static_cast<double>(best_s) / 30 * (1 - static_cast<double>(i) / static_cast<double>(steps)));
    if (next_s - now_s > margin || next_s - best_s > 2 * margin) continue;
    now = std::move(next);
    now_s = next_s;
    stretches = run.Stretches();
    if (now_s >= best_s) continue;
    best = now;
    best_s = now_s;
  }
  return best;
}

}  // namespace weft
