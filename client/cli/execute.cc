#include "client/cli/execute.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/cluster_dir.h"
#include "client/cli/console.h"
#include "client/cli/progress.h"
#include "common/base/ids.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"
#include "common/tensor/literal.h"
#include "common/tensor/npy.h"

namespace weft {
namespace {

// As text, outputs of so many executions are shown, and so many errors.
constexpr int64_t kShown = 10;
// What the driver gets on top of --deadline to report it itself, naming the op.
constexpr double kDeadlineGraceS = 5;

class Executor {
 public:
  Executor(ClientSession* session, const AskDriver& ask, const std::string& graph, const ExecuteArgs& args, InputSet* inputs, bool json,
           nlohmann::ordered_json* report)
      : session_(session),
        graph_(graph),
        args_(args),
        inputs_(inputs),
        json_(json),
        report_(*report),
        total_(inputs->executions()),
        wait_(session, graph, ask) {}

  Outcome Run() {
    report_["executions"] = nlohmann::ordered_json::array();
    const int64_t window = Window();
    std::deque<ClientSession::Handle> flying;
    int64_t submitted = 0;
    int64_t taken = 0;
    while (taken < total_) {
      while (submitted < total_ && static_cast<int64_t>(flying.size()) < window) {
        auto tensors = inputs_->For(submitted);
        if (!tensors.ok()) return Outcome::OfArgument(tensors.status());
        auto handle = session_->Submit(*tensors);
        if (!handle.ok()) return Failed(submitted, handle.status());
        flying.push_back(*handle);
        ++submitted;
      }
      auto result = Wait(flying.front(), taken);
      flying.pop_front();
      if (!result.ok()) {
        if (!Refused(result.status())) return Failed(taken, result.status());
        Refuse(taken, result.status());
      } else if (Outcome outcome = Take(taken, *result); !outcome.ok()) {
        return outcome;
      }
      ++taken;
    }
    return Finish();
  }

 private:
  // With a deadline an execution must not spend it in a queue; otherwise the driver has the next ones at hand.
  int64_t Window() {
    const int most = session_->max_in_flight();
    if (args_.in_flight > most) {
      Complain(absl::StrCat("graph \"", graph_, "\" was compiled for ", most, " executions in flight; --in-flight ", args_.in_flight,
                            " needs options.max_in_flight of the graph"));
    }
    const int wanted = args_.in_flight > 0 ? std::min(args_.in_flight, most) : most;
    return wanted < most || args_.deadline_s > 0 ? wanted : 2 * wanted;
  }

  absl::StatusOr<ExecutionResult> Wait(ClientSession::Handle handle, int64_t i) {
    const double limit = args_.deadline_s > 0 ? args_.deadline_s + kDeadlineGraceS : std::numeric_limits<double>::infinity();
    return wait_.Wait(handle, limit, &progress_, [&](double waited) {
      return absl::StrCat(graph_, ": ", i, " of ", total_, " executions done",
                          waited > 2 ? absl::StrCat(", waiting for ", FormatSeconds(waited)) : "");
    });
  }

  // Of one execution alone; the session goes on.
  bool Refused(const absl::Status& status) const {
    return absl::IsResourceExhausted(status) || absl::IsDeadlineExceeded(status);
  }

  Outcome Failed(int64_t i, const absl::Status& status) {
    Report();
    const Outcome outcome = Outcome::Of(status);
    return Outcome(outcome.code(), absl::StrCat("graph \"", graph_, "\", execution ", i, " of ", total_, ": ", outcome.message()));
  }

  void Refuse(int64_t i, const absl::Status& status) {
    progress_.Clear();
    ++failed_;
    deadline_ = deadline_ || absl::IsDeadlineExceeded(status);
    const std::string message(status.message());
    if (failed_ <= kShown) Complain(absl::StrCat("execution ", i, ": ", message));
    if (json_) report_["executions"].push_back({{"index", i}, {"error", message}});
  }

  Outcome Take(int64_t i, const ExecutionResult& result) {
    nlohmann::ordered_json entry = {{"index", i}, {"execution", result.execution}};
    nlohmann::ordered_json outputs = nlohmann::ordered_json::object();
    const bool show = !json_ && i < kShown;
    const bool more = !json_ && i == kShown;
    if (show || more || !result.ok()) progress_.Clear();
    std::string text = absl::StrCat("execution ", result.execution, "\n");
    for (const auto& [name, tensor] : result.outputs) {
      std::string path;
      if (!args_.output_dir.empty()) {
        auto saved = Save(name, i, tensor);
        if (!saved.ok()) return Outcome::OfArgument(saved.status());
        path = *saved;
      }
      if (show) absl::StrAppend(&text, "  ", name, " ", Summary(tensor), path.empty() ? "" : "  -> ", path, "\n");
      if (!json_) continue;
      if (path.empty()) {
        outputs[name] = TensorToJson(tensor);
      } else {
        outputs[name] = {{"dtype", DTypeName(tensor.dtype())}, {"shape", tensor.dims()}, {"file", path}};
      }
    }
    if (show) Print(text);
    if (more) Print(absl::StrCat("... ", total_ - kShown, " more\n"));
    // Now, and not when a pipe's buffer is full; what fails is told at the end.
    if (show || more) FlushOutput().IgnoreError();
    nlohmann::ordered_json errors = nlohmann::ordered_json::object();
    for (const auto& [name, error] : result.errors) {
      deadline_ = deadline_ || ExitCodeOfTaskError(error.code()) == ExitCode::kDeadline;
      if (failed_ < kShown) {
        Complain(absl::StrCat("execution ", result.execution, ", output \"", name, "\": node \"", error.node(), "\" on ", error.worker(),
                              ", execution ", error.execution(), ": ", error.message()));
      }
      errors[name] = {{"worker", error.worker()}, {"node", error.node()}, {"execution", error.execution()}, {"code", error.code()},
                      {"message", error.message()}};
    }
    if (!result.ok()) ++failed_;
    ends_.push_back(result.done_ns);
    if (json_) {
      entry["outputs"] = std::move(outputs);
      if (!result.ok()) entry["errors"] = std::move(errors);
      entry["admitted_ns"] = result.admitted_ns;
      entry["done_ns"] = result.done_ns;
      report_["executions"].push_back(std::move(entry));
    }
    return Outcome();
  }

  absl::StatusOr<std::string> Save(const std::string& name, int64_t i, const Tensor& tensor) {
    WEFT_ASSIGN_OR_RETURN(const std::string path, OutputPath(args_.output_dir, name, i));
    if (made_.insert(name).second) {
      std::error_code ec;
      const std::filesystem::path dir = std::filesystem::path(path).parent_path();
      std::filesystem::create_directories(dir, ec);
      if (ec) return absl::InvalidArgumentError(absl::StrCat("cannot make directory ", dir.string(), ": ", ec.message()));
    }
    WEFT_RETURN_IF_ERROR(WriteNpy(path, tensor));
    return path;
  }

  void Report() {
    progress_.Clear();
    report_["failed"] = failed_;
    // One execution has no distance to another: null, not 0.
    report_["seconds_per_execution"] = ends_.size() > 1 ? nlohmann::ordered_json(SecondsPerExecution(ends_)) : nlohmann::ordered_json();
  }

  Outcome Finish() {
    Report();
    if (!json_ && ends_.size() > 1) {
      Print(absl::StrCat(total_, " executions, ", FormatSeconds(SecondsPerExecution(ends_)), " each\n"));
    }
    if (failed_ == 0) return Outcome();
    return Outcome(deadline_ ? ExitCode::kDeadline : ExitCode::kExecutionFailed,
                   absl::StrCat(failed_, " of ", total_, " executions of graph \"", graph_, "\" failed",
                                deadline_ ? " or were not done in time" : ""));
  }

  ClientSession* const session_;
  const std::string graph_;
  const ExecuteArgs& args_;
  InputSet* const inputs_;
  const bool json_;
  nlohmann::ordered_json& report_;
  const int64_t total_;
  ProgressLine progress_;
  TellingWait wait_;
  std::set<std::string> made_;
  std::vector<int64_t> ends_;
  int64_t failed_ = 0;
  bool deadline_ = false;
};

}  // namespace

Outcome ConnectTo(const CommonArgs& common, std::unique_ptr<Client>* client) {
  auto address = ResolveAddress(common.address, common.cluster);
  if (!address.ok()) {
    return absl::IsInvalidArgument(address.status()) ? Outcome::OfArgument(address.status())
                                                     : Outcome(ExitCode::kUnreachable, std::string(address.status().message()));
  }
  auto token = ResolveToken(common.token_file);
  if (!token.ok()) return Outcome::OfArgument(token.status());
  auto connected = Client::Connect(*address, 5, *token);
  if (!connected.ok()) {
    if (absl::IsInvalidArgument(connected.status())) return Outcome::OfArgument(connected.status());
    return Outcome(ExitCode::kUnreachable, std::string(connected.status().message()));
  }
  *client = *std::move(connected);
  return Outcome();
}

SessionOptions SessionFor(const std::string& graph, const ExecuteArgs& args) {
  SessionOptions options;
  options.graph = graph;
  // The client bounds what is in flight itself.
  options.submit = v1::QUEUE;
  options.deadline_s = args.deadline_s;
  return options;
}

Outcome ExecuteAll(ClientSession* session, const AskDriver& ask, const std::string& graph, const ExecuteArgs& args, InputSet* inputs,
                   bool json, nlohmann::ordered_json* report) {
  return Executor(session, ask, graph, args, inputs, json, report).Run();
}

absl::StatusOr<std::string> OutputPath(const std::string& dir, const std::string& output, int64_t i) {
  WEFT_RETURN_IF_ERROR(CheckName("output", output));
  if (output == "." || output == "..") {
    return absl::InvalidArgumentError(absl::StrCat("output \"", output, "\" cannot be a directory's name below --output"));
  }
  return absl::StrCat(dir, "/", output, "/", absl::StrFormat("%06d", i), ".npy");
}

double SecondsPerExecution(const std::vector<int64_t>& ends_ns) {
  if (ends_ns.size() < 2) return 0;
  return ToSeconds(ends_ns.back() - ends_ns.front()) / static_cast<double>(ends_ns.size() - 1);
}

}  // namespace weft
