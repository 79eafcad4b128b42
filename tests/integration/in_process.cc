#include "tests/integration/in_process.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/fake/fake_link.h"
#include "common/comm/fake/fake_group.h"
#include "common/device/fake/fake_device.h"
#include "common/session/shm_spec.h"
#include "worker/run/graph_run.h"

namespace weft {
namespace {

// Rounds without movement after which the cluster counts as stuck; a fake device's events may say no a few times.
constexpr int kIdleRounds = 2000;

struct Worker {
  std::unique_ptr<FakeDevice> device;
  std::unique_ptr<GraphRun> run;
};

class Harness {
 public:
  Harness(const Plan& plan, const InProcessOptions& options) : plan_(plan), options_(options), rng_(options.seed) {}

  absl::Status SetUp() {
    std::vector<LoadedGraph> loaded(plan_.workers.size());
    std::set<int32_t> used;
    for (const PlanOp& op : plan_.ops) used.insert(op.worker);
    for (const PlanEdge& e : plan_.edges) {
      ShmEdgeSpec spec = ShmSpecOf(plan_, e);
      FakeLink::Options o;
      o.clock = &clock_;
      o.plan_hash = HashAsNumber(plan_.hash);
      o.delay = [this] { return std::uniform_int_distribution<Nanos>(0, 3)(rng_) * 1000; };
      auto [send, recv] = FakeLink::Make(std::move(spec), std::move(o));
      if (e.src_worker == kClient) {
        inputs_.push_back({&e, std::move(send)});
      } else {
        loaded[e.src_worker].senders[e.id] = std::move(send);
      }
      if (e.dst_worker == kClient) {
        outputs_.push_back({&e, std::move(recv), 0, {}, nullptr});
      } else {
        loaded[e.dst_worker].receivers[e.id] = std::move(recv);
      }
    }
    for (const PlanGroup& g : plan_.groups) {
      GroupInfo info;
      info.id = g.id;
      info.name = g.name;
      info.plan_hash = HashAsNumber(plan_.hash);
      for (const int32_t w : g.members) info.workers.push_back(WorkerName(plan_, w));
      FakeGroup group(std::move(info));
      for (size_t r = 0; r < g.members.size(); ++r) loaded[g.members[r]].groups[g.id] = group.Take(static_cast<int>(r));
    }
    for (const int32_t w : used) {
      Worker worker;
      FakeDevice::Options o;
      o.seed = options_.seed * 31 + w;
      if (options_.queueing_device) {
        o.queue_depth = 64;
        o.can_wait = true;
      }
      worker.device = std::make_unique<FakeDevice>(&clock_, o);
      LoadedGraph& l = loaded[w];
      l.plan = PartOf(plan_, w);
      l.admitted = [this] { return admitted_; };
      for (const PlanActor& a : l.plan.actors) {
        WEFT_ASSIGN_OR_RETURN(l.actors[a.id], ActorRegistry::Std("cpu").Make(a.cls, a.config, worker.device.get()));
      }
      GraphRun::Options ro;
      ro.clock = &clock_;
      ro.device = worker.device.get();
      WEFT_ASSIGN_OR_RETURN(worker.run, GraphRun::Create(std::move(l), ro));
      workers_.push_back(std::move(worker));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<InProcessResult>> Run(const std::function<Tensor(const std::string&, int64_t)>& input) {
    results_.resize(options_.executions);
    int idle = 0;
    while (Completed() < options_.executions) {
      bool moved = Admit(input);
      WEFT_ASSIGN_OR_RETURN(const bool changed, Replan());
      moved |= changed;
      std::shuffle(workers_.begin(), workers_.end(), rng_);
      for (Worker& w : workers_) {
        moved |= w.run->Step();
        if (!w.run->failure().ok()) return w.run->failure();
      }
      WEFT_ASSIGN_OR_RETURN(const bool took, TakeOutputs());
      moved |= took;
      if (moved) {
        idle = 0;
        continue;
      }
      Nanos next = Event::kUnknown;
      for (const Worker& w : workers_) next = std::min(next, w.run->NextTime());
      for (const Output& o : outputs_) {
        if (o.event != nullptr) next = std::min(next, o.event->ReadyAt());
      }
      if (next != Event::kUnknown && next > clock_.Now()) {
        clock_.Set(next);
      } else if (++idle > kIdleRounds) {
        return Stuck();
      }
    }
    return results_;
  }

 private:
  struct Input {
    const PlanEdge* edge;
    std::unique_ptr<SendPort> port;
  };
  struct Output {
    const PlanEdge* edge;
    std::unique_ptr<RecvPort> port;
    int64_t next = 0;
    Value value;
    EventRef event;
  };

  int64_t Completed() const {
    int64_t n = INT64_MAX;
    for (const Output& o : outputs_) n = std::min(n, o.next);
    if (outputs_.empty()) {
      for (const Worker& w : workers_) n = std::min(n, w.run->completed());
    }
    return n;
  }

  bool Admit(const std::function<Tensor(const std::string&, int64_t)>& input) {
    bool moved = false;
    while (admitted_ + 1 < options_.executions && admitted_ + 1 - Completed() < options_.in_flight) {
      const int64_t k = admitted_ + 1;
      if (options_.next != nullptr && !replanned_ && k == options_.next_from) return moved;
      for (const Input& i : inputs_) {
        if (i.port->Poll(k) != PortState::kReady) return moved;
      }
      for (const Input& i : inputs_) {
        Value v;
        v.tensor = input(i.edge->src, k);
        if (!i.port->Send(k, v, nullptr).ok()) return moved;
      }
      admitted_ = k;
      moved = true;
    }
    return moved;
  }

  // Once all executions before the change are done on every worker, each changes.
  absl::StatusOr<bool> Replan() {
    if (options_.next == nullptr || replanned_ || admitted_ + 1 != options_.next_from) return false;
    for (const Worker& w : workers_) {
      if (w.run->completed() < options_.next_from) return false;
    }
    for (Worker& w : workers_) WEFT_RETURN_IF_ERROR(w.run->Replan(PartOf(*options_.next, w.run->plan().part_of), options_.next_from));
    replanned_ = true;
    return true;
  }

  absl::StatusOr<bool> TakeOutputs() {
    bool moved = false;
    for (Output& o : outputs_) {
      if (o.next > admitted_) continue;
      if (!waiting_.count(&o)) {
        if (o.port->Poll(o.next) != PortState::kReady) continue;
        WEFT_ASSIGN_OR_RETURN(o.event, o.port->Recv(o.next, Tensor(), &o.value, nullptr));
        waiting_.insert(&o);
      }
      if (!IsReady(o.event)) continue;
      waiting_.erase(&o);
      o.event = nullptr;
      InProcessValue v;
      if (o.value.error != nullptr) {
        v.error = o.value.error->ToString();
      } else {
        WEFT_ASSIGN_OR_RETURN(v.tensor, Tensor::OnHost(o.value.tensor.dtype(), o.value.tensor.dims()));
        std::memcpy(v.tensor.data(), o.value.tensor.data(), v.tensor.bytes());
      }
      results_[o.next][o.edge->dst] = std::move(v);
      o.value = Value();
      o.port->Release(o.next);
      ++o.next;
      moved = true;
    }
    return moved;
  }

  absl::Status Stuck() const {
    std::string text = absl::StrCat("nothing moves: admitted ", admitted_ + 1, ", completed ", Completed());
    for (const Worker& w : workers_) {
      const v1::WorkerView v = w.run->Inspect();
      for (const v1::LaneView& l : v.lane()) {
        absl::StrAppend(&text, "\n  ", v.worker(), " ", LaneName(l.lane(), l.index()), ": ", l.state(), " ", l.op(), " execution ",
                        l.execution(), ", waits for ", l.waits_for());
      }
    }
    return absl::InternalError(text);
  }

  const Plan& plan_;
  const InProcessOptions options_;
  std::mt19937_64 rng_;
  FakeClock clock_;
  std::vector<Worker> workers_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::set<const Output*> waiting_;
  int64_t admitted_ = -1;
  bool replanned_ = false;
  std::vector<InProcessResult> results_;
};

}  // namespace

absl::StatusOr<std::vector<InProcessResult>> RunInProcess(const Plan& plan, const InProcessOptions& options,
                                                          const std::function<Tensor(const std::string&, int64_t)>& input) {
  Harness h(plan, options);
  WEFT_RETURN_IF_ERROR(h.SetUp());
  return h.Run(input);
}

std::string Differ(const std::vector<InProcessResult>& a, const std::vector<InProcessResult>& b) {
  if (a.size() != b.size()) return absl::StrCat(a.size(), " executions against ", b.size());
  for (size_t k = 0; k < a.size(); ++k) {
    if (a[k].size() != b[k].size()) return absl::StrCat("execution ", k, ": ", a[k].size(), " outputs against ", b[k].size());
    for (const auto& [name, v] : a[k]) {
      const auto it = b[k].find(name);
      if (it == b[k].end()) return absl::StrCat("execution ", k, ": no output ", name);
      if (v.error != it->second.error) return absl::StrCat("execution ", k, ", ", name, ": \"", v.error, "\" against \"", it->second.error, "\"");
      if (v.error.empty() && !BitEqual(v.tensor, it->second.tensor)) return absl::StrCat("execution ", k, ", ", name, ": bits differ");
    }
  }
  return "";
}

}  // namespace weft
