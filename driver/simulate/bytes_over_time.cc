#include "driver/simulate/bytes_over_time.h"

#include <algorithm>
#include <utility>

namespace weft {

std::vector<WorkerBytes> BytesOverTime(const Plan& plan, const SimResult& result) {
  const int32_t ops = static_cast<int32_t>(plan.ops.size());
  // By op: the op that writes the memory which it reads, through a READ that shares its WRITE's memory. Several readers are listed.
  std::vector<std::vector<int32_t>> readers(ops);
  std::vector<int32_t> read_of(plan.edges.size(), -1);
  std::vector<uint64_t> bytes(ops);
  for (const PlanOp& o : plan.ops) {
    bytes[o.id] = BufferBytes(plan, o);
    if (o.kind == v1::READ) read_of[o.edge] = o.id;
    for (const PlanValue& v : o.args) readers[v.op].push_back(o.id);
  }
  // Over ipc it is the READ that takes the value out of its producer's buffer.
  for (const PlanOp& o : plan.ops) {
    if (o.kind != v1::WRITE || plan.edges[o.edge].transport != v1::IPC || read_of[o.edge] < 0) continue;
    for (const PlanValue& v : o.args) readers[v.op].push_back(read_of[o.edge]);
  }
  const size_t executions = result.execution_end.size();
  std::vector<Nanos> end(ops * executions);
  const auto known = [&](const SimEvent& e) {
    return e.op >= 0 && e.op < ops && e.execution >= 0 && static_cast<size_t>(e.execution) < executions;
  };
  for (const SimEvent& e : result.events) {
    if (known(e)) end[e.execution * ops + e.op] = e.end;
  }
  using Change = std::pair<Nanos, int64_t>;
  std::vector<std::vector<Change>> changes(plan.workers.size());
  for (const SimEvent& e : result.events) {
    if (!known(e) || bytes[e.op] == 0) continue;
    const PlanOp& o = plan.ops[e.op];
    const int32_t read = o.kind == v1::WRITE ? read_of[o.edge] : -1;
    Nanos free = e.end;
    const auto until = [&](int32_t op) { free = std::max(free, end[e.execution * ops + op]); };
    if (read >= 0) until(read);
    for (const int32_t r : readers[read >= 0 ? read : o.id]) until(r);
    changes[o.worker].push_back({e.start, static_cast<int64_t>(bytes[e.op])});
    changes[o.worker].push_back({free, -static_cast<int64_t>(bytes[e.op])});
  }
  std::vector<WorkerBytes> out(plan.workers.size());
  for (size_t w = 0; w < out.size(); ++w) {
    // At one time, what is given back comes before what is taken.
    std::sort(changes[w].begin(), changes[w].end());
    WorkerBytes& b = out[w];
    b.curve.push_back({0, 0});
    int64_t now = 0;
    for (size_t i = 0; i < changes[w].size(); ++i) {
      now += changes[w][i].second;
      if (static_cast<uint64_t>(std::max<int64_t>(0, now)) > b.peak) b.peak = static_cast<uint64_t>(now), b.peak_at = changes[w][i].first;
      if (i + 1 < changes[w].size() && changes[w][i + 1].first == changes[w][i].first) continue;
      const BytesPoint point{changes[w][i].first, static_cast<uint64_t>(std::max<int64_t>(0, now))};
      if (b.curve.back().at == point.at) {
        b.curve.back() = point;
      } else if (b.curve.back().bytes != point.bytes) {
        b.curve.push_back(point);
      }
    }
  }
  return out;
}

}  // namespace weft
