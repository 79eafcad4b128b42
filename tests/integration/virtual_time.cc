#include "tests/integration/virtual_time.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/fake/fake_link.h"
#include "common/comm/fake/fake_group.h"
#include "common/device/fake/fake_device.h"
#include "common/session/edge_trial.h"
#include "common/session/session_core.h"
#include "common/session/shm_spec.h"
#include "worker/run/graph_run.h"

namespace weft {
namespace {

constexpr int kIdleRounds = 20;

// Calls take what the model says, whatever they do.
class PacedActor : public Actor {
 public:
  PacedActor(std::unique_ptr<Actor> inner, std::map<int32_t, Nanos> cost) : inner_(std::move(inner)), cost_(std::move(cost)) {}
  absl::StatusOr<int> Method(const std::string& name) const override { return inner_->Method(name); }
  bool RunsInline(int method, const std::vector<Tensor>& args) const override { return inner_->RunsInline(method, args); }
  absl::Status Call(int method, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    const absl::Status status = inner_->Call(method, ctx, args, outs);
    ctx.Hold(cost_.at(ctx.node_id()));
    return status;
  }

 private:
  const std::unique_ptr<Actor> inner_;
  const std::map<int32_t, Nanos> cost_;  // by node
};

// Ready so long after another event is seen to be.
class LaterEvent : public Event {
 public:
  LaterEvent(EventRef first, Nanos by, const Clock* clock) : first_(std::move(first)), by_(by), clock_(clock) {}
  bool Ready() const override {
    if (at_ == kUnknown && IsReady(first_)) at_ = clock_->Now() + by_;
    return at_ != kUnknown && clock_->Now() >= at_;
  }
  Nanos ReadyAt() const override { return at_; }

 private:
  const EventRef first_;
  const Nanos by_;
  const Clock* const clock_;
  mutable Nanos at_ = kUnknown;
};

class PacedCommunicator : public Communicator {
 public:
  PacedCommunicator(std::unique_ptr<Communicator> inner, Nanos cost, const Clock* clock)
      : inner_(std::move(inner)), cost_(cost), clock_(clock) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  absl::StatusOr<EventRef> Run(const CollectiveCall& call, const Value& in, const Tensor& buffer, Value* out, Stream* s) override {
    WEFT_ASSIGN_OR_RETURN(EventRef event, inner_->Run(call, in, buffer, out, s));
    return EventRef(std::make_shared<LaterEvent>(std::move(event), cost_, clock_));
  }
  void Abort(const absl::Status& cause) override { inner_->Abort(cause); }
  absl::Status Health() const override { return inner_->Health(); }

 private:
  const std::unique_ptr<Communicator> inner_;
  const Nanos cost_;
  const Clock* const clock_;
};

class Harness {
 public:
  Harness(const Plan& plan, const CostModel& costs, int64_t executions, uint64_t seed)
      : plan_(plan), costs_(costs), executions_(executions), rng_(seed) {}

  absl::Status SetUp() {
    SessionCore::Options options;
    options.clock = &clock_;
    WEFT_ASSIGN_OR_RETURN(bell_, Doorbell::Create());
    options.doorbell = bell_.get();
    options.on_link_failed = [this](const absl::Status& why) { failed_ = why; };
    std::set<int32_t> used;
    for (const PlanOp& op : plan_.ops) used.insert(op.worker);
    options.workers.assign(used.begin(), used.end());
    WEFT_ASSIGN_OR_RETURN(core_, SessionCore::Create(std::shared_ptr<const Plan>(&plan_, [](const Plan*) {}), options));
    loaded_.resize(plan_.workers.size());
    MakeLinks();
    for (const PlanGroup& g : plan_.groups) {
      GroupInfo info;
      info.id = g.id;
      info.name = g.name;
      info.plan_hash = HashAsNumber(plan_.hash);
      for (const int32_t w : g.members) info.workers.push_back(WorkerName(plan_, w));
      FakeGroup group(std::move(info));
      for (size_t r = 0; r < g.members.size(); ++r) {
        loaded_[g.members[r]].groups[g.id] = std::make_unique<PacedCommunicator>(
            group.Take(static_cast<int>(r)), costs_.collective ? costs_.collective(plan_, g) : 0, &clock_);
      }
    }
    WEFT_RETURN_IF_ERROR(TryClientEdges());
    for (const int32_t w : used) WEFT_RETURN_IF_ERROR(MakeWorker(w));
    return absl::OkStatus();
  }

  absl::StatusOr<VirtualRun> Run(const std::function<Tensor(const std::string&, int64_t)>& input) {
    started_ = true;
    result_.admitted.resize(executions_);
    result_.done.resize(executions_);
    core_->Start();
    for (int64_t k = 0; k < executions_; ++k) {
      SessionSubmit submit;
      for (const SessionValueSpec& v : core_->spec().inputs) submit.inputs.push_back(input(v.name, k));
      submit.mode = v1::QUEUE;
      submit.done = [this](absl::StatusOr<SessionResult> r) { Done(r); };
      WEFT_RETURN_IF_ERROR(core_->Submit(std::move(submit)).status());
    }
    int idle = 0;
    while (done_ < executions_ || !Finished()) {
      bool moved = core_->Step(&until_);
      std::shuffle(workers_.begin(), workers_.end(), rng_);
      for (Worker& w : workers_) {
        moved |= w.run->Step();
        if (!w.run->failure().ok()) return w.run->failure();
        const int64_t completed = w.run->completed();
        moved |= completed != w.told;
        w.told = completed;
        core_->Progress(w.index, completed);
      }
      if (!failed_.ok()) return failed_;
      if (moved) {
        idle = 0;
        continue;
      }
      Nanos next = Event::kUnknown;
      core_->Step(&next);
      for (const Worker& w : workers_) next = std::min(next, w.run->NextTime());
      if (next != Event::kUnknown && next > clock_.Now()) {
        clock_.Set(next);
      } else if (++idle > kIdleRounds) {
        return absl::InternalError(absl::StrCat("nothing moves at ", clock_.Now(), " ns with ", done_, " executions done"));
      }
    }
    for (const Worker& w : workers_) {
      for (const TraceRecord& r : w.run->trace().Since(0)) result_.events.push_back({r.op, r.execution, r.start, r.end});
    }
    std::sort(result_.events.begin(), result_.events.end(), [](const SimEvent& a, const SimEvent& b) {
      return std::tie(a.end, a.op, a.execution) < std::tie(b.end, b.op, b.execution);
    });
    return result_;
  }

 private:
  struct Worker {
    int32_t index = 0;
    std::unique_ptr<FakeDevice> device;
    std::unique_ptr<GraphRun> run;
    int64_t told = 0;
  };

  class Admission : public AdmissionLink {
   public:
    explicit Admission(int64_t* admitted) : admitted_(admitted) {}
    void Publish(int64_t execution) override { *admitted_ = execution; }
    absl::Status closed() const override { return absl::OkStatus(); }
    void Close(const absl::Status&) override {}

   private:
    int64_t* const admitted_;
  };

  void MakeLinks() {
    std::map<int32_t, std::unique_ptr<SendPort>> inputs;
    std::map<int32_t, std::unique_ptr<RecvPort>> outputs;
    for (const PlanEdge& e : plan_.edges) {
      ShmEdgeSpec spec = ShmSpecOf(plan_, e);
      spec.latency_s = spec.bandwidth = 0;  // the costs have them
      FakeLink::Options o;
      o.clock = &clock_;
      o.plan_hash = HashAsNumber(plan_.hash);
      // What the client writes is there when it is admitted.
      const Nanos cost = e.src_worker == kClient || !costs_.transfer ? 0 : costs_.transfer(plan_, e);
      o.delay = [this, cost] { return started_ ? cost : 0; };
      auto [send, recv] = FakeLink::Make(std::move(spec), std::move(o));
      if (e.src_worker == kClient) {
        inputs[e.id] = std::move(send);
      } else {
        loaded_[e.src_worker].senders[e.id] = std::move(send);
      }
      if (e.dst_worker == kClient) {
        outputs[e.id] = std::move(recv);
      } else {
        loaded_[e.dst_worker].receivers[e.id] = std::move(recv);
      }
    }
    for (const ClientEdge& e : core_->edges().inputs) ports_.inputs.push_back(std::move(inputs[e.edge->id]));
    for (const ClientEdge& e : core_->edges().outputs) ports_.outputs.push_back(std::move(outputs[e.edge->id]));
    ports_.links.push_back(std::make_unique<Admission>(&admitted_));
  }

  absl::Status TryClientEdges() {
    absl::Status tried = absl::UnknownError("the session has not tried its edges");
    core_->Connect(std::move(ports_), Event::kUnknown, [&](absl::Status s) { tried = std::move(s); });
    core_->Step(&until_);
    for (const ClientEdge& e : core_->edges().inputs) {
      RecvPort& port = *loaded_[e.edge->dst_worker].receivers[e.edge->id];
      Value value;
      port.Poll(kTrialExecution);
      WEFT_ASSIGN_OR_RETURN(const EventRef event, port.Recv(kTrialExecution, Tensor(), &value, nullptr));
      if (!IsReady(event)) return absl::InternalError("a trial takes time");
      port.Release(kTrialExecution);
    }
    for (const ClientEdge& e : core_->edges().outputs) {
      WEFT_RETURN_IF_ERROR(
          loaded_[e.edge->src_worker].senders[e.edge->id]->Send(kTrialExecution, TrialValue(e.edge->id), nullptr).status());
    }
    core_->Step(&until_);
    return tried;
  }

  absl::Status MakeWorker(int32_t w) {
    Worker worker;
    worker.index = w;
    FakeDevice::Options o;
    o.polls = {0};
    worker.device = std::make_unique<FakeDevice>(&clock_, o);
    LoadedGraph& l = loaded_[w];
    l.plan = PartOf(plan_, w);
    l.admitted = [this] { return admitted_; };
    for (const PlanActor& a : l.plan.actors) {
      std::map<int32_t, Nanos> cost;
      for (const PlanNode& n : l.plan.nodes) cost[n.id] = costs_.compute ? costs_.compute(plan_, n) : 0;
      WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Actor> actor, ActorRegistry::Std("cpu").Make(a.cls, a.config, worker.device.get()));
      l.actors[a.id] = std::make_unique<PacedActor>(std::move(actor), std::move(cost));
    }
    GraphRun::Options ro;
    ro.clock = &clock_;
    ro.device = worker.device.get();
    ro.trace_capacity = l.plan.ops.size() * executions_;
    WEFT_ASSIGN_OR_RETURN(worker.run, GraphRun::Create(std::move(l), ro));
    workers_.push_back(std::move(worker));
    return absl::OkStatus();
  }

  void Done(const absl::StatusOr<SessionResult>& r) {
    if (!r.ok()) {
      failed_ = r.status();
      return;
    }
    result_.admitted[r->execution] = r->admitted;
    result_.done[r->execution] = r->done;
    for (const SessionOutput& o : r->outputs) {
      if (o.error != nullptr) failed_ = absl::InternalError(o.error->ToString());
    }
    ++done_;
  }

  bool Finished() const {
    return std::all_of(workers_.begin(), workers_.end(), [&](const Worker& w) { return w.run->completed() == executions_; });
  }

  const Plan& plan_;
  const CostModel& costs_;
  const int64_t executions_;
  std::mt19937_64 rng_;
  FakeClock clock_;
  std::unique_ptr<Doorbell> bell_;
  std::vector<LoadedGraph> loaded_;
  SessionPorts ports_;
  std::vector<Worker> workers_;
  std::shared_ptr<SessionCore> core_;
  bool started_ = false;
  int64_t admitted_ = -1;
  int64_t done_ = 0;
  Nanos until_ = Event::kUnknown;
  absl::Status failed_;
  VirtualRun result_;
};

}  // namespace

absl::StatusOr<VirtualRun> RunInVirtualTime(const Plan& plan, const CostModel& costs, int64_t executions, uint64_t seed,
                                            const std::function<Tensor(const std::string&, int64_t)>& input) {
  Harness h(plan, costs, executions, seed);
  WEFT_RETURN_IF_ERROR(h.SetUp());
  return h.Run(input);
}

}  // namespace weft
