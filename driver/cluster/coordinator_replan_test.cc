#include <catch2/catch.hpp>

#include "driver/cluster/fake_cluster.h"

namespace weft {
namespace {

using What = v1::DriverMessage;

bool Has(const std::string& s, const std::string& text) { return s.find(text) != std::string::npos; }

// A graph on two workers that is being re-planned; two executions of each plan are measured, two are in flight.
struct Replanning : FakeCluster {
  Replanning() : w0(&coordinator, "w0", "i0", 100), w1(&coordinator, "w1", "i1", 101) {
    v1::Graph graph = Graph("g", {"w0", "w1"});
    graph.mutable_options()->set_max_in_flight(2);
    MakeReady(graph, {&w0, &w1});
    session = sessions.back();
  }
  // What is pending ends while there is somebody to tell.
  ~Replanning() { coordinator.Shutdown(absl::CancelledError("the test ended")); }
  std::weak_ptr<ReplanRecord> Begin(int64_t executions = 2, double timeout_s = 10) {
    return coordinator.Replan("g", v1::Costs(), executions, timeout_s, [this](absl::StatusOr<v1::ReplanReply> r) {
      ++replies;
      reply = std::move(r);
    });
  }
  // The next execution took so long, and was admitted at the end of the one before, or later.
  void Execute(double seconds, double idle = 0) {
    GraphEnd::ExecutionTime t;
    t.execution = static_cast<int64_t>(session->times.size());
    t.admitted = (session->times.empty() ? 0 : session->times.back().done) + FromSeconds(idle);
    t.done = t.admitted + FromSeconds(seconds);
    session->times.push_back(t);
    session->now.admitted = session->now.completed = t.execution + 1;
  }
  // Up to where both workers are told to change, at execution `at`.
  void UpToSwap(int64_t at = 4) {
    for (int i = 0; i < 3; ++i) Execute(0.5);
    Begin();
    w0.TakeNext("next");
    w1.TakeNext("next");
    REQUIRE(session->paused);
    std::exchange(session->paused, nullptr)(at);
  }
  int Swaps(FakeWorker* w) { return w->link->Count(What::kSwap); }
  v1::SwapPlan LastSwap(FakeWorker* w) { return w->link->Of(What::kSwap).back().swap(); }
  std::string Running() { return (*coordinator.PlanOf("g"))->hash; }

  FakeWorker w0, w1;
  std::shared_ptr<FakeSession> session;
  int replies = 0;
  absl::StatusOr<v1::ReplanReply> reply = absl::UnknownError("none yet");
};

TEST_CASE("replan: the faster plan as measured is kept, whatever was predicted") {
  for (const double after : {0.25, 0.75}) {
    Replanning c;
    c.UpToSwap();
    for (FakeWorker* w : {&c.w0, &c.w1}) {
      REQUIRE(c.Swaps(w) == 1);
      CHECK(c.LastSwap(w).plan_hash() == "next");
      CHECK(c.LastSwap(w).execution() == 4);
    }
    CHECK(c.session->resumed == 0);
    c.w0.Swap();
    CHECK(c.session->resumed == 0);  // nothing is admitted before all have changed
    CHECK(c.Running() == "hash");
    c.w1.Swap();
    CHECK(c.session->resumed == 1);
    CHECK(c.Running() == "next");
    // Execution 3 was in flight, 4 and 5 may still show the change; 6 and 7 are measured. What lies idle between them is not.
    for (const double s : {0.5, 9.0, 9.0, after, after}) c.Execute(s, 3.0);
    c.After(0.1);
    if (after < 0.5) {
      REQUIRE(c.replies == 1);
      REQUIRE(c.reply.ok());
      CHECK(c.reply->kept_plan() == "next");
      CHECK(c.reply->reason().empty());
      CHECK(c.Running() == "next");
    } else {
      // Back again, in the same way.
      CHECK(c.replies == 0);
      REQUIRE(c.session->paused);
      std::exchange(c.session->paused, nullptr)(9);
      CHECK(c.LastSwap(&c.w0).plan_hash() == "hash");
      CHECK(c.LastSwap(&c.w1).execution() == 9);
      c.w1.Swap();
      c.w0.Swap();
      CHECK(c.session->resumed == 2);
      REQUIRE(c.replies == 1);
      REQUIRE(c.reply.ok());
      CHECK(c.reply->kept_plan() == "hash");
      CHECK(c.reply->reason() == "the new plan was measured to be no faster");
      CHECK(c.Running() == "hash");
    }
    CHECK(c.reply->old_plan() == "hash");
    CHECK(c.reply->new_plan() == "next");
    CHECK(c.reply->old_measured_s() == Approx(0.5));
    CHECK(c.reply->new_measured_s() == Approx(after));
    CHECK(c.reply->old_executions() == 2);
    CHECK(c.reply->new_executions() == 2);
    CHECK(c.reply->old_predicted_s() == 2);
    CHECK(c.reply->new_predicted_s() == 1);
    CHECK(c.reply->swapped_at() == 4);
    CHECK(c.StateOf("g") == "ready");
  }
}

TEST_CASE("replan: what is not predicted to be faster is not tried") {
  for (const bool same : {true, false}) {
    Replanning c;
    if (same) c.next_hash = "hash";
    if (!same) c.next_predicted_s = 2.0;
    c.Begin();
    REQUIRE(c.replies == 1);
    REQUIRE(c.reply.ok());
    CHECK(c.reply->kept_plan() == "hash");
    CHECK(c.reply->swapped_at() == -1);
    CHECK(c.reply->reason() == "no order was found that is predicted to be faster");
    CHECK(c.w0.link->Count(What::kNextPlan) == 0);
  }
}

TEST_CASE("replan: waits for executions to measure, up to its deadline") {
  Replanning c;
  c.Begin();
  c.Execute(1);
  c.Execute(1);
  c.After(1);
  CHECK(c.w0.link->Count(What::kNextPlan) == 0);  // the first execution does not count
  c.Execute(1);
  c.After(1);
  CHECK(c.w0.link->Count(What::kNextPlan) == 1);
  Replanning idle;
  idle.Execute(1);
  idle.Execute(1);
  idle.Begin();
  idle.After(11);
  REQUIRE(idle.replies == 1);
  CHECK(absl::IsDeadlineExceeded(idle.reply.status()));
  CHECK(Has(std::string(idle.reply.status().message()), "only 1 of 2 executions to measure were done within 10 s"));
  CHECK(idle.StateOf("g") == "ready");
}

TEST_CASE("replan: a plan on which too little ran is given up for the old one") {
  Replanning c;
  c.UpToSwap();
  c.w0.Swap();
  c.w1.Swap();
  c.After(11);
  REQUIRE(c.session->paused);
  std::exchange(c.session->paused, nullptr)(4);
  c.w0.Swap();
  c.w1.Swap();
  REQUIRE(c.reply.ok());
  CHECK(c.reply->kept_plan() == "hash");
  CHECK(c.reply->new_executions() == 0);
  CHECK(c.reply->reason() == "only 0 of 2 executions to measure were done by the new plan within 10 s");
}

TEST_CASE("replan: a worker that cannot take the plan leaves everything as it is") {
  Replanning c;
  for (int i = 0; i < 3; ++i) c.Execute(0.5);
  c.Begin();
  c.w0.TakeNext("next");
  c.w1.TakeNext("next", absl::InvalidArgumentError("the new plan changes edge a:0 -> b:0"));
  REQUIRE(c.replies == 1);
  CHECK(c.reply.status().message() ==
        "graph g: worker w1 cannot change to the new plan: the new plan changes edge a:0 -> b:0; the old plan goes on");
  CHECK_FALSE(c.session->paused);
  CHECK(c.Swaps(&c.w0) == 0);
  CHECK(c.StateOf("g") == "ready");
  // And it can be tried again.
  c.Begin();
  CHECK(c.w0.link->Count(What::kNextPlan) == 2);
}

TEST_CASE("replan: a change that fails on one worker is taken back on all, and the graph goes on") {
  Replanning c;
  c.UpToSwap();
  c.w0.Swap();
  c.w1.Swap(absl::ResourceExhaustedError("no stream"));
  CHECK(c.replies == 0);
  CHECK(c.session->resumed == 0);
  for (FakeWorker* w : {&c.w0, &c.w1}) {
    CHECK(c.Swaps(w) == 2);
    CHECK(c.LastSwap(w).plan_hash() == "hash");
    CHECK(c.LastSwap(w).execution() == 4);
    w->Swap();
  }
  CHECK(c.session->resumed == 1);
  REQUIRE(c.replies == 1);
  CHECK(c.reply.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(c.reply.status().message() == "graph g: worker w1 did not change its plan: no stream; the graph goes on by plan hash");
  CHECK(c.Running() == "hash");
  CHECK(c.StateOf("g") == "ready");
}

TEST_CASE("replan: executions that do not end are waited for up to the deadline, then nobody changes") {
  Replanning c;
  c.UpToSwap();
  c.w0.Swap();
  c.After(11);
  CHECK(c.LastSwap(&c.w1).plan_hash() == "hash");
  c.w0.Swap();
  // w1 answers to the change that was given up, too late; then to the one back.
  v1::WorkerMessage late = c.w1.Message();
  late.mutable_swap_reply()->set_graph("g");
  late.mutable_swap_reply()->set_attempt(c.w1.Attempt());
  late.mutable_swap_reply()->set_plan_hash("next");
  late.mutable_swap_reply()->set_code(static_cast<int>(absl::StatusCode::kCancelled));
  c.w1.Say(late);
  CHECK(c.replies == 0);
  c.w1.Swap();
  REQUIRE(c.replies == 1);
  CHECK(absl::IsDeadlineExceeded(c.reply.status()));
  CHECK(Has(std::string(c.reply.status().message()), "not done within 10 s on worker w1"));
  CHECK(c.session->resumed == 1);
  CHECK(c.StateOf("g") == "ready");
}

TEST_CASE("replan: a worker that cannot go back fails the graph, with why it had to") {
  for (const bool silent : {false, true}) {
    Replanning c;
    c.UpToSwap();
    c.w0.Swap();
    c.w1.Swap(absl::InternalError("broke"));
    c.w0.Swap();
    if (silent) {
      c.After(11);
    } else {
      c.w1.Swap(absl::InternalError("broke again"));
    }
    REQUIRE(c.replies == 1);
    CHECK(c.StateOf("g") == "failed");
    CHECK(Has(c.ErrorOf("g"), "worker w1"));
    CHECK(Has(c.ErrorOf("g"), "did not change its plan: broke;"));
    CHECK(std::string(c.reply.status().message()) == c.ErrorOf("g"));
    CHECK(c.session->resumed == 0);
    CHECK_FALSE(c.session->failed.ok());
  }
}

TEST_CASE("replan: a death in any phase fails graph and call with the first cause") {
  for (int phase = 0; phase < 5; ++phase) {
    INFO("phase " << phase);
    Replanning c;
    if (phase > 0) {
      for (int i = 0; i < 3; ++i) c.Execute(0.5);
    }
    c.Begin();
    if (phase > 1) {
      c.w0.TakeNext("next");
      c.w1.TakeNext("next");
    }
    if (phase > 2) c.session->paused(4);
    if (phase > 3) {
      c.w0.Swap();
      c.w1.Swap();
    }
    CHECK(c.replies == 0);
    c.w1.Die();
    REQUIRE(c.replies == 1);
    CHECK(Has(std::string(c.reply.status().message()), "worker w1 (pid 101) is gone"));
    CHECK(c.StateOf("g") == "failed");
    // What comes late meets nobody.
    if (phase == 3) c.w0.Swap();
    c.After(20);
    CHECK(c.replies == 1);
  }
}

TEST_CASE("replan: what cannot be re-planned is told so") {
  Replanning c;
  const auto error = [&](const std::string& graph) {
    absl::Status s;
    c.coordinator.Replan(graph, v1::Costs(), 1, 1, [&](absl::StatusOr<v1::ReplanReply> r) { s = r.status(); });
    return s;
  };
  CHECK(absl::IsNotFound(error("nobody")));
  c.Begin();
  CHECK(error("g").message() == "graph g is being re-planned already: ask again when that is over");
  c.compile_error = absl::FailedPreconditionError("leaves no order free");
  Replanning d;
  d.compile_error = c.compile_error;
  d.Begin();
  CHECK(d.reply.status().message() == "leaves no order free");
  d.w0.Die();
  CHECK(absl::IsFailedPrecondition([&] {
    absl::Status s;
    d.coordinator.Replan("g", v1::Costs(), 1, 1, [&](absl::StatusOr<v1::ReplanReply> r) { s = r.status(); });
    return s;
  }()));
}

TEST_CASE("replan: teardown ends it, in whatever phase, and loses nothing that is in flight") {
  {
    Replanning c;
    c.Begin();
    c.coordinator.Teardown("g", 5, [](absl::Status) {});
    c.After(0.1);
    REQUIRE(c.replies == 1);
    CHECK(c.reply.status().message() == "graph g is tearing-down");
  }
  Replanning c;
  c.UpToSwap();
  c.coordinator.Teardown("g", 5, [](absl::Status) {});
  c.w0.Swap();
  c.w1.Swap();
  CHECK(c.session->resumed == 1);  // what waits for admission is still to be run
  c.session->drained();
  REQUIRE(c.replies == 1);
  CHECK(c.w0.link->Count(What::kUnload) == 1);
}

TEST_CASE("replan: without the client that asked, what has not begun to change ends at once, and what has is finished") {
  for (int phase = 0; phase < 3; ++phase) {
    INFO("phase " << phase);
    Replanning c;
    if (phase > 0) {
      for (int i = 0; i < 3; ++i) c.Execute(0.5);
    }
    const std::weak_ptr<ReplanRecord> asked = c.Begin();
    if (phase > 1) {
      c.w0.TakeNext("next");
      c.w1.TakeNext("next");
    }
    c.coordinator.CancelReplan("g", {});
    c.coordinator.CancelReplan("nobody", asked);
    CHECK(c.replies == 0);
    c.coordinator.CancelReplan("g", asked);
    CHECK(c.replies == (phase < 2 ? 1 : 0));
    CHECK(c.StateOf("g") == "ready");
    if (phase < 2) {
      CHECK(absl::IsCancelled(c.reply.status()));
      // A late answer meets nobody, and the next client need not wait.
      if (phase == 1) c.w0.TakeNext("next");
      CHECK_FALSE(c.session->paused);
      c.Begin();
      CHECK(c.replies == 1);
    } else {
      std::exchange(c.session->paused, nullptr)(4);
      c.w0.Swap();
      c.w1.Swap();
      CHECK(c.session->resumed == 1);
      CHECK(c.Running() == "next");
    }
  }
}

TEST_CASE("replan: a graph that fails while it is compiled anew") {
  Replanning c;
  c.in_compiler = [&] { c.w1.Die(); };
  c.Begin();
  REQUIRE(c.replies == 1);
  CHECK(Has(std::string(c.reply.status().message()), "worker w1 (pid 101) is gone"));
}

}  // namespace
}  // namespace weft
