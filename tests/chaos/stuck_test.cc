// A worker whose loop does not come back from a call, or whose GPU's memory is being given back for long: the others answer as ever, and for that
// worker inspect, errors and logs name the call. The GPU is one that the CPU plays, since a real one cannot be told to hang.

#include <signal.h>
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "tests/integration/daemons.h"

namespace weft {
namespace {

using Catch::Matchers::Contains;

// A directory in which a file's name is that of a method of CUDA whose calls hang on worker 1.
class Holds {
 public:
  Holds() {
    char dir[] = "/tmp/weft-holds-XXXXXX";
    REQUIRE(mkdtemp(dir) != nullptr);
    dir_ = dir;
  }
  ~Holds() { std::filesystem::remove_all(dir_); }
  std::vector<std::string> Devices() const { return {"cpu", "fake-cuda --hold-calls " + dir_, "cpu"}; }
  // Until the worker does so.
  void Hold(const std::string& method) {
    std::ofstream(dir_ + "/" + method) << method;
    REQUIRE(Within(20, [&] { return std::filesystem::exists(dir_ + "/" + method + ".on"); }));
  }
  bool AnyHeld() const { return std::filesystem::exists(dir_ + "/held"); }
  void LetGo() {
    for (const auto& file : std::filesystem::directory_iterator(dir_)) std::filesystem::remove(file.path());
  }

 private:
  std::string dir_;
};

// w1's task takes nothing and is what hangs; w0 and w2 each do something of their own with it.
v1::Graph Slow(const std::string& name) {
  v1::Graph g;
  g.set_name(name);
  for (int w = 0; w < 3; ++w) {
    v1::Actor* a = g.add_actor();
    a->set_name(absl::StrCat("actor", w));
    a->set_class_("std.Delay");
    a->set_worker(absl::StrCat("w", w));
    a->mutable_config()->set_duration_s(0);
  }
  v1::Node* n = g.add_node();
  n->set_name("slow");
  n->set_actor("actor1");
  n->set_method("run");
  for (const int w : {0, 2}) {
    n = g.add_node();
    n->set_name(absl::StrCat("after", w));
    n->set_actor(absl::StrCat("actor", w));
    n->set_method("run");
    n->add_arg()->set_node("slow");
    v1::Output* o = g.add_output();
    o->set_name(absl::StrCat("out", w));
    o->set_node(n->name());
  }
  g.mutable_options()->set_max_in_flight(2);
  g.mutable_options()->set_progress_timeout_s(1);
  return g;
}

std::string ProblemOf(const v1::InspectReply& reply, const std::string& worker) {
  for (const v1::WorkerView& v : reply.view()) {
    if (v.worker() == worker && !v.problem().empty()) return v.problem();
  }
  return "";
}

// Whether w1 says of `graph` what begins so; `graph` as the driver knows it, or one that it has forgotten.
bool Says(Client* client, const std::string& graph, const std::string& begin) {
  const auto seen = client->Inspect("");
  if (!seen.ok()) return false;
  for (const v1::WorkerView& v : seen->view()) {
    if (v.worker() == "w1" && v.graph() == graph && v.problem().find(begin) == 0) return true;
  }
  return false;
}

int LanesOf(const v1::InspectReply& reply, const std::string& worker) {
  int lanes = 0;
  for (const v1::WorkerView& v : reply.view()) {
    if (v.worker() == worker) lanes += v.lane_size();
  }
  return lanes;
}

TEST_CASE("stuck: a worker whose loop is inside a call that does not return is told by that call, everywhere") {
  Holds holds;
  Daemons d({"h0", "h0", "h0"}, "h0", holds.Devices());
  const std::unique_ptr<Client> client = d.Dial();
  const auto compiled = client->Compile(Slow("g"), {});
  INFO(compiled.status().ToString());
  REQUIRE(compiled.ok());
  SessionOptions options;
  options.graph = "g";
  options.deadline_s = 2;
  auto session = client->OpenSession(options);
  REQUIRE(session.ok());
  for (int k = 0; k < 3; ++k) {
    const auto r = (*session)->Wait(*(*session)->Submit({}), 20);
    REQUIRE(r.ok());
    REQUIRE(r->ok());
  }
  holds.Hold("Enqueue");
  const auto handle = (*session)->Submit({});
  REQUIRE(handle.ok());

  const std::string call = "the worker's loop has been inside method `run` of node slow, actor actor1 of class std.Delay (execution 3 of graph g) for ";
  v1::InspectReply reply;
  CHECK(Within(10, [&] {
    const Nanos asked = Clock::Real()->Now();
    const auto seen = client->Inspect("g");
    if (!seen.ok()) return false;
    CHECK(Clock::Real()->Now() - asked < FromSeconds(1.5));
    reply = *seen;
    return ProblemOf(reply, "w1").find(call) == 0;
  }));
  INFO(reply.DebugString());
  CHECK_THAT(ProblemOf(reply, "w1"), Contains(absl::StrCat("end process ", d.worker_pid(1))));
  for (const char* other : {"w0", "w2"}) {
    CHECK(ProblemOf(reply, other).empty());
    CHECK(LanesOf(reply, other) > 0);
  }

  // The deadline's error and the report of a graph that makes no progress say it as well.
  const auto late = (*session)->Wait(*handle, 20);
  REQUIRE_FALSE(late.ok());
  CHECK(absl::IsDeadlineExceeded(late.status()));
  CHECK_THAT(std::string(late.status().message()), Contains("w1: " + call));
  std::string stalled;
  CHECK(Within(10, [&] {
    const auto graphs = client->ListGraphs();
    if (graphs.ok() && graphs->graph_size() == 1) stalled = graphs->graph(0).stalled();
    return !stalled.empty();
  }));
  CHECK_THAT(stalled, Contains("w1: " + call));
  // After 5 s the worker says it by itself.
  CHECK(Within(15, [&] { return d.Log("w1").find(call) != std::string::npos; }));

  holds.LetGo();
  CHECK(Within(10, [&] { return d.Log("w1").find("the worker's loop goes on") != std::string::npos; }));
  const auto again = (*session)->Wait(*(*session)->Submit({}), 20);
  REQUIRE(again.ok());
  CHECK(again->ok());
  const auto well = client->Inspect("g");
  REQUIRE(well.ok());
  CHECK(ProblemOf(*well, "w1").empty());
  CHECK(LanesOf(*well, "w1") > 0);
}

TEST_CASE("stuck: a graph whose bootstrap waits for memory to be given back to CUDA says so") {
  Holds holds;
  Daemons d({"h0", "h0", "h0"}, "h0", holds.Devices());
  const std::unique_ptr<Client> client = d.Dial();
  REQUIRE(client->Compile(Slow("first"), {}).ok());
  holds.Hold("Free");
  REQUIRE(client->Teardown("first").ok());
  std::future<absl::Status> second = std::async(std::launch::async, [&] { return client->Compile(Slow("second"), {}).status(); });
  const std::unique_ptr<Client> asks = d.Dial();
  std::string problem;
  CHECK(Within(20, [&] {
    const auto seen = asks->Inspect("second");
    if (seen.ok()) problem = ProblemOf(*seen, "w1");
    return problem.find("bootstrap: it waits until memory of graphs that have ended is given back to CUDA, for ") == 0;
  }));
  INFO(problem);
  CHECK(second.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  const auto seen = asks->Inspect("second");
  REQUIRE(seen.ok());
  CHECK_THAT(ProblemOf(*seen, "w0"), Contains("bootstrap: it "));
  holds.LetGo();
  const absl::Status s = second.get();
  INFO(s.ToString());
  CHECK(s.ok());
}

TEST_CASE("stuck: a bootstrap that is inside a call that does not return holds up nobody else on its worker, and its next attempt says what it waits for") {
  Holds holds;
  Daemons d({"h0", "h0", "h0"}, "h0", holds.Devices());
  const std::unique_ptr<Client> client = d.Dial();
  REQUIRE(client->Compile(Slow("runs"), {}).ok());
  SessionOptions options;
  options.graph = "runs";
  auto session = client->OpenSession(options);
  REQUIRE(session.ok());
  const auto executes = [&] {
    const auto r = (*session)->Wait(*(*session)->Submit({}), 20);
    return r.ok() && r->ok();
  };
  REQUIRE(executes());

  holds.Hold("StreamCreate");
  const std::unique_ptr<Client> asks = d.Dial();
  const auto compile = [&] { return std::async(std::launch::async, [&] { return client->Compile(Slow("hangs"), {}).status(); }); };
  const auto problem = [&](const std::string& begin) {
    INFO(begin);
    CHECK(Within(20, [&] { return Says(asks.get(), "hangs", begin); }));
  };
  std::future<absl::Status> first = compile();
  CHECK(Within(20, [&] { return holds.AnyHeld(); }));
  problem("bootstrap: it ");
  // The driver gives it up and has it removed, which the call does not let happen.
  (void)asks->Teardown("hangs");
  const absl::Status given_up = first.get();
  INFO(given_up.ToString());
  CHECK_FALSE(given_up.ok());
  problem("the graph is being removed; bootstrap: it ");
  const Nanos asked = Clock::Real()->Now();
  const auto seen = asks->Inspect("runs");
  REQUIRE(seen.ok());
  CHECK(Clock::Real()->Now() - asked < FromSeconds(1.5));
  CHECK(ProblemOf(*seen, "w1").empty());
  CHECK(LanesOf(*seen, "w1") > 0);
  CHECK(executes());

  std::future<absl::Status> second = compile();
  problem("bootstrap: it waits for the attempt before it to end on this worker, for ");
  CHECK(executes());
  holds.LetGo();
  const absl::Status s = second.get();
  INFO(s.ToString());
  CHECK(s.ok());
  CHECK(client->Teardown("hangs").ok());
  CHECK(executes());
}

TEST_CASE("stuck: a teardown of a graph whose bootstrap is inside a call does not say that the graph is removed before it is") {
  Holds holds;
  Daemons d({"h0", "h0", "h0"}, "h0", holds.Devices());
  const std::unique_ptr<Client> client = d.Dial();
  holds.Hold("StreamCreate");
  std::future<absl::Status> compiled = std::async(std::launch::async, [&] { return client->Compile(Slow("hangs"), {}).status(); });
  CHECK(Within(20, [&] { return holds.AnyHeld(); }));
  // The driver tells the worker twice: when bootstrap fails, and for the teardown.
  const std::unique_ptr<Client> other = d.Dial();
  std::future<absl::Status> torn_down = std::async(std::launch::async, [&] { return other->Teardown("hangs"); });
  CHECK_FALSE(compiled.get().ok());
  CHECK(torn_down.wait_for(std::chrono::seconds(1)) == std::future_status::timeout);
  holds.LetGo();
  CHECK(torn_down.get().ok());
  CHECK_THAT(d.Log("driver"), !Contains("has not answered Unload"));
  const absl::Status s = client->Compile(Slow("hangs"), {}).status();
  INFO(s.ToString());
  CHECK(s.ok());
}

TEST_CASE("stuck: what becomes of an attempt that was removed while the loop was inside a call is not told of the next attempt") {
  Holds holds;
  Daemons d({"h0", "h0", "h0"}, "h0", holds.Devices());
  const std::unique_ptr<Client> client = d.Dial();
  REQUIRE(client->Compile(Slow("g"), {}).ok());
  SessionOptions options;
  options.graph = "g";
  auto session = client->OpenSession(options);
  REQUIRE(session.ok());
  const auto first = (*session)->Wait(*(*session)->Submit({}), 20);
  REQUIRE(first.ok());
  REQUIRE(first->ok());
  holds.Hold("Enqueue");
  REQUIRE((*session)->Submit({}).ok());
  CHECK(Within(20, [&] { return holds.AnyHeld(); }));
  const std::unique_ptr<Client> other = d.Dial();
  CHECK(other->Teardown("g", 0.1).ok());
  std::future<absl::Status> second = std::async(std::launch::async, [&] { return other->Compile(Slow("g"), {}).status(); });
  const std::unique_ptr<Client> asks = d.Dial();
  CHECK(Within(20, [&] {
    return second.wait_for(std::chrono::seconds(0)) == std::future_status::ready || Says(asks.get(), "g", "bootstrap: it ");
  }));
  holds.LetGo();
  const absl::Status s = second.get();
  INFO(s.ToString());
  REQUIRE(s.ok());
  auto again = other->OpenSession(options);
  REQUIRE(again.ok());
  const auto r = (*again)->Wait(*(*again)->Submit({}), 20);
  INFO(r.status().ToString());
  REQUIRE(r.ok());
  CHECK(r->ok());
}

TEST_CASE("stuck: a worker with a bootstrap that is inside a call comes back to a driver that was started anew, and ends when it is told to") {
  Holds holds;
  Daemons d({"h0", "h0", "h0"}, "h0", holds.Devices());
  std::unique_ptr<Client> client = d.Dial();
  holds.Hold("StreamCreate");
  std::future<absl::Status> first = std::async(std::launch::async, [&] { return client->Compile(Slow("hangs"), {}).status(); });
  CHECK(Within(20, [&] { return holds.AnyHeld(); }));
  d.KillDriver();
  CHECK_FALSE(first.get().ok());
  d.StartDriver();
  d.AwaitWorkers();
  client = d.Dial();
  const auto seen = client->Inspect("");
  REQUIRE(seen.ok());
  CHECK_THAT(ProblemOf(*seen, "w1"), Contains("the graph is being removed; bootstrap: it "));
  std::future<absl::Status> second = std::async(std::launch::async, [&] { return client->Compile(Slow("hangs"), {}).status(); });
  const std::unique_ptr<Client> asks = d.Dial();
  CHECK(Within(20, [&] { return Says(asks.get(), "hangs", "bootstrap: it waits for the attempt before it to end on this worker, for "); }));
  holds.LetGo();
  const absl::Status s = second.get();
  INFO(s.ToString());
  CHECK(s.ok());

  holds.Hold("StreamCreate");
  std::future<absl::Status> third = std::async(std::launch::async, [&] { return client->Compile(Slow("again"), {}).status(); });
  CHECK(Within(20, [&] { return holds.AnyHeld(); }));
  (void)asks->Teardown("again");
  CHECK_FALSE(third.get().ok());
  d.SignalWorker(1, SIGTERM);
  CHECK(Within(10, [&] { return !d.WorkerRuns(1); }));
  INFO(d.Log("w1"));
  CHECK_THAT(d.Log("w1"), Contains("the worker did not stop in time"));
  CHECK_THAT(d.Log("w1"), !Contains("data race"));
  CHECK_THAT(d.Log("w1"), Contains("waits for graph again to end: bootstrap: it "));
}

}  // namespace
}  // namespace weft
