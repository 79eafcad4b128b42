#include "driver/schedules/memory.h"

#include <catch2/catch.hpp>

#include "driver/schedules/fixed.h"

namespace weft {
namespace {

using Catch::Matchers::Contains;

std::string ErrorOf(const std::string& text) {
  const auto spec = ParseMemory(text);
  CHECK_FALSE(spec.ok());
  return std::string(spec.status().message());
}

}  // namespace

TEST_CASE("memory: what is wrong is named") {
  CHECK_THAT(ErrorOf("f=1"), Contains("w is missing"));
  CHECK_THAT(ErrorOf("w=-1"), Contains("f is missing"));
  CHECK_THAT(ErrorOf("f=1,w=2"), Contains("must be 0 or less"));
  CHECK_THAT(ErrorOf("f=0,w=0"), Contains("must be above 0"));
  CHECK_THAT(ErrorOf("f=1,f=2,w=-1"), Contains("given twice"));
  CHECK_THAT(ErrorOf("f=1,w=-1,x=3"), Contains("\"x=3\""));
  CHECK_THAT(ErrorOf("f=nan,w=-1"), Contains("--memory f"));
  CHECK_FALSE(ResolveMemory(*ParseMemory("f=1000000TiB,w=-1"), 1, 1'000'000).ok());
}

TEST_CASE("memory: F adds f, I gives -(f + w), W gives w, B gives f, a pair takes before it gives") {
  const MemoryUse use = *ResolveMemory(*ParseMemory("f=10,w=-4"), 1, 100);
  CHECK(use.Input() == -6);
  const std::vector<PipelineOp> order = {{Pass::kForward, 0, 0}, {Pass::kForward, 0, 1},   {Pass::kInputGrad, 0, 0},
                                         {Pass::kForward, 0, 2}, {Pass::kInputGrad, 0, 1}, {Pass::kWeightGrad, 0, 0},
                                         {Pass::kForward, 0, 3}};
  // 10 20 14 24 18 14 24
  CHECK(PeakOf(order, use) == 24);
  CHECK(PeakOf({{Pass::kForward, 0, 0}, {Pass::kPair, 0, 1, 0, 0}, {Pass::kBackward, 0, 1}}, use) == 20);
  CHECK(PeakOf({{Pass::kForward, 0, 0}, {Pass::kBackward, 0, 0}, {Pass::kForward, 0, 1}, {Pass::kBackward, 0, 1}}, use) == 10);
  CHECK(PeakOf({}, use) == 0);
  // W may give more than F added: then I adds.
  const MemoryUse odd = *ResolveMemory(*ParseMemory("f=10,w=-15"), 1, 100);
  CHECK(PeakOf({{Pass::kForward, 0, 0}, {Pass::kInputGrad, 0, 0}, {Pass::kWeightGrad, 0, 0}}, odd) == 15);
  CHECK(SmallestPeak(odd, 1) == 15);
  CHECK(SmallestPeak(use, 2) == 20);
}

TEST_CASE("memory: a stage's share of bytes is whole, and caps are cut to what is below") {
  const MemoryUse use = *ResolveMemory(*ParseMemory("f=1.5,w=-1"), 3, 100);
  CHECK(use.forward == 15);
  CHECK(use.per_unit == 30);
  CHECK(CapOf(use, *ParseDecimal("x", "1.5")) == 45);
  CHECK(CapOf(ActivationUse(2), *ParseDecimal("x", "4.5")) == 9);
  CHECK(CapOf(ActivationUse(2), *ParseDecimal("x", "4.49")) == 8);
  CHECK(CapOf(ActivationUse(1), *ParseDecimal("x", "-0.5")) == -1);
  CHECK(CapOf(ActivationUse(1), *ParseDecimal("x", "1e18")) > 1'000'000'000'000);
}

TEST_CASE("memory: bytes of the zero-bubble schedules are at most those of as many activations") {
  const MemoryUse bytes = *ResolveMemory(*ParseMemory("f=201216,w=-73728"), 1, 100);
  const PipelineSchedule s = ZeroBubbleH1(8, 24);
  for (const auto& order : s.orders) {
    CHECK(PeakOf(order, ActivationUse(1)) == 8);
    CHECK(PeakOf(order, bytes) <= 8 * 201216);
  }
}

}  // namespace weft
