#include "client/cli/args.h"

#include <catch2/catch.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/worker_list.h"

namespace weft {
namespace {

template <typename T>
T Good(const std::vector<std::string>& args, CommonArgs* common = nullptr) {
  auto parsed = ParseArgs(args);
  INFO(parsed.status().message());
  REQUIRE(parsed.ok());
  REQUIRE_FALSE(parsed->help);
  REQUIRE(std::holds_alternative<T>(parsed->command));
  if (common != nullptr) *common = parsed->common;
  return std::get<T>(parsed->command);
}

std::string Bad(const std::vector<std::string>& args) {
  auto parsed = ParseArgs(args);
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

TEST_CASE("run: all options, common ones before and after the command") {
  CommonArgs common;
  const RunArgs run = Good<RunArgs>({"--json", "run", "g.textproto", "--input", "a=x.npy", "--input", "b=[1, 2]", "--input-each", "c=y.npy",
                                     "--repeat", "7", "--in-flight", "3", "--output", "out", "--overlap", "off", "--deadline", "500ms",
                                     "--trace", "t.svg", "--keep", "--address", "h:1"},
                                    &common);
  CHECK(common.json);
  CHECK(common.address == "h:1");
  CHECK(run.graph_file == "g.textproto");
  CHECK(run.execute.inputs == std::vector<std::string>{"a=x.npy", "b=[1, 2]"});
  CHECK(run.execute.inputs_each == std::vector<std::string>{"c=y.npy"});
  CHECK(run.execute.repeat == 7);
  CHECK(run.execute.in_flight == 3);
  CHECK(run.execute.output_dir == "out");
  CHECK(run.execute.deadline_s == Approx(0.5));
  CHECK(run.overlap == false);
  CHECK(run.trace_file == "t.svg");
  CHECK(run.keep);
}

TEST_CASE("the join token's file is a common option; a misspelt command is named") {
  CommonArgs common;
  Good<WorkersArgs>({"workers", "--token-file", "secret"}, &common);
  CHECK(common.token_file == "secret");
  CHECK(Bad({"frob"}).find("\"frob\" is no command or option") != std::string::npos);
  CHECK(Bad({"--frob"}).find("\"--frob\" is no command or option") != std::string::npos);
  CHECK(Bad({"bench", "frob"}).find("\"frob\"") != std::string::npos);
  CHECK(Bad({}).find("subcommand is required") != std::string::npos);
}

TEST_CASE("help COMMAND is COMMAND --help") {
  for (const std::vector<std::string>& command : {std::vector<std::string>{}, {"simulate"}, {"bench", "overlap"}}) {
    std::vector<std::string> one = {"help"}, two = command;
    one.insert(one.end(), command.begin(), command.end());
    two.push_back("--help");
    const auto a = ParseArgs(one), b = ParseArgs(two);
    REQUIRE(a.ok());
    REQUIRE(b.ok());
    CHECK(a->help->size() > 100);
    CHECK(*a->help == *b->help);
  }
  CHECK_FALSE(ParseArgs({"help", "frob"}).ok());
}

TEST_CASE("doctor: what it looks at; what it starts itself with is not in its help") {
  CHECK(Good<DoctorArgs>({"doctor"}).device == "auto");
  CHECK_FALSE(Good<DoctorArgs>({"doctor"}).probe);
  CHECK(Good<DoctorArgs>({"doctor", "--device", "cuda"}).device == "cuda");
  CHECK(Good<DoctorArgs>({"doctor", "--probe"}).probe);
  CHECK(Bad({"doctor", "--device", "tpu"}).find("auto|cpu|cuda") != std::string::npos);
  const auto help = ParseArgs({"doctor", "--help"});
  REQUIRE(help.ok());
  CHECK(help->help->find("--device") != std::string::npos);
  CHECK(help->help->find("--probe") == std::string::npos);
}

TEST_CASE("run: defaults, and the graph after a list option") {
  const RunArgs run = Good<RunArgs>({"run", "--input", "a=1", "g"});
  CHECK(run.graph_file == "g");
  CHECK(run.execute.inputs == std::vector<std::string>{"a=1"});
  CHECK_FALSE(run.execute.repeat);
  CHECK_FALSE(run.overlap);
  CHECK_FALSE(run.keep);
  CHECK(run.execute.deadline_s == 0);
}

TEST_CASE("booleans take true/false/1/0/yes/no/on/off and nothing else") {
  for (const char* on : {"true", "1", "yes", "on", "ON"}) {
    CHECK(Good<RunArgs>({"run", "g", "--overlap", on}).overlap == true);
    CHECK(Good<RunArgs>({"run", "g", std::string("--keep=") + on}).keep);
  }
  for (const char* off : {"false", "0", "no", "off", "Off"}) {
    CHECK(Good<RunArgs>({"run", "g", "--overlap", off}).overlap == false);
    CHECK_FALSE(Good<RunArgs>({"run", "g", std::string("--keep=") + off}).keep);
  }
  for (const char* bad : {"maybe", "2", "enable", "y", "-1"}) {
    CHECK(Bad({"run", "g", std::string("--overlap=") + bad}).find("true/false/1/0") != std::string::npos);
    CHECK_FALSE(Bad({"run", "g", std::string("--keep=") + bad}).empty());
  }
  CHECK(Good<CompileArgs>({"compile", "g"}).trace);
  CHECK_FALSE(Good<CompileArgs>({"compile", "g", "--trace", "off"}).trace);
}

TEST_CASE("numbers and times are checked, and the message names the option") {
  CHECK(Bad({"run", "g", "--repeat", "0"}).find("--repeat") != std::string::npos);
  CHECK(Bad({"run", "g", "--repeat", "1.5"}).find("--repeat") != std::string::npos);
  CHECK(Bad({"run", "g", "--in-flight", "1025"}).find("1024") != std::string::npos);
  CHECK(Bad({"run", "g", "--deadline", "-1"}).find("--deadline") != std::string::npos);
  CHECK(Bad({"run", "g", "--deadline", "nan"}).find("--deadline") != std::string::npos);
  CHECK(Bad({"run", "g", "--deadline", "1e300"}).find("--deadline") != std::string::npos);
  CHECK(Bad({"up", "--workers", "0"}).find("--workers") != std::string::npos);
  CHECK(Bad({"up", "--workers", "four"}).find("--workers") != std::string::npos);
  CHECK(Bad({"up", "--device", "tpu"}).find("cpu|cuda") != std::string::npos);
  CHECK(Bad({"plan", "g", "--format", "xml"}).find("text|json") != std::string::npos);
}

TEST_CASE("what is missing, unknown or too much is said") {
  CHECK_FALSE(Bad({}).empty());
  CHECK_FALSE(Bad({"fly"}).empty());
  CHECK(Bad({"run"}).find("GRAPH") != std::string::npos);
  CHECK(Bad({"run", "g", "--fast"}).find("--fast") != std::string::npos);
  CHECK_FALSE(Bad({"run", "g", "h"}).empty());
  CHECK(Bad({"trace", "g"}).find("--output") != std::string::npos);
  CHECK(Bad({"trace", "g", "-o", "t.png"}).find(".svg") != std::string::npos);
  CHECK(Bad({"run", "g", "--trace", "t"}).find(".json") != std::string::npos);
  CHECK_FALSE(Bad({"bench"}).empty());
}

TEST_CASE("other commands") {
  const UpArgs up = Good<UpArgs>({"up", "--workers", "3", "--detach", "--log-level", "debug", "--timeout", "5"});
  CHECK(up.workers == 3);
  CHECK(up.detach);
  CHECK(up.timeout_s == 5);
  CommonArgs common;
  Good<DownArgs>({"down", "--name", "two"}, &common);
  CHECK(common.cluster == "two");
  CHECK(Good<InspectArgs>({"inspect"}).graph.empty());
  CHECK(Good<InspectArgs>({"inspect", "g"}).graph == "g");
  CHECK(Good<ExecuteNamedArgs>({"execute", "g", "--repeat", "2"}).execute.repeat == 2);
  CHECK(Good<TeardownArgs>({"teardown", "g", "--drain", "2m"}).drain_s == 120);
  const PlanArgs plan = Good<PlanArgs>({"plan", "g", "--workers", "4", "--simulate", "20", "--draw", "p.svg"});
  CHECK(plan.simulate == 20);
  CHECK(plan.draw_file == "p.svg");
  CHECK(plan.offline.file == "g");
  CHECK(plan.offline.workers == "4");
  CHECK(Good<PlanArgs>({"plan", "g", "--format", "wire", "-o", "p"}).output_file == "p");
  // A file here, the name of a cluster elsewhere.
  const SimulateArgs simulate = Good<SimulateArgs>(
      {"simulate", "p", "--cluster", "k", "--costs", "c", "--end-barrier", "--bytes", "--in-flight", "3", "--draw", "p.json"}, &common);
  CHECK(simulate.offline.cluster_file == "k");
  CHECK(common.cluster.empty());
  CHECK(simulate.offline.costs_file == "c");
  CHECK(simulate.executions == 6);
  CHECK(simulate.in_flight == 3);
  CHECK(simulate.end_barrier);
  CHECK(simulate.bytes);
  CHECK(Good<VerifyArgs>({"verify", "p", "--overlap", "off"}).offline.overlap == false);
  const DrawArgs draw = Good<DrawArgs>({"draw", "g", "--format", "dot", "--what", "plan", "-o", "g.dot", "--executions", "2"});
  CHECK(draw.format == "dot");
  CHECK(draw.what == "plan");
  CHECK(draw.output_file == "g.dot");
  CHECK(draw.executions == 2);
  const TraceArgs trace = Good<TraceArgs>({"trace", "g", "-o", "f.json", "--executions", "5"});
  CHECK(trace.file == "f.json");
  CHECK(trace.executions == 5);
  const BenchOverlapArgs bench = Good<BenchOverlapArgs>({"bench", "overlap", "--json", "--delay", "5ms"}, &common);
  CHECK(bench.delay_s == Approx(0.005));
  CHECK(bench.transfer_s == Approx(0.010));
  CHECK(bench.executions == 20);
  CHECK(common.json);
  const BenchPipelineArgs measured = Good<BenchPipelineArgs>({"bench", "pipeline", "--schedule", "zbv", "--stages", "4", "--microbatches", "8", "--hop", "1ms",
                                                              "--executions", "7", "--in-flight", "3"});
  CHECK(measured.pipeline.schedule == "zbv");
  CHECK(measured.pipeline.stages == 4);
  CHECK(measured.pipeline.microbatches == 8);
  CHECK(measured.pipeline.hop == "1ms");
  CHECK(measured.pipeline.in_flight == 3);
  CHECK(measured.executions == 7);
  const PipelineArgs trains = Good<PipelineArgs>({"pipeline", "--schedule", "1f1b", "--stages", "2", "--microbatches", "4", "--format", "graph", "--mlp", "8,4,2",
                                                  "--rows", "5", "--seed", "9", "--learning-rate", "0.5", "--activation", "tanh", "--dtype", "F64", "--weights", "off"});
  CHECK(trains.mlp == "8,4,2");
  CHECK(trains.rows == 5);
  CHECK(trains.seed == 9);
  CHECK(trains.learning_rate == "0.5");
  CHECK(trains.activation == "tanh");
  CHECK(trains.dtype == "F64");
  CHECK(trains.weights == false);
  CHECK(trains.in_flight == 1);
  Good<VersionArgs>({"version"});
  Good<WorkersArgs>({"workers"});
  Good<GraphsArgs>({"graphs"});
}

TEST_CASE("every command documents itself") {
  const auto app = ParseArgs({"--help"});
  REQUIRE(app.ok());
  REQUIRE(app->help);
  CHECK(app->help->find("Exit codes") != std::string::npos);
  for (const char* command : {"up", "down", "run", "compile", "execute", "teardown", "workers", "graphs", "inspect", "plan", "trace", "version"}) {
    INFO(command);
    CHECK(app->help->find(command) != std::string::npos);
    const auto help = ParseArgs({command, "--help"});
    REQUIRE(help.ok());
    REQUIRE(help->help);
    CHECK(help->help->find(command) != std::string::npos);
    CHECK(*help->help != *app->help);
  }
  CHECK(ParseArgs({"run", "--help"})->help->find("--in-flight") != std::string::npos);
  CHECK(ParseArgs({"bench", "overlap", "--help"})->help->find("--transfer") != std::string::npos);
}

TEST_CASE("assignments and lists of workers") {
  CHECK(*SplitAssignment("--input", "a=b=c") == std::pair<std::string, std::string>("a", "b=c"));
  for (const char* bad : {"a", "=b", "a=", ""}) CHECK_FALSE(SplitAssignment("--input", bad).ok());

  REQUIRE(ParseWorkerList("3").ok());
  CHECK(ParseWorkerList("3")->at(2).name == "w2");
  const auto listed = ParseWorkerList("w0@a,w1,x@b");
  REQUIRE(listed.ok());
  CHECK(listed->at(0).host == "a");
  CHECK(listed->at(1).host.empty());
  CHECK(listed->at(2).name == "x");
  for (const char* bad : {"", "0", "w0,w0", "w0@", "@a", "w 0", "w0,,w1", "99999999999"}) {
    INFO(bad);
    CHECK_FALSE(ParseWorkerList(bad).ok());
  }
}

TEST_CASE("profile and replan; costs of a run") {
  const auto profile = Good<ProfileArgs>({"profile", "g", "--executions", "7", "-o", "c.textproto", "--input", "x=3", "--overlap", "off"});
  CHECK(profile.graph_file == "g");
  CHECK(profile.execute.repeat == 7);
  CHECK(profile.execute.inputs == std::vector<std::string>{"x=3"});
  CHECK(profile.output_file == "c.textproto");
  CHECK(profile.overlap == false);
  const auto replan = Good<ReplanArgs>({"replan", "mlp", "--costs", "c", "--executions", "100", "--timeout", "5s"});
  CHECK(replan.graph == "mlp");
  CHECK(replan.costs_file == "c");
  CHECK(replan.executions == 100);
  CHECK(replan.timeout_s == 5);
  CHECK(Good<ReplanArgs>({"replan", "mlp", "--measure"}).measure);
  CHECK(Good<RunArgs>({"run", "g", "--costs", "c"}).costs_file == "c");
  CHECK(Good<CompileArgs>({"compile", "g", "--costs", "c"}).costs_file == "c");
  Bad({"replan"});
  Bad({"replan", "mlp", "--executions", "0"});
  Bad({"profile", "g", "--executions", "x"});
}

TEST_CASE("exit codes") {
  CHECK(Outcome::Of(absl::OkStatus()).ok());
  CHECK(Outcome::Of(absl::InvalidArgumentError("x")).code() == ExitCode::kInvalidGraph);
  CHECK(Outcome::Of(absl::NotFoundError("x")).code() == ExitCode::kInvalidGraph);
  CHECK(Outcome::Of(absl::ResourceExhaustedError("x")).code() == ExitCode::kInvalidGraph);
  CHECK(Outcome::Of(absl::UnavailableError("x")).code() == ExitCode::kUnreachable);
  CHECK(Outcome::Of(absl::DeadlineExceededError("x")).code() == ExitCode::kDeadline);
  CHECK(Outcome::Of(absl::CancelledError("x")).code() == ExitCode::kInterrupted);
  const absl::Status costs = absl::InvalidArgumentError("costs: graph: is another\ncosts: no cost for node \"a\"");
  CHECK(OfCosts(costs, "k.txt").code() == ExitCode::kUsage);
  CHECK(OfCosts(costs, "k.txt").message() == "k.txt: graph: is another\nk.txt: no cost for node \"a\"");
  CHECK(OfCosts(costs, "").code() == ExitCode::kInvalidGraph);
  CHECK(OfCosts(absl::InvalidArgumentError("node a"), "k.txt").message() == "node a");
  CHECK(Outcome::Of(absl::FailedPreconditionError("x")).code() == ExitCode::kExecutionFailed);
  CHECK(Outcome::Of(absl::InternalError("x")).message() == "x");
  CHECK(Outcome::OfArgument(absl::UnavailableError("x")).code() == ExitCode::kUsage);
  CHECK(ExitCodeOfTaskError(static_cast<int>(absl::StatusCode::kDeadlineExceeded)) == ExitCode::kDeadline);
  CHECK(ExitCodeOfTaskError(static_cast<int>(absl::StatusCode::kInternal)) == ExitCode::kExecutionFailed);
  CHECK(static_cast<int>(ExitCode::kInterrupted) == 130);
}

}  // namespace
}  // namespace weft
