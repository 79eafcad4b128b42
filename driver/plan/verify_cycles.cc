#include "driver/plan/verify_cycles.h"

#include <algorithm>

namespace weft {
namespace {

class Finder {
 public:
  Finder(const std::vector<int32_t>& unit_of, int32_t num_units, const NeedsTable& table, size_t max)
      : unit_of_(unit_of), table_(table), max_(max), ops_at_(num_units + 1, 0), ops_(unit_of.size()) {
    for (const int32_t u : unit_of) ++ops_at_[u + 1];
    for (int32_t u = 0; u < num_units; ++u) ops_at_[u + 1] += ops_at_[u];
    std::vector<int32_t> next(ops_at_.begin(), ops_at_.end() - 1);
    for (size_t i = 0; i < unit_of.size(); ++i) ops_[next[unit_of[i]]++] = static_cast<int32_t>(i);
    number_.assign(num_units, 0);
    low_.assign(num_units, 0);
    part_.assign(num_units, -1);
  }

  std::vector<Cycle> Run() {
    for (int32_t u = 0; u < static_cast<int32_t>(number_.size()) && cycles_.size() < max_; ++u) {
      if (number_[u] == 0) Visit(u);
    }
    return std::move(cycles_);
  }

 private:
  // Where the walk through a unit's needs stands.
  struct Frame {
    int32_t unit;
    int32_t op;    // position in ops_
    int32_t need;  // position in table_.needs, -1: the op's first
  };

  // Moves the frame to its next need; false at the end.
  bool Next(Frame* f, CycleStep* step) const {
    for (; f->op < ops_at_[f->unit + 1]; ++f->op, f->need = -1) {
      const int32_t op = ops_[f->op];
      if (f->need < 0) f->need = table_.at[op];
      if (f->need < table_.at[op + 1]) {
        *step = {op, table_.needs[f->need++]};
        return true;
      }
    }
    return false;
  }

  // Tarjan's algorithm with a stack of its own.
  void Visit(int32_t root) {
    std::vector<Frame> frames;
    const auto enter = [&](int32_t u) {
      number_[u] = low_[u] = ++count_;
      stack_.push_back(u);
      frames.push_back({u, ops_at_[u], -1});
    };
    enter(root);
    while (!frames.empty()) {
      CycleStep step;
      if (Next(&frames.back(), &step)) {
        const int32_t u = frames.back().unit;
        const int32_t v = unit_of_[step.needs];
        if (number_[v] == 0) {
          enter(v);
        } else if (part_[v] < 0) {
          low_[u] = std::min(low_[u], number_[v]);
        }
        continue;
      }
      const int32_t u = frames.back().unit;
      frames.pop_back();
      if (!frames.empty()) low_[frames.back().unit] = std::min(low_[frames.back().unit], low_[u]);
      if (low_[u] == number_[u]) Close(u);
    }
  }

  void Close(int32_t root) {
    size_t first = stack_.size();
    while (stack_[--first] != root) {
    }
    const bool circle = stack_.size() - first > 1 || HasSelfNeed(root);
    int32_t start = root;
    for (size_t i = first; i < stack_.size(); ++i) {
      part_[stack_[i]] = parts_;
      start = std::min(start, stack_[i]);
    }
    stack_.resize(first);
    if (circle && cycles_.size() < max_) cycles_.push_back(ShortestThrough(start));
    ++parts_;
  }

  bool HasSelfNeed(int32_t u) const {
    Frame f{u, ops_at_[u], -1};
    CycleStep step;
    while (Next(&f, &step)) {
      if (unit_of_[step.needs] == u) return true;
    }
    return false;
  }

  // Breadth first within the part, from a unit back to itself.
  Cycle ShortestThrough(int32_t start) {
    if (from_.empty()) from_.resize(number_.size());
    std::vector<int32_t> queue = {start};
    std::vector<bool>& seen = seen_;
    seen.resize(number_.size());
    for (size_t head = 0; head < queue.size(); ++head) {
      Frame f{queue[head], ops_at_[queue[head]], -1};
      CycleStep step;
      while (Next(&f, &step)) {
        const int32_t v = unit_of_[step.needs];
        if (part_[v] != part_[start]) continue;
        if (v == start) {
          Cycle cycle = {step};
          for (int32_t u = queue[head]; u != start; u = unit_of_[from_[u].op]) cycle.push_back(from_[u]);
          std::reverse(cycle.begin(), cycle.end());
          return cycle;
        }
        if (seen[v]) continue;
        seen[v] = true;
        from_[v] = step;
        queue.push_back(v);
      }
    }
    return {};  // unreachable: every unit of the part lies on a circle
  }

  const std::vector<int32_t>& unit_of_;
  const NeedsTable& table_;
  const size_t max_;
  std::vector<int32_t> ops_at_, ops_;  // ops of each unit
  std::vector<int32_t> number_, low_, part_;
  std::vector<int32_t> stack_;
  std::vector<CycleStep> from_;
  std::vector<bool> seen_;
  std::vector<Cycle> cycles_;
  int32_t count_ = 0;
  int32_t parts_ = 0;
};

}  // namespace

std::vector<Cycle> FindCycles(const std::vector<int32_t>& unit_of, int32_t num_units, const NeedsTable& table, size_t max) {
  return Finder(unit_of, num_units, table, max).Run();
}

}  // namespace weft
