#include "client/cli/simulation.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/console.h"
#include "common/base/clock.h"
#include "common/base/parse.h"
#include "driver/draw/plan_picture.h"
#include "driver/simulate/bytes_over_time.h"

namespace weft {
namespace {

using nlohmann::ordered_json;

// Events that are kept just to say how many bytes were in use.
constexpr int64_t kMaxOwnEvents = 10'000'000;

// Divided, not multiplied by 1e-9: 60 ms are to read 0.06.
double Seconds(Nanos t) { return static_cast<double>(t) / 1e9; }

std::string Share(double part, double of) { return of > 0 ? absl::StrFormat(" (%.0f %%)", 100 * part / of) : ""; }

void Report(const OfflinePlan& offline, const SimResult& result, const SimulationRequest& request,
            const std::optional<std::vector<WorkerBytes>>& bytes, const std::optional<Prediction>& prediction) {
  const Plan& plan = offline.plan;
  ordered_json workers = ordered_json::array();
  std::vector<std::vector<std::string>> rows = {{"WORKER", "BUSY", "SPAN", "BUBBLE", "IN USE", "PEAK"}};
  for (size_t w = 0; w < plan.workers.size(); ++w) {
    const double busy = Seconds(result.busy[w]), span = Seconds(result.span[w]);
    const uint64_t peak = w < plan.peak_bytes.size() ? plan.peak_bytes[w] : 0;
    ordered_json worker = {{"name", plan.workers[w].name}, {"busy_s", busy}, {"span_s", span}, {"bubble_s", span - busy}, {"peak_bytes", peak}};
    worker["bytes_in_use"] = nullptr;
    if (bytes.has_value()) {
      const WorkerBytes& b = (*bytes)[w];
      worker["bytes_in_use"] = b.peak;
      worker["in_use_at_s"] = Seconds(b.peak_at);
      if (request.bytes) {
        ordered_json curve = ordered_json::array();
        for (const BytesPoint& p : b.curve) curve.push_back({Seconds(p.at), p.bytes});
        worker["bytes"] = std::move(curve);
      }
    }
    workers.push_back(std::move(worker));
    rows.push_back({plan.workers[w].name, FormatSeconds(busy), FormatSeconds(span), absl::StrCat(FormatSeconds(span - busy), Share(span - busy, span)),
                    bytes.has_value() ? FormatBytes((*bytes)[w].peak) : "-", FormatBytes(peak)});
  }
  const SimOptions& options = request.options;
  const double each = options.executions == 1 ? Seconds(result.makespan)
                                              : Seconds(result.done.back() - result.done.front()) / static_cast<double>(options.executions - 1);
  const int in_flight = options.end_barrier ? 1 : options.in_flight > 0 ? options.in_flight : plan.options.max_in_flight();
  if (request.json) {
    PrintJson({{"graph", plan.graph},
               {"plan_hash", plan.hash},
               {"executions", options.executions},
               {"in_flight", in_flight},
               {"end_barrier", options.end_barrier},
               {"makespan_s", Seconds(result.makespan)},
               {"seconds_per_execution", each},
               {"predicted", prediction.has_value() ? PredictionJson(*prediction) : ordered_json()},
               {"workers", workers}});
    return;
  }
  Print(absl::StrCat("graph \"", plan.graph, "\", plan ", plan.hash, ": ", options.executions, " executions, ", in_flight, " in flight",
                     options.end_barrier ? " with a barrier at the end of each" : "", ", take ", FormatSeconds(Seconds(result.makespan)), ", ",
                     FormatSeconds(each), " each\n", prediction.has_value() ? PredictionText(*prediction) : "", Table(rows)));
}

}  // namespace

nlohmann::ordered_json PredictionJson(const Prediction& p) {
  ordered_json json = {{"in_flight", p.in_flight},
                       {"period_s", p.period_s},
                       {"first_latency_s", Seconds(p.first_latency)},
                       {"latency_s", p.latency_s},
                       {"max_latency_s", Seconds(p.max_latency)},
                       {"executions", p.executions},
                       {"makespan_s", Seconds(p.makespan)},
                       {"steady", p.steady}};
  json["cycle"] = p.steady ? ordered_json(p.cycle) : ordered_json();
  json["warm_up"] = p.steady ? ordered_json(p.warm_up) : ordered_json();
  return json;
}

std::string PredictionText(const Prediction& p) {
  return absl::StrCat("predicted with ", p.in_flight, " in flight: one execution each ", FormatSeconds(p.period_s), ", done ",
                      FormatSeconds(p.latency_s), " after its admission (the first ", FormatSeconds(ToSeconds(p.first_latency)), "); ", p.executions,
                      p.executions == 1 ? " execution takes " : " executions take ", FormatSeconds(ToSeconds(p.makespan)),
                      p.steady ? "" : "; no steady state was found", "\n");
}

Outcome SimulateAndPrint(const OfflinePlan& offline, const SimulationRequest& request) {
  SimOptions options = request.options;
  const int64_t ops = std::max<int64_t>(1, static_cast<int64_t>(offline.plan.ops.size()));
  options.record = !request.draw_file.empty() || request.bytes || options.executions <= kMaxOwnEvents / ops;
  auto result = Simulate(offline.plan, offline.costs, options);
  if (!result.ok()) return Outcome(ExitCode::kInvalidGraph, std::string(result.status().message()));
  std::optional<std::vector<WorkerBytes>> bytes;
  if (options.record) bytes = BytesOverTime(offline.plan, *result);
  // With a barrier nothing overlaps across executions.
  std::optional<Prediction> prediction;
  if (!options.end_barrier) {
    auto p = Predict(offline.plan, offline.costs, {options.in_flight, options.executions});
    if (p.ok()) prediction = *std::move(p);
  }
  Report(offline, *result, request, bytes, prediction);
  if (request.draw_file.empty()) return Outcome();
  PlanPictureOptions picture;
  picture.bytes = request.bytes;
  return Outcome::OfArgument(WriteFile(request.draw_file, PlanPicture(offline.plan, *result, request.draw_file, picture)));
}

}  // namespace weft
