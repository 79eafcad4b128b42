#include "driver/schedules/csv.h"

#include <random>

#include <catch2/catch.hpp>

#include "driver/schedules/check.h"
#include "driver/schedules/fixed.h"

namespace weft {
namespace {

using Catch::Matchers::Contains;

std::string ErrorOf(const std::string& text) {
  const auto s = ReadScheduleGrid(text);
  CHECK_FALSE(s.ok());
  return std::string(s.status().message());
}

}  // namespace

TEST_CASE("grid: every schedule reads back as it was written") {
  for (const PipelineSchedule& s :
       {ForwardOnly(3, 4), GPipe(3, 4), OneForwardOneBackward(3, 4), *Interleaved(2, 4, 3), LoopedBreadthFirst(3, 4, 2), ZeroBubbleH1(3, 4),
        ZeroBubbleH2(3, 7), ZeroBubbleV(3, 5), *DualPipeV(3, 6)}) {
    INFO(s.name);
    const auto back = ReadScheduleGrid(WriteScheduleGrid(s));
    INFO(back.status().message());
    REQUIRE(back.ok());
    CHECK(back->worker_of == s.worker_of);
    CHECK(back->microbatches == s.microbatches);
    CHECK(back->orders == s.orders);
  }
}

TEST_CASE("grid: how a person writes it") {
  const auto s = ReadScheduleGrid("F0, F1,,, I0,W0 ,I1,W1\r\n,F0,\"F1\",I0,I1,W0,W1\n\n");
  INFO(s.status().message());
  REQUIRE(s.ok());
  CHECK(s->workers == 2);
  CHECK(s->microbatches == 2);
  CHECK(s->worker_of == std::vector<int32_t>{0, 1});
  CHECK(s->orders[1][2] == PipelineOp{Pass::kInputGrad, 1, 0});
  const auto pair = ReadScheduleGrid("0F0,1F0,1B0,0F1,1F1,(0F2;1B1),0B0,0B1,1F2,1B2,0B2");
  INFO(pair.status().message());
  REQUIRE(pair.ok());
  CHECK(pair->orders[0][5] == PipelineOp{Pass::kPair, 0, 2, 1, 1});
}

TEST_CASE("grid: what must be refused") {
  CHECK_THAT(ErrorOf(""), Contains("empty"));
  CHECK_THAT(ErrorOf("F0,B0\n\nF0,B0"), Contains("row 2 has no pass"));
  CHECK_THAT(ErrorOf("F0,X0"), Contains("row 1, cell 2: \"X0\""));
  CHECK_THAT(ErrorOf("F0,B"), Contains("\"B\""));
  CHECK_THAT(ErrorOf("F0,B0 1"), Contains("\"B0 1\""));
  CHECK_THAT(ErrorOf("F0,B99999999999"), Contains("B99999999999"));
  CHECK_THAT(ErrorOf("F0,(F1;F2)"), Contains("(F1;F2)"));
  CHECK_THAT(ErrorOf("F0,(F1"), Contains("\"(F1\""));
  CHECK_THAT(ErrorOf("0F0,2F0"), Contains("stage 1 stands in no row"));
  CHECK_THAT(ErrorOf("65535F16777215"), Contains("too many"));
  // W before I; twice; two workers; missing; both forms of a backward.
  CHECK_THAT(ErrorOf("F0,W0,I0"), Contains("w0: W0 stands before I"));
  CHECK_THAT(ErrorOf("I0,F0,W0"), Contains("w0: I0 stands before F"));
  CHECK_THAT(ErrorOf("F0,F0,B0"), Contains("w0: F0 stands twice"));
  CHECK_THAT(ErrorOf("0F0,0B0\n1F0,1B0,0F1"), Contains("w1: 0F1: stage 0 is on w0") || Contains("w1: F1: stage 0 is on w0"));
  CHECK_THAT(ErrorOf("F0,F1,B0"), Contains("the backward of stage 0 (w0) and microbatch 1 is missing"));
  CHECK_THAT(ErrorOf("F0,I0"), Contains("W of stage 0 (w0) and microbatch 0 is missing"));
  CHECK_THAT(ErrorOf("F0,B0\nB0"), Contains("F of stage 1 (w1) and microbatch 0 is missing"));
  CHECK_THAT(ErrorOf("F0,B0,I0,W0"), Contains("stands twice: either B, or I and W"));
  // All of them, and no more than can be read.
  std::string many = "F0";
  for (int i = 0; i < 50; ++i) many += ",F0";
  CHECK_THAT(ErrorOf(many), Contains("and 30 more"));
}

TEST_CASE("grid: damaged text is refused or read, and what is read is a schedule") {
  std::mt19937 rng(7);
  const std::string good[] = {WriteScheduleGrid(ZeroBubbleH1(2, 3)), WriteScheduleGrid(*DualPipeV(2, 4)), "F0,F1,,B0,B1\n,F0,B0,F1,B1\n"};
  const std::string signs = "0123456789FIWBF(;),\n\" OVERLAP_-\xff";
  int read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = good[rng() % 3];
    for (int changes = 1 + rng() % 3; changes > 0 && !text.empty(); --changes) {
      const size_t at = rng() % text.size();
      switch (rng() % 4) {
        case 0:
          text[at] = signs[rng() % signs.size()];
          break;
        case 1:
          text.erase(at, 1 + rng() % 4);
          break;
        case 2:
          text.insert(at, 1, signs[rng() % signs.size()]);
          break;
        default:
          text.insert(at, text.substr(rng() % text.size(), rng() % 8));
      }
    }
    const auto s = ReadScheduleGrid(text);
    if (!s.ok()) {
      CHECK_FALSE(s.status().message().empty());
      continue;
    }
    ++read;
    CHECK(CheckSchedule(*s).ok());
    CHECK(ReadScheduleGrid(WriteScheduleGrid(*s))->orders == s->orders);
  }
  CHECK(read > 100);
}

}  // namespace weft
