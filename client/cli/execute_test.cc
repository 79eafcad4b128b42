#include "client/cli/execute.h"

#include <catch2/catch.hpp>

#include <deque>

#include "client/cli/test_dir.h"
#include "common/tensor/npy.h"

namespace weft {
namespace {

// Answers each submit by a function, at once; counts how many are in flight.
class FakeSession : public ClientSession {
 public:
  const std::vector<v1::Input>& inputs() const override { return inputs_; }
  const std::vector<v1::OutputSpec>& outputs() const override { return outputs_; }
  int max_in_flight() const override { return 4; }
  absl::StatusOr<Handle> Submit(const std::map<std::string, Tensor>&) override {
    most_ = std::max(most_, ++flying_);
    return next_++;
  }
  bool Ready(Handle) const override { return true; }
  absl::StatusOr<ExecutionResult> Wait(Handle handle, double) override {
    --flying_;
    if (answer) return answer(handle);
    return Result(handle);
  }
  absl::StatusOr<Handle> WaitAny(const std::vector<Handle>& handles, double) override { return handles.at(0); }
  void Cancel(Handle) override {}
  absl::Status Close(double) override { return absl::OkStatus(); }

  static ExecutionResult Result(Handle handle) {
    ExecutionResult r;
    r.execution = handle;
    r.done_ns = 1000 + handle * 30'000'000;
    Tensor t = *Tensor::OnHost(v1::I64, {});
    t.as<int64_t>()[0] = handle;
    r.outputs["y"] = t;
    return r;
  }

  std::function<absl::StatusOr<ExecutionResult>(Handle)> answer;
  int most() const { return most_; }

 private:
  std::vector<v1::Input> inputs_;
  std::vector<v1::OutputSpec> outputs_;
  Handle next_ = 0;
  int flying_ = 0;
  int most_ = 0;
};

ExecutionResult WithError(ClientSession::Handle handle, absl::StatusCode code) {
  ExecutionResult r = FakeSession::Result(handle);
  r.outputs.clear();
  r.errors["y"].set_code(static_cast<int>(code));
  r.errors["y"].set_message("because");
  return r;
}

Outcome Execute(FakeSession* session, const ExecuteArgs& args, nlohmann::ordered_json* report) {
  auto inputs = InputSet::Load({}, {}, args.repeat, {});
  return ExecuteAll(session, nullptr, "g", args, &*inputs, true, report);
}

TEST_CASE("execute: all results, in order, with the pace of completion") {
  FakeSession session;
  nlohmann::ordered_json report;
  ExecuteArgs args;
  args.repeat = 20;
  CHECK(Execute(&session, args, &report).ok());
  REQUIRE(report["executions"].size() == 20);
  CHECK(report["executions"][7]["outputs"]["y"]["data"] == 7);
  CHECK(report["failed"] == 0);
  CHECK(report["seconds_per_execution"].get<double>() == Approx(0.03));
  CHECK(session.most() == 8);
}

TEST_CASE("execute: no more in flight than asked for, nor queued under a deadline") {
  nlohmann::ordered_json report;
  ExecuteArgs args;
  args.repeat = 20;
  args.in_flight = 2;
  FakeSession two;
  CHECK(Execute(&two, args, &report).ok());
  CHECK(two.most() == 2);
  args.in_flight = 0;
  args.deadline_s = 1;
  FakeSession four;
  CHECK(Execute(&four, args, &report).ok());
  CHECK(four.most() == 4);
}

TEST_CASE("execute: outputs go to numbered files") {
  TestDir dir;
  FakeSession session;
  nlohmann::ordered_json report;
  ExecuteArgs args;
  args.repeat = 3;
  args.output_dir = dir.File("out");
  CHECK(Execute(&session, args, &report).ok());
  const auto tensor = ReadNpy(dir.File("out/y/000002.npy"));
  REQUIRE(tensor.ok());
  CHECK(tensor->as<int64_t>()[0] == 2);
  CHECK(report["executions"][2]["outputs"]["y"]["file"] == dir.File("out/y/000002.npy"));

  args.output_dir = "/proc/no/such";
  CHECK(Execute(&session, args, &report).code() == ExitCode::kUsage);
  CHECK(*OutputPath("d", "y", 1234567) == "d/y/1234567.npy");
  CHECK_FALSE(OutputPath("d", "..", 0).ok());
  CHECK_FALSE(OutputPath("d", "a/b", 0).ok());
}

TEST_CASE("execute: failures are counted and the rest goes on; the exit code says which kind") {
  nlohmann::ordered_json report;
  ExecuteArgs args;
  args.repeat = 5;
  FakeSession failing;
  failing.answer = [](ClientSession::Handle h) -> absl::StatusOr<ExecutionResult> {
    if (h == 1 || h == 3) return WithError(h, absl::StatusCode::kInternal);
    return FakeSession::Result(h);
  };
  CHECK(Execute(&failing, args, &report).code() == ExitCode::kExecutionFailed);
  CHECK(report["failed"] == 2);
  CHECK(report["executions"].size() == 5);
  CHECK(report["executions"][3]["errors"]["y"]["message"] == "because");

  FakeSession late;
  late.answer = [](ClientSession::Handle h) -> absl::StatusOr<ExecutionResult> {
    return h == 2 ? WithError(h, absl::StatusCode::kDeadlineExceeded) : FakeSession::Result(h);
  };
  CHECK(Execute(&late, args, &report).code() == ExitCode::kDeadline);

  FakeSession refusing;
  refusing.answer = [](ClientSession::Handle h) -> absl::StatusOr<ExecutionResult> {
    if (h == 0) return absl::DeadlineExceededError("waited 60 s for a place");
    return FakeSession::Result(h);
  };
  CHECK(Execute(&refusing, args, &report).code() == ExitCode::kDeadline);
  CHECK(report["failed"] == 1);
  CHECK(report["executions"].size() == 5);
}

TEST_CASE("execute: a graph that dies ends the run, with its cause") {
  nlohmann::ordered_json report;
  ExecuteArgs args;
  args.repeat = 5;
  FakeSession dying;
  dying.answer = [](ClientSession::Handle h) -> absl::StatusOr<ExecutionResult> {
    if (h == 2) return absl::FailedPreconditionError("worker w3 died");
    return FakeSession::Result(h);
  };
  const Outcome outcome = Execute(&dying, args, &report);
  CHECK(outcome.code() == ExitCode::kExecutionFailed);
  CHECK(outcome.message().find("execution 2 of 5: worker w3 died") != std::string::npos);
  CHECK(report["executions"].size() == 2);

  dying.answer = [](ClientSession::Handle) -> absl::StatusOr<ExecutionResult> { return absl::UnavailableError("driver gone"); };
  CHECK(Execute(&dying, args, &report).code() == ExitCode::kUnreachable);
  dying.answer = [](ClientSession::Handle) -> absl::StatusOr<ExecutionResult> { return absl::CancelledError("interrupted"); };
  CHECK(Execute(&dying, args, &report).code() == ExitCode::kInterrupted);
}

TEST_CASE("seconds per execution") {
  CHECK(SecondsPerExecution({}) == 0);
  CHECK(SecondsPerExecution({5}) == 0);
  CHECK(SecondsPerExecution({1'000'000'000, 2'000'000'000, 4'000'000'000}) == Approx(1.5));
}

}  // namespace
}  // namespace weft
