#include "driver/schedules/pipeline.h"

#include <catch2/catch.hpp>

#include "driver/schedules/csv.h"
#include "driver/schedules/fixed.h"
#include "driver/schedules/svg.h"

namespace weft {
namespace {

using Catch::Matchers::Contains;

PipelineRequest Request(const std::string& name, int32_t p, int32_t m) {
  PipelineRequest r;
  r.schedule = name;
  r.workers = p;
  r.microbatches = m;
  return r;
}

std::string ErrorOf(const PipelineRequest& r) {
  const auto plan = PlanPipeline(r);
  CHECK_FALSE(plan.ok());
  return std::string(plan.status().message());
}

}  // namespace

TEST_CASE("pipeline: both bubble rates, and what is held") {
  PipelineRequest r = Request("zb-h2", 4, 8);
  r.memory = *ParseMemory("f=10,w=-4");
  const PipelinePlan plan = *PlanPipeline(r);
  CHECK(plan.bubble_global == 1 - 24.0 / 27);
  CHECK(plan.bubble_span == 0);
  CHECK(plan.peak_activations == std::vector<double>{7, 7, 7, 7});
  REQUIRE(plan.peak_bytes.size() == 4);
  CHECK(plan.peak_bytes[0] <= 70);
  CHECK(plan.scheduler_s >= 0);
  CHECK(PlanPipeline(Request("forward-only", 4, 8))->bubble_global == 1 - 8.0 / 11);
}

TEST_CASE("pipeline: what cannot be done is refused with what can") {
  CHECK_THAT(ErrorOf(Request("1f2b", 4, 8)), Contains("\"1f2b\" is no schedule") && Contains("zb-h1"));
  CHECK_THAT(ErrorOf(Request("gpipe", 0, 8)), Contains("smallest that works is 1"));
  CHECK_THAT(ErrorOf(Request("gpipe", 4, -3)), Contains("smallest that works is 1"));
  CHECK_THAT(ErrorOf(Request("gpipe", 4, 2'000'000'000)), Contains("too many"));
  CHECK_THAT(ErrorOf(Request("interleaved-1f1b", 4, 10)), Contains("the next above 10 is 12"));
  CHECK_THAT(ErrorOf(Request("dualpipe-v", 4, 7)), Contains("smallest that works is 8"));
  PipelineRequest r = Request("1f1b", 4, 8);
  r.chunks = 2;
  CHECK_THAT(ErrorOf(r), Contains("1 stage a worker, not 2"));
  r.chunks = 0;
  CHECK_THAT(ErrorOf(r), Contains("smallest") && Contains("1"));
  r = Request("1f1b", 4, 8);
  r.placement = "v";
  CHECK_THAT(ErrorOf(r), Contains("auto only"));
  r = Request("auto", 4, 8);
  r.placement = "w";
  CHECK_THAT(ErrorOf(r), Contains("no placement"));
  r.placement = "v";
  r.chunks = 3;
  CHECK_THAT(ErrorOf(r), Contains("2 stages a worker, not 3"));
}

TEST_CASE("pipeline: a cap is hard") {
  PipelineRequest r = Request("1f1b", 4, 8);
  r.cap_activations = Decimal{4, 0};
  CHECK(PlanPipeline(r).ok());
  r.cap_activations = Decimal{35, 1};
  CHECK_THAT(ErrorOf(r), Contains("1f1b holds 4 microbatches on w0, the cap is 3") && Contains("smallest that works for it is 4") &&
                             Contains("auto stays within any cap from 1 on"));
  r.cap_bytes = Decimal{1, 0};
  CHECK_THAT(ErrorOf(r), Contains("cannot be given together"));
  r.cap_activations.reset();
  CHECK_THAT(ErrorOf(r), Contains("--memory"));
  r.memory = *ParseMemory("f=100,w=-40");
  CHECK_THAT(ErrorOf(r), Contains("holds 400 bytes on w0, the cap is 1") && Contains("smallest that works for it is 400"));
  r.cap_bytes = Decimal{400, 0};
  CHECK(PlanPipeline(r).ok());
  r = Request("auto", 4, 8);
  r.cap_activations = Decimal{5, 1};
  CHECK_THAT(ErrorOf(r), Contains("smallest that works is 1"));
  r.cap_activations = Decimal{-1, 0};
  CHECK_THAT(ErrorOf(r), Contains("smallest that works is 1"));
}

TEST_CASE("pipeline: a user's grid") {
  PipelineRequest r = Request("csv", 4, 8);
  r.grid = WriteScheduleGrid(ZeroBubbleH1(4, 8));
  CHECK(PlanPipeline(r)->makespan == 27);
  r.microbatches = 9;
  CHECK_THAT(ErrorOf(r), Contains("4 rows and 8 microbatches"));
  r.microbatches = 8;
  r.chunks = 2;
  CHECK_THAT(ErrorOf(r), Contains("4 stages on 4 workers, but --chunks says 2"));
  // Stages that are not spread evenly have costs of their own.
  r = Request("csv", 2, 1);
  r.grid = "0F0,1F0,1B0,0B0\n2F0,2B0\n";
  CHECK_THAT(ErrorOf(r), Contains("one value for each stage"));
  r.costs = *ParseCosts("F=1:2:3,I=1:1:1,W=1:1:1", false);
  CHECK(PlanPipeline(r)->makespan == 1 + 2 + 3 + 3 * 2);
  r.grid = "0F0,0B0,1F0,1B0\n2F0,2B0\n";
  CHECK_THAT(ErrorOf(r), Contains("w0 is at 0B0 and waits for the gradient of microbatch 0 of stage 1, which stands later on w0"));
}

TEST_CASE("picture: self-contained, every pass once, cut where it could not be read") {
  const std::string svg = PipelineSvg(*PlanPipeline(Request("dualpipe-v", 4, 8)));
  CHECK_THAT(svg, Contains("<svg xmlns") && Contains("F and B at once") &&
                      Contains("dualpipe-v, 4 workers, 8 microbatches: makespan 27, span 27"));
  size_t boxes = 0;
  for (size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) ++boxes;
  CHECK(boxes == static_cast<size_t>(CountOps(*DualPipeV(4, 8))));
  CHECK_THAT(PipelineSvg(*PlanPipeline(Request("gpipe", 100, 200))),
             Contains("the first 64 of 100 workers") && Contains("the first 20000 of 40000 passes"));
}

}  // namespace weft
