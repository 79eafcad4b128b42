#include <catch2/catch.hpp>

#include "driver/cluster/fake_cluster.h"
#include "driver/cluster/inspect_text.h"

namespace weft {
namespace {

using What = v1::DriverMessage;

bool Has(const std::string& s, const std::string& text) { return s.find(text) != std::string::npos; }

struct Running : FakeCluster {
  Running()
      : w0(&coordinator, "w0", "i0", 100), w1(&coordinator, "w1", "i1", 101), w2(&coordinator, "w2", "i2", 102) {
    MakeReady(Graph("g", {"w0", "w1"}), {&w0, &w1});
    session = sessions.back();
  }
  FakeWorker w0, w1, w2;
  std::shared_ptr<FakeSession> session;
};

TEST_CASE("a worker's death fails its graphs with the executions in flight, and aborts the other workers") {
  Running c;
  c.MakeReady(FakeCluster::Graph("h", {"w2"}), {&c.w2});
  c.session->now.admitted = 8;
  c.session->now.completed = 5;
  c.w1.Die();
  CHECK(c.StateOf("g") == "failed");
  CHECK(c.ErrorOf("g") == "worker w1 (pid 101) is gone: its control stream closed; graph g had executions 5..7 in flight");
  CHECK(absl::IsUnavailable(c.session->failed));
  REQUIRE(c.w0.link->Count(What::kAbort) == 1);
  CHECK(c.w0.link->Of(What::kAbort)[0].abort().message() == c.ErrorOf("g"));
  CHECK(c.w0.link->Count(What::kUnload) == 0);
  CHECK(c.StateOf("h") == "ready");
  CHECK(c.w2.link->Count(What::kAbort) == 0);
  CHECK(absl::IsFailedPrecondition(c.coordinator.SessionOf("g").status()));
  // The first cause stays.
  const std::string first = c.ErrorOf("g");
  c.w0.FailGraph("g", c.attempt, absl::InternalError("consequence"));
  c.w0.Die();
  CHECK(c.ErrorOf("g") == first);
}

TEST_CASE("of a death and its consequences the death is the cause, whichever is heard first") {
  Running c;
  const std::string attempt = c.w0.Attempt();
  c.w0.FailGraph("g", attempt, absl::UnavailableError("peer w1 closed"));
  c.session->args.on_failed(absl::UnavailableError("w1 closed its segment"));
  CHECK(c.StateOf("g") == "ready");
  CHECK(c.session->failed.ok());
  c.w1.Die();
  CHECK(Has(c.ErrorOf("g"), "worker w1 (pid 101) is gone"));
}

TEST_CASE("a failure that is no consequence is final at once") {
  Running c;
  c.w0.FailGraph("g", c.w0.Attempt(), absl::InternalError("illegal address in square0"));
  CHECK(c.ErrorOf("g") == "worker w0: illegal address in square0");
  CHECK(c.w1.link->Count(What::kAbort) == 1);
}

TEST_CASE("a teardown drains, then unloads, then forgets") {
  Running c;
  absl::Status torn = absl::UnknownError("");
  c.session->now.admitted = 3;
  c.session->now.completed = 1;
  c.coordinator.Teardown("g", 5, [&](absl::Status s) { torn = s; });
  CHECK(c.StateOf("g") == "tearing-down");
  CHECK(c.w0.link->Count(What::kUnload) == 0);
  CHECK_FALSE(c.coordinator.SessionOf("g").ok());
  SECTION("in time") {
    c.session->now.completed = 3;
    c.session->drained();
    CHECK(c.w0.link->Count(What::kUnload) == 1);
    CHECK(absl::IsCancelled(c.session->failed));
    c.w0.Unload();
    CHECK_FALSE(torn.ok());
    c.w1.Unload();
    CHECK(torn.ok());
  }
  SECTION("executions that do not finish are ended") {
    c.After(5);
    CHECK(absl::IsDeadlineExceeded(c.session->failed));
    CHECK(Has(std::string(c.session->failed.message()), "executions 1..2 had not finished within 5.0 s"));
    c.w0.Unload();
    c.w1.Unload();
    CHECK(torn.ok());
  }
  SECTION("a worker dies meanwhile") {
    c.w1.Die();
    CHECK(Has(std::string(c.session->failed.message()), "worker w1 (pid 101) is gone"));
    CHECK(c.w0.link->Count(What::kUnload) == 1);
    c.w0.Unload();
    CHECK(torn.ok());
  }
  SECTION("a worker does not answer") {
    c.session->drained();
    c.w0.Unload();
    c.After(4.9);
    CHECK_FALSE(torn.ok());
    c.After(0.1);
    CHECK(torn.ok());
  }
  SECTION("a second teardown ends with the first") {
    absl::Status second = absl::UnknownError("");
    c.coordinator.Teardown("g", 5, [&](absl::Status s) { second = s; });
    c.session->drained();
    c.w0.Die();
    c.w1.Unload();
    CHECK(torn.ok());
    CHECK(second.ok());
  }
  CHECK(c.StateOf("g") == "absent");
}

TEST_CASE("tearing down what is not there, or what failed") {
  Running c;
  absl::Status torn;
  c.coordinator.Teardown("nothing", 5, [&](absl::Status s) { torn = s; });
  CHECK(absl::IsNotFound(torn));
  c.w1.Die();
  torn = absl::UnknownError("");
  c.coordinator.Teardown("g", 5, [&](absl::Status s) { torn = s; });
  c.w0.Unload();
  CHECK(torn.ok());
  CHECK(c.StateOf("g") == "absent");
}

TEST_CASE("inspect asks every worker of the graph and names those that do not answer") {
  Running c;
  v1::InspectReply reply;
  int calls = 0;
  REQUIRE(c.coordinator.Inspect("g", [&](v1::InspectReply r) {
    ++calls;
    reply = std::move(r);
  }).ok());
  REQUIRE(c.w0.link->Count(What::kInspect) == 1);
  CHECK(c.w2.link->Count(What::kInspect) == 0);
  v1::WorkerMessage m = c.w0.Message();
  m.mutable_inspect_result()->set_request(c.w0.link->Of(What::kInspect)[0].inspect().request());
  v1::WorkerView* view = m.mutable_inspect_result()->add_view();
  view->set_graph("g");
  view->set_worker("an impostor");
  v1::LaneView* lane = view->add_lane();
  lane->set_lane(v1::LANE_RECV);
  lane->set_op("RECV make0:0 -> square0:0");
  lane->set_execution(5);
  lane->set_state("waiting");
  lane->set_waits_for("w1 to send");
  lane->set_since_s(3.1);
  c.w0.Say(m);
  CHECK(calls == 0);
  c.w0.Heartbeat(1);
  c.After(1);
  REQUIRE(calls == 1);
  const std::string text = InspectText(reply, "g");
  CHECK(Has(text, "w0 recv"));
  CHECK(Has(text, "RECV make0:0 -> square0:0 of execution 5 waits for w1 to send, for 3.1 s"));
  CHECK(Has(text, "w1: no answer in time"));
  // Its answer, late, is dropped.
  c.w0.Say(m);
  CHECK(calls == 1);
  CHECK(absl::IsNotFound(c.coordinator.Inspect("nothing", [](auto) {})));
}

TEST_CASE("an inspect of everything asks workers without graphs too; a death ends one that waits for that worker") {
  Running c;
  int calls = 0;
  v1::InspectReply reply;
  REQUIRE(c.coordinator.Inspect("", [&](v1::InspectReply r) {
    ++calls;
    reply = std::move(r);
  }).ok());
  v1::WorkerMessage m = c.w0.Message();
  m.mutable_inspect_result()->set_request(c.w0.link->Of(What::kInspect)[0].inspect().request());
  c.w0.Say(m);
  // Its graph is forgotten here, and not gone there.
  REQUIRE(c.w2.link->Count(What::kInspect) == 1);
  m = c.w2.Message();
  m.mutable_inspect_result()->set_request(c.w2.link->Of(What::kInspect)[0].inspect().request());
  m.mutable_inspect_result()->add_view()->set_problem("the graph is being removed");
  c.w2.Say(m);
  CHECK(calls == 0);
  c.w1.Die();
  REQUIRE(calls == 1);
  CHECK(Has(InspectText(reply), "w2: the graph is being removed"));
  CHECK(Has(InspectText(reply), "w1: lost"));
}

TEST_CASE("a standstill is reported once, fails nothing, and is forgotten when things move") {
  Running c;
  c.session->now.admitted = 2;
  c.session->now.completed = 1;
  for (int i = 0; i < 70; ++i) {
    c.w0.Heartbeat(i < 5 ? i : 5);
    c.w1.Heartbeat(0);
    c.After(1);
  }
  CHECK(c.w0.link->Count(What::kInspect) == 1);
  const v1::GraphInfo info = c.coordinator.ListGraphs().graph(0);
  CHECK(info.state() == "ready");
  CHECK(Has(info.stalled(), "nothing has moved"));
  CHECK(c.session->failed.ok());
  c.w0.Heartbeat(6);
  c.After(1);
  CHECK(c.coordinator.ListGraphs().graph(0).stalled().empty());
}

TEST_CASE("nothing stalls while nothing is in flight") {
  Running c;
  c.After(1000);
  c.After(1000);
  CHECK(c.w0.link->Count(What::kInspect) == 0);
  CHECK(c.coordinator.ListGraphs().graph(0).stalled().empty());
}

TEST_CASE("progress of workers reaches the session; foreign attempts and workers do not") {
  Running c;
  v1::WorkerMessage m = c.w1.Message();
  m.mutable_graph_progress()->set_graph("g");
  m.mutable_graph_progress()->set_attempt(c.w1.Attempt());
  m.mutable_graph_progress()->set_completed(4);
  c.w1.Say(m);
  REQUIRE(c.session->progress.size() == 1);
  CHECK(c.session->progress[0] == std::make_pair(1, int64_t{4}));
  m.mutable_graph_progress()->set_attempt("other");
  c.w1.Say(m);
  m = c.w2.Message();
  m.mutable_graph_progress()->set_graph("g");
  m.mutable_graph_progress()->set_attempt(c.w1.Attempt());
  c.w2.Say(m);
  CHECK(c.session->progress.size() == 1);
}

TEST_CASE("traces come with each worker's clock offset, and with who gave none") {
  Running c;
  std::vector<v1::TraceTrack> tracks;
  std::map<std::string, std::string> problems;
  REQUIRE(c.coordinator.Trace("g", 3, [&](std::vector<v1::TraceTrack> t, std::map<std::string, std::string> p) {
    tracks = std::move(t);
    problems = std::move(p);
  }).ok());
  v1::WorkerMessage m = c.w0.Message();
  const v1::FetchTrace fetch = c.w0.link->Of(What::kFetchTrace)[0].fetch_trace();
  CHECK(fetch.executions() == 3);
  m.mutable_trace_result()->set_request(fetch.request());
  m.mutable_trace_result()->mutable_track()->add_event()->set_op(1);
  c.w0.Say(m);
  m.mutable_trace_result()->set_last(true);
  c.w0.Say(m);
  c.w1.Die();
  REQUIRE(tracks.size() == 2);
  CHECK(tracks[0].worker() == "w0");
  CHECK(problems.count("w1") == 1);
}

TEST_CASE("keys of a graph end with it, and carry its first cause") {
  Running c;
  absl::Status got;
  const std::string attempt = c.w0.Attempt();
  REQUIRE(c.coordinator.store()->Set("g", attempt, "k", "v").ok());
  c.coordinator.store()->Get("g", attempt, {"k2"}, c.clock.Now() + kNanosPerSecond, [&](auto r) { got = r.status(); });
  c.w1.Die();
  CHECK(absl::IsAborted(got));
  CHECK(Has(std::string(got.message()), "worker w1 (pid 101) is gone"));
}

TEST_CASE("a worker's data stream finds its session only with the right attempt and incarnation") {
  Running c;
  const std::string attempt = c.w0.Attempt();
  CHECK(c.coordinator.SessionOfAttempt("g", attempt, "w0", "i0").ok());
  CHECK_FALSE(c.coordinator.SessionOfAttempt("g", attempt, "w0", "old").ok());
  CHECK_FALSE(c.coordinator.SessionOfAttempt("g", attempt, "w2", "i2").ok());
  CHECK_FALSE(c.coordinator.SessionOfAttempt("g", "old", "w0", "i0").ok());
  CHECK_FALSE(c.coordinator.SessionOfAttempt("x", attempt, "w0", "i0").ok());
}

}  // namespace
}  // namespace weft
