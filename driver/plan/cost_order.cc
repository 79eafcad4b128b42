#include "driver/plan/cost_order.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <random>
#include <tuple>
#include <utility>

#include "driver/plan/quick_order.h"

namespace weft {
namespace {

// How far a small change moves a node in its worker's program, at most.
constexpr int kFarthestMove = 8;
// Bounds of the coarse search: changes, and visits of vertices and links; about a second.
constexpr int64_t kMostQuickSteps = 20'000;
constexpr int64_t kMostQuickVisits = 20'000'000;

// Runs the graph once under a clock: each worker does one call at a time, transfers and collectives hold nobody.
class ListScheduler {
 public:
  ListScheduler(const TaskCosts& t, Prefer prefer) : t_(t), prefer_(prefer), needs_(t.needs), there_(t.cost.size(), 0) {
    int32_t workers = 0;
    for (const int32_t w : t.worker) workers = std::max(workers, w + 1);
    ready_.resize(workers);
    free_at_.assign(workers, 0);
  }

  NodeOrder Run() {
    for (size_t v = 0; v < needs_.size(); ++v) {
      if (needs_[v] == 0) Arrive(static_cast<int32_t>(v), 0);
    }
    while (!events_.empty()) {
      // All that happens at one time is known before a worker chooses.
      const Nanos now = events_.top().at;
      touched_.clear();
      while (!events_.empty() && events_.top().at == now) {
        const Event e = events_.top();
        events_.pop();
        if (e.vertex >= 0) {
          const int32_t w = t_.worker[e.vertex];
          ready_[w].push({Rank(e.vertex), e.vertex});
          touched_.push_back(w);
        } else {
          touched_.push_back(-1 - e.vertex);
        }
      }
      std::sort(touched_.begin(), touched_.end());
      touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
      for (const int32_t w : touched_) Choose(w, now);
    }
    return std::move(order_);
  }

 private:
  struct Event {
    Nanos at;
    int32_t vertex;  // it can run; -1 - w: worker w is free
    bool operator>(const Event& o) const { return std::tie(at, vertex) > std::tie(o.at, o.vertex); }
  };
  using Key = std::pair<int64_t, int32_t>;  // smallest first, then by node
  using Ready = std::priority_queue<Key, std::vector<Key>, std::greater<Key>>;

  static Nanos Plus(Nanos a, Nanos b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }

  int64_t Rank(int32_t v) {
    if (prefer_ == Prefer::kLongestWay) return -t_.to_end[v];
    return prefer_ == Prefer::kFile ? t_.place[v] : -(++arrivals_);
  }

  // Everything that `v` needs is there at `at`.
  void Arrive(int32_t v, Nanos at) {
    if (v < t_.nodes) {
      events_.push({at, v});
    } else {
      Finish(v, Plus(at, t_.cost[v]));
    }
  }

  void Finish(int32_t v, Nanos end) {
    for (int32_t k = t_.next_at[v]; k < t_.next_at[v + 1]; ++k) {
      const int32_t to = t_.next[k].to;
      there_[to] = std::max(there_[to], Plus(end, t_.next[k].way));
      if (--needs_[to] == 0) Arrive(to, there_[to]);
    }
  }

  void Choose(int32_t w, Nanos now) {
    // Calls that take no time leave the worker free at once.
    while (!ready_[w].empty() && free_at_[w] <= now) {
      const int32_t v = ready_[w].top().second;
      ready_[w].pop();
      order_.push_back(v);
      free_at_[w] = Plus(now, t_.cost[v]);
      if (free_at_[w] > now) events_.push({free_at_[w], -1 - w});
      Finish(v, free_at_[w]);
    }
  }

  const TaskCosts& t_;
  const Prefer prefer_;
  std::vector<int32_t> needs_;
  std::vector<Nanos> there_;  // when the last value so far comes
  std::vector<Ready> ready_;
  std::vector<Nanos> free_at_;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  std::vector<int32_t> touched_;
  int64_t arrivals_ = 0;
  NodeOrder order_;
};

// The same graph run backwards: every vertex before what it needed, with the longest way to what was the start.
TaskCosts Backwards(const TaskCosts& t) {
  TaskCosts back;
  back.nodes = t.nodes;
  back.worker = t.worker;
  back.cost = t.cost;
  const int32_t n = static_cast<int32_t>(t.cost.size());
  back.next_at.assign(n + 1, 0);
  for (const TaskCosts::Next& next : t.next) ++back.next_at[next.to + 1];
  for (int32_t v = 0; v < n; ++v) back.next_at[v + 1] += back.next_at[v];
  back.next.resize(t.next.size());
  back.needs.assign(n, 0);
  std::vector<int32_t> fill(back.next_at.begin(), back.next_at.end() - 1);
  std::vector<int32_t> at(n);  // in the order of places
  for (int32_t v = 0; v < n; ++v) {
    at[t.place[v]] = v;
    back.needs[v] = t.next_at[v + 1] - t.next_at[v];
    for (int32_t k = t.next_at[v]; k < t.next_at[v + 1]; ++k) back.next[fill[t.next[k].to]++] = {v, t.next[k].way};
  }
  back.to_end.assign(n, 0);
  back.place.assign(n, 0);
  for (int32_t i = 0; i < n; ++i) {
    const int32_t v = at[i];
    back.place[v] = n - 1 - i;
    back.to_end[v] += std::min(t.cost[v], INT64_MAX - back.to_end[v]);
    for (int32_t k = t.next_at[v]; k < t.next_at[v + 1]; ++k) {
      Nanos& longest = back.to_end[t.next[k].to];
      const Nanos way = back.to_end[v] > INT64_MAX - t.next[k].way ? INT64_MAX : back.to_end[v] + t.next[k].way;
      longest = std::max(longest, way);
    }
  }
  return back;
}

// Moves a random node of a worker with choice some places forward or back. False when there is nothing to move.
bool Perturb(const TaskCosts& t, std::mt19937_64* rng, NodeOrder* order) {
  std::vector<std::vector<int32_t>> places;  // by worker: where its nodes stand
  for (size_t i = 0; i < order->size(); ++i) {
    const size_t w = static_cast<size_t>(t.worker[(*order)[i]]);
    if (places.size() <= w) places.resize(w + 1);
    places[w].push_back(static_cast<int32_t>(i));
  }
  std::vector<size_t> with_choice;  // each worker as often as it has nodes
  for (size_t w = 0; w < places.size(); ++w) {
    if (places[w].size() > 1) with_choice.insert(with_choice.end(), places[w].size(), w);
  }
  if (with_choice.empty()) return false;
  const std::vector<int32_t>& mine = places[with_choice[(*rng)() % with_choice.size()]];
  const int64_t n = static_cast<int64_t>(mine.size());
  const int64_t from = static_cast<int64_t>((*rng)() % mine.size());
  const int64_t by = 1 + static_cast<int64_t>((*rng)() % kFarthestMove);
  const int64_t to = std::clamp<int64_t>((*rng)() % 2 ? from + by : from - by, 0, n - 1);
  if (to == from) return true;
  // As keys: the moved one just before or behind the one whose place it takes.
  std::vector<int64_t> key(t.nodes);
  for (size_t i = 0; i < order->size(); ++i) key[(*order)[i]] = 2 * static_cast<int64_t>(i);
  key[(*order)[mine[from]]] = 2 * static_cast<int64_t>(mine[to]) + (to > from ? 1 : -1);
  *order = OrderByKey(t, key);
  return true;
}

}  // namespace

NodeOrder LongestWayOrder(const TaskCosts& t) {
  // A way is never longer than that of what comes before it, and where they are equal the place decides: no node can come before one that
  // it needs.
  NodeOrder order(t.nodes);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return t.to_end[a] != t.to_end[b] ? t.to_end[a] > t.to_end[b] : t.place[a] < t.place[b]; });
  return order;
}

NodeOrder ListOrder(const TaskCosts& tasks, Prefer prefer) {
  if (prefer != Prefer::kLongestWayBack) return ListScheduler(tasks, prefer).Run();
  NodeOrder order = ListScheduler(Backwards(tasks), Prefer::kLongestWay).Run();
  std::reverse(order.begin(), order.end());
  return order;
}

NodeOrder OrderByKey(const TaskCosts& t, const std::vector<int64_t>& key) {
  using Entry = std::pair<int64_t, int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> ready;
  std::vector<int32_t> needs = t.needs;
  NodeOrder order;
  order.reserve(t.nodes);
  // A collective holds nobody up: it is over as soon as it can be.
  const auto add = [&](int32_t v) { ready.push({v < t.nodes ? key[v] : INT64_MIN, v}); };
  for (size_t v = 0; v < needs.size(); ++v) {
    if (needs[v] == 0) add(static_cast<int32_t>(v));
  }
  while (!ready.empty()) {
    const int32_t v = ready.top().second;
    ready.pop();
    if (v < t.nodes) order.push_back(v);
    for (int32_t k = t.next_at[v]; k < t.next_at[v + 1]; ++k) {
      if (--needs[t.next[k].to] == 0) add(t.next[k].to);
    }
  }
  return order;
}

absl::StatusOr<FoundOrder> SearchOrder(const TaskCosts& tasks, const OrderJudge& judge, int64_t most) {
  FoundOrder best;
  absl::Status refused = absl::InternalError("no order was tried");
  bool any = false;
  std::vector<NodeOrder> tried;
  const auto consider = [&](NodeOrder order) {
    ++best.judged;
    absl::StatusOr<OrderScore> score = judge(order);
    if (!score.ok()) {
      refused = score.status();
      return;
    }
    // An equal one replaces the best too, which leads away from where every small change makes it worse.
    if (any && *score > best.score) return;
    any = true;
    best.order = std::move(order);
    best.score = *score;
  };
  if (most <= 1) {
    consider(LongestWayOrder(tasks));
    if (!any) return refused;
    return best;
  }
  // From the least promising to the most: of equal ones the later stays.
  for (NodeOrder order : {ListOrder(tasks, Prefer::kNewest), ListOrder(tasks, Prefer::kFile), ListOrder(tasks, Prefer::kLongestWayBack),
                          ListOrder(tasks, Prefer::kLongestWay), LongestWayOrder(tasks)}) {
    if (std::find(tried.begin(), tried.end(), order) != tried.end()) continue;
    tried.push_back(order);
    consider(std::move(order));
  }
  if (!any) return refused;
  // What the coarse model makes of each of them, the best of which is worth more than any change by chance.
  const int64_t visits = std::max<int64_t>(1, static_cast<int64_t>(tasks.cost.size() + tasks.next.size()));  // of one step
  const int64_t steps = std::min<int64_t>(kMostQuickSteps, kMostQuickVisits / visits);
  for (NodeOrder& order : std::vector<NodeOrder>(tried)) {
    if (best.judged >= most || steps < 10) break;
    NodeOrder better = QuickSearch(tasks, order, steps / static_cast<int64_t>(tried.size()));
    if (better == order) continue;
    consider(std::move(better));
  }
  std::mt19937_64 rng(1);
  while (best.judged < most) {
    NodeOrder order = best.order;
    if (!Perturb(tasks, &rng, &order)) break;
    if (order == best.order) {
      ++best.judged;  // so that this ends
      continue;
    }
    consider(std::move(order));
  }
  return best;
}

}  // namespace weft
