// Validate: options of the whole graph. What is unset gets its default here, so that no later pass needs to know it.

#include <cmath>

#include "driver/graph/validation.h"

namespace weft {
namespace {

constexpr int32_t kMaxPrefetchDepth = 64;
constexpr int32_t kMaxInFlight = 1024;
constexpr uint64_t kMaxBucketBytes = uint64_t{1} << 30;
constexpr int32_t kMaxLanes = 8;
constexpr double kMaxLatencySeconds = 3600;
constexpr double kMaxTimeoutSeconds = 1e9;

double Timeout(Validation* v, const char* field, bool set, double value, double fallback, bool zero_allowed) {
  if (!set) return fallback;
  // Written so that NaN is refused too.
  if (!((zero_allowed ? value >= 0 : value > 0) && value <= kMaxTimeoutSeconds)) {
    v->Error("options.", field, " is ", value, "; give seconds ", zero_allowed ? "from 0" : "above 0", " to ",
             kMaxTimeoutSeconds);
    return fallback;
  }
  return value;
}

int32_t Count(Validation* v, const char* field, int32_t value, int32_t fallback, int32_t most) {
  if (value == 0) return fallback;
  if (value < 0 || value > most) {
    v->Error("options.", field, " is ", value, "; give 1 to ", most);
    return fallback;
  }
  return value;
}

}  // namespace

void CheckLink(Validation* v, const std::string& where, const v1::EmulatedLink& link) {
  if (!(link.latency_s() >= 0 && link.latency_s() <= kMaxLatencySeconds)) {
    v->Error(where, ".latency_s is ", link.latency_s(), "; give seconds from 0 to ", kMaxLatencySeconds);
  }
  if (!(link.bandwidth() == 0 || (link.bandwidth() >= 1 && std::isfinite(link.bandwidth())))) {
    v->Error(where, ".bandwidth is ", link.bandwidth(),
             "; give a finite number of bytes per second from 1, or 0 for unlimited");
  }
}

void CheckPrefetchDepth(Validation* v, const std::string& where, int32_t depth) {
  if (depth < 0 || depth > kMaxPrefetchDepth) {
    v->Error(where, ".prefetch_depth is ", depth, "; give 0 to ", kMaxPrefetchDepth);
  }
}

void CheckOptions(Validation* v) {
  const v1::Options& in = v->graph.options();
  v1::Options& out = v->out.options;
  out = in;

  if (!v1::Overlap_IsValid(in.overlap())) v->Error("options.overlap is unknown; one of OFF, ON, AUTO");
  if (in.overlap() == v1::OVERLAP_UNSPECIFIED) out.set_overlap(v1::ON);
  if (!in.has_prefetch_depth()) out.set_prefetch_depth(1);
  CheckPrefetchDepth(v, "options", out.prefetch_depth());
  out.set_max_in_flight(Count(v, "max_in_flight", in.max_in_flight(), 4, kMaxInFlight));

  if (!v1::SubmitMode_IsValid(in.submit())) v->Error("options.submit is unknown; one of FAIL_FAST, WAIT, QUEUE");
  if (in.submit() == v1::SUBMIT_MODE_UNSPECIFIED) out.set_submit(v1::WAIT);
  out.set_submit_timeout_s(Timeout(v, "submit_timeout_s", in.has_submit_timeout_s(), in.submit_timeout_s(), 60, true));
  out.set_progress_timeout_s(
      Timeout(v, "progress_timeout_s", in.has_progress_timeout_s(), in.progress_timeout_s(), 60, false));
  out.set_bootstrap_timeout_s(
      Timeout(v, "bootstrap_timeout_s", in.has_bootstrap_timeout_s(), in.bootstrap_timeout_s(), 30, false));

  if (!v1::Restart_IsValid(in.restart())) v->Error("options.restart is unknown; one of NEVER, ON_REJOIN");
  if (in.restart() == v1::RESTART_UNSPECIFIED) out.set_restart(v1::NEVER);
  if (!v1::Order_IsValid(in.order())) v->Error("options.order is unknown; one of PROGRAM, COST");
  if (in.order() == v1::ORDER_UNSPECIFIED) out.set_order(v1::PROGRAM);

  if (in.bucket_bytes() > kMaxBucketBytes) {
    v->Error("options.bucket_bytes is ", in.bucket_bytes(), "; give 0 (each collective by itself) to ", kMaxBucketBytes);
  }
  if (!v1::Launch_IsValid(in.launch())) v->Error("options.launch is unknown; one of STREAM, GRAPH");

  out.set_send_lanes(Count(v, "send_lanes", in.send_lanes(), 1, kMaxLanes));
  out.set_recv_lanes(Count(v, "recv_lanes", in.recv_lanes(), 1, kMaxLanes));
  out.set_collective_lanes(Count(v, "collective_lanes", in.collective_lanes(), 1, kMaxLanes));
  if (in.has_emulate()) CheckLink(v, "options.emulate", in.emulate());
}

}  // namespace weft
