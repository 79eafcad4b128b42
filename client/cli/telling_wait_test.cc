#include "client/cli/telling_wait.h"

#include <catch2/catch.hpp>

#include <limits>
#include <vector>

namespace weft {
namespace {

// Time passes by waiting alone; done at `done_at`.
class SlowSession : public ClientSession {
 public:
  explicit SlowSession(FakeClock* clock) : clock_(clock) {}
  const std::vector<v1::Input>& inputs() const override { return inputs_; }
  const std::vector<v1::OutputSpec>& outputs() const override { return outputs_; }
  int max_in_flight() const override { return 1; }
  absl::StatusOr<Handle> Submit(const std::map<std::string, Tensor>&) override { return 0; }
  bool Ready(Handle) const override { return clock_->Now() >= done_at; }
  absl::StatusOr<ExecutionResult> Wait(Handle, double) override {
    if (!Ready(0)) return absl::InternalError("was not ready");
    return answer;
  }
  absl::StatusOr<Handle> WaitAny(const std::vector<Handle>& handles, double timeout_s) override {
    const Nanos until = clock_->Now() + FromSeconds(timeout_s);
    clock_->Set(std::min(until, std::max(done_at, clock_->Now())));
    if (!Ready(0)) return absl::DeadlineExceededError("none");
    return handles.at(0);
  }
  void Cancel(Handle) override {}
  absl::Status Close(double) override { return absl::OkStatus(); }

  Nanos done_at = 0;
  absl::StatusOr<ExecutionResult> answer = ExecutionResult();

 private:
  FakeClock* const clock_;
  std::vector<v1::Input> inputs_;
  std::vector<v1::OutputSpec> outputs_;
};

struct Fixture {
  FakeClock clock{100 * kNanosPerSecond};
  SlowSession session{&clock};
  ProgressLine progress;
  std::vector<std::string> told;
  int asked = 0;
  // Of worker w1: since when it is silent, 0: it is not.
  Nanos silent_since = 0;
  std::string stalled;
  absl::Status answer;
  TellingWait wait{&session, "g", [this] { return State(); }, &clock, [this](const std::string& text) { told.push_back(text); }};

  absl::StatusOr<DriverState> State() {
    ++asked;
    if (!answer.ok()) return answer;
    DriverState state;
    for (const char* name : {"other", "g"}) state.graphs.add_graph()->set_name(name);
    state.graphs.mutable_graph(0)->set_stalled("another's matter");
    state.graphs.mutable_graph(1)->set_stalled(stalled);
    for (const char* name : {"w0", "w1"}) {
      v1::WorkerInfo* w = state.workers.add_worker();
      w->set_name(name);
      w->set_pid(name[1] == '1' ? 4242 : 17);
      w->set_state("alive");
      w->add_graph(name[1] == '1' ? "g" : "other");
    }
    // Silent too, but with no part in the graph.
    state.workers.mutable_worker(0)->set_state("unresponsive");
    if (silent_since > 0) {
      state.workers.mutable_worker(1)->set_state("unresponsive");
      state.workers.mutable_worker(1)->set_heartbeat_age_s(ToSeconds(clock.Now() - silent_since));
    }
    return state;
  }
  // Waits for an execution that takes `s` seconds.
  absl::StatusOr<ExecutionResult> Take(double s, double limit_s = std::numeric_limits<double>::infinity()) {
    session.done_at = clock.Now() + FromSeconds(s);
    return wait.Wait(0, limit_s, &progress, [](double) { return std::string("waiting"); });
  }
};

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("telling wait: the driver is asked once a second, and never for what takes less") {
  Fixture f;
  for (int i = 0; i < 50; ++i) CHECK(f.Take(0.9).ok());
  CHECK(f.asked == 0);
  CHECK(f.Take(10.2).ok());
  CHECK(f.asked == 10);
  CHECK(f.told.empty());
}

TEST_CASE("telling wait: a silent worker of the graph is told once, with its process, and anew when it is silent anew") {
  Fixture f;
  f.silent_since = f.clock.Now();
  CHECK(f.Take(20).ok());
  REQUIRE(f.told.size() == 1);
  CHECK(Has(f.told[0], "graph \"g\" waits: worker w1 (pid 4242) is unresponsive"));
  CHECK(Has(f.told[0], "kill -CONT 4242"));
  CHECK(f.Take(5).ok());
  CHECK(f.told.size() == 1);
  // It answered between two executions, and nobody asked.
  f.silent_since = f.clock.Now();
  CHECK(f.Take(5).ok());
  CHECK(f.told.size() == 2);
}

TEST_CASE("telling wait: a stall is told once, another one too") {
  Fixture f;
  f.stalled = "nothing has moved for 5.0 s:\nw1: no answer in time";
  CHECK(f.Take(20).ok());
  REQUIRE(f.told.size() == 1);
  CHECK(Has(f.told[0], "graph \"g\" is stalled: nothing has moved for 5.0 s:\n  w1: no answer in time"));
  CHECK(Has(f.told[0], "weft inspect g"));
  f.stalled.clear();
  CHECK(f.Take(3).ok());
  f.stalled = "nothing has moved for 5.0 s:\nw1: no answer in time";
  CHECK(f.Take(3).ok());
  CHECK(f.told.size() == 2);
  f.stalled = "many:";
  for (int i = 0; i < 100; ++i) f.stalled += "\nlane " + std::to_string(i);
  CHECK(f.Take(3).ok());
  REQUIRE(f.told.size() == 3);
  CHECK(Has(f.told[2], "... 77 more"));
}

TEST_CASE("telling wait: a limit, a refusal and a driver that does not answer") {
  Fixture f;
  f.answer = absl::UnavailableError("gone");
  CHECK(f.Take(5).ok());
  CHECK(f.told.empty());
  const auto late = f.Take(20, 7.25);
  CHECK(absl::IsDeadlineExceeded(late.status()));
  CHECK(Has(std::string(late.status().message()), "no result after 7.250 s"));
  f.session.answer = absl::DeadlineExceededError("the driver's own words");
  CHECK(f.Take(3, 7).status().message() == "the driver's own words");
  CHECK(f.Take(7, 7).status().message() == "the driver's own words");
}

}  // namespace
}  // namespace weft
