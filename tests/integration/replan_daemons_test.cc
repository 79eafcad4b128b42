// A graph that runs on real processes changes its order between two executions, while a client executes it.

#include <atomic>
#include <catch2/catch.hpp>
#include <signal.h>
#include <thread>

#include "common/plan/plan.h"
#include "driver/simulate/measured_costs.h"
#include "tests/integration/daemons.h"
#include "weft/v1/costs.pb.h"

namespace weft {
namespace {

constexpr double kUnit = 0.004;

// w0 has two calls of one unit in a file order that lets w1, whose call of two units needs the second, wait.
v1::Graph Waiting() {
  v1::Graph g;
  g.set_name("waiting");
  for (int w = 0; w < 2; ++w) {
    v1::Actor* a = g.add_actor();
    a->set_name(w == 0 ? "a" : "b");
    a->set_class_("std.Delay");
    a->set_worker(w == 0 ? "w0" : "w1");
    a->mutable_config()->set_duration_s(kUnit);
    a->mutable_config()->set_dtype(v1::F32);
    a->mutable_config()->set_shape("[4]");
  }
  const auto node = [&](const char* name, const char* actor, const char* arg, double seconds) {
    v1::Node* n = g.add_node();
    n->set_name(name);
    n->set_actor(actor);
    if (arg != nullptr) n->add_arg()->set_node(arg);
    n->mutable_config()->set_duration_s(seconds);
    v1::Output* o = g.add_output();
    o->set_name(std::string(name) + "_out");
    o->set_node(name);
  };
  node("idle", "a", nullptr, kUnit);
  node("first", "a", nullptr, kUnit);
  node("far", "b", "first", 2 * kUnit);
  g.mutable_options()->set_order(v1::COST);
  g.mutable_options()->set_max_in_flight(1);
  return g;
}

// By these nothing is gained by another order, so that of the file stays.
std::string NothingTakesTime() {
  v1::Costs costs;
  costs.set_graph("waiting");
  for (const char* name : {"idle", "first", "far"}) {
    v1::NodeCost* n = costs.add_node();
    n->set_node(name);
    n->set_time_s(0);
  }
  return costs.SerializeAsString();
}

// Executes a graph over and over until told to stop; every result is looked at.
class Load {
 public:
  Load(const Daemons& daemons, const std::string& graph) : client_(daemons.Dial()) {
    SessionOptions options;
    options.graph = graph;
    auto session = client_->OpenSession(options);
    REQUIRE(session.ok());
    session_ = *std::move(session);
    thread_ = std::thread([this] { Run(); });
  }
  ~Load() { Stop(); }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Valid after Stop.
  const absl::Status& failure() const { return failure_; }
  int64_t done() const { return done_.load(); }

 private:
  void Run() {
    while (!stop_ && failure_.ok()) {
      const auto handle = session_->Submit({});
      if (!handle.ok()) {
        failure_ = handle.status();
        return;
      }
      const auto r = session_->Wait(*handle, 30);
      if (!r.ok()) {
        failure_ = r.status();
      } else if (r->execution != done_.load()) {
        failure_ = absl::InternalError("execution " + std::to_string(r->execution) + " came as number " + std::to_string(done_.load()));
      } else if (!r->ok() || r->outputs.size() != 3 || r->outputs.at("far_out").as<float>()[0] != static_cast<float>(r->execution)) {
        failure_ = absl::InternalError("execution " + std::to_string(r->execution) + " has another result");
      } else {
        ++done_;
      }
    }
  }

  const std::unique_ptr<Client> client_;
  std::unique_ptr<ClientSession> session_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> done_{0};
  absl::Status failure_;
  std::thread thread_;
};

TEST_CASE("replan: measured on what a client executes, the faster order is kept, and nothing is lost") {
  Daemons daemons({"h0", "h0"});
  const auto client = daemons.Dial();
  Client::CompileOptions options;
  options.costs = NothingTakesTime();
  REQUIRE(client->Compile(Waiting(), options).ok());
  Load load(daemons, "waiting");
  Client::ReplanOptions replan;
  replan.executions = 10;
  replan.timeout_s = 20;
  REQUIRE(Within(60, [&] { return load.done() >= 12; }));
  const auto reply = client->Replan("waiting", replan);
  if (!reply.ok()) FAIL(std::string(reply.status().message()));
  INFO(reply->DebugString());
  CHECK(reply->new_plan() != reply->old_plan());
  CHECK(reply->new_predicted_s() < reply->old_predicted_s());
  CHECK(reply->old_executions() == 10);
  CHECK(reply->new_executions() == 10);
  CHECK(reply->swapped_at() > 0);
  // Three units instead of four: far beyond what a busy machine adds to both alike.
  CHECK(reply->old_measured_s() > 3.8 * kUnit);
  if (reply->new_measured_s() < reply->old_measured_s()) CHECK(reply->kept_plan() == reply->new_plan());
  const auto plan = client->GetPlan("waiting");
  REQUIRE(plan.ok());
  CHECK(plan->hash() == reply->kept_plan());
  // Again: nothing better is found, and nothing changes.
  if (reply->kept_plan() == reply->new_plan()) {
    const auto again = client->Replan("waiting", replan);
    REQUIRE(again.ok());
    CHECK(again->kept_plan() == reply->kept_plan());
  }
  load.Stop();
  CHECK(load.failure().ok());
  INFO(load.failure().message());
  CHECK(load.done() >= reply->swapped_at() + 10);
  // What is recorded now is of the plan that runs.
  const auto tracks = client->GetTrace("waiting", 5);
  REQUIRE(tracks.ok());
  const auto whole = PlanFromProto(*client->GetPlan("waiting"));
  REQUIRE(whole.ok());
  CHECK(CostsFromTrace(*whole, *tracks).ok());
}

TEST_CASE("replan: a worker that dies meanwhile fails graph, client and call with its death") {
  Daemons daemons({"h0", "h0"});
  const auto client = daemons.Dial();
  Client::CompileOptions options;
  options.costs = NothingTakesTime();
  REQUIRE(client->Compile(Waiting(), options).ok());
  Load load(daemons, "waiting");
  REQUIRE(Within(60, [&] { return load.done() >= 3; }));
  absl::Status replanned;
  std::thread caller([&] {
    Client::ReplanOptions replan;
    replan.executions = 1000;  // still measuring when the worker dies
    replanned = daemons.Dial()->Replan("waiting", replan).status();
  });
  const int64_t seen = load.done();
  REQUIRE(Within(60, [&] { return load.done() >= seen + 5; }));
  daemons.KillWorker(1);
  caller.join();
  load.Stop();
  CHECK(std::string(replanned.message()).find("worker w1") != std::string::npos);
  CHECK(std::string(load.failure().message()).find("worker w1") != std::string::npos);
}

TEST_CASE("replan: refused where nothing may change, or nothing was recorded") {
  Daemons daemons({"h0", "h0"});
  const auto client = daemons.Dial();
  v1::Graph fixed = Waiting();
  fixed.set_name("fixed");
  fixed.mutable_options()->set_order(v1::PROGRAM);
  REQUIRE(client->Compile(fixed, {}).ok());
  Load load(daemons, "fixed");
  REQUIRE(Within(60, [&] { return load.done() >= 3; }));
  const auto refused = client->Replan("fixed", {});
  CHECK(refused.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(std::string(refused.status().message()).find("options { order: COST }") != std::string::npos);
  load.Stop();
  CHECK(load.failure().ok());
  Client::CompileOptions untraced;
  untraced.trace = false;
  REQUIRE(client->Compile(Waiting(), untraced).ok());
  CHECK(std::string(client->Replan("waiting", {}).status().message()).find("with its trace on") != std::string::npos);
  CHECK(client->Replan("nobody", {}).status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace weft
