#include "driver/schedules/costs.h"

#include <catch2/catch.hpp>

#include "driver/schedules/decimal.h"

namespace weft {
namespace {

using Catch::Matchers::Contains;

std::string ErrorOf(const std::string& text, bool forward_only = false) {
  const auto spec = ParseCosts(text, forward_only);
  CHECK_FALSE(spec.ok());
  return std::string(spec.status().message());
}

double Value(const std::string& text) { return ToDouble(*ParseDecimal("x", text)); }

}  // namespace

TEST_CASE("decimal: numbers as written") {
  const Decimal d = *ParseDecimal("x", "18.5220");
  CHECK(d.digits == 18522);
  CHECK(d.places == 3);
  CHECK(Value("-3e2") == -300);
  CHECK(Value("+.5") == 0.5);
  CHECK(Value("1.5e-3") == 0.0015);
  CHECK(Value("0") == 0);
  CHECK(Value("0.000") == 0);
  CHECK(Value("1234567890.12345678901234") == Approx(1234567890.12345678901234).epsilon(1e-15));
  CHECK(Value("0.30000000000000004") == Approx(0.3).epsilon(1e-15));
  for (const std::string bad :
       {"", "x", "nan", "inf", "-inf", "1e", "1e99999", "1.2.3", "--1", "1 2", "123456789012345678901234", ".", "0x10"}) {
    INFO(bad);
    CHECK_FALSE(ParseDecimal("x", bad).ok());
  }
}

TEST_CASE("decimal: times and bytes with units") {
  bool unit = true;
  CHECK(ToDouble(*ParseDuration("x", "12", &unit)) == 12);
  CHECK_FALSE(unit);
  CHECK(ToDouble(*ParseDuration("x", "12.5ms", &unit)) == 0.0125);
  CHECK(unit);
  CHECK(ToDouble(*ParseDuration("x", "3us", &unit)) == 3e-6);
  CHECK(ToDouble(*ParseDuration("x", "2h", &unit)) == 7200);
  CHECK_FALSE(ParseDuration("x", "-1", &unit).ok());
  CHECK_FALSE(ParseDuration("x", "nan", &unit).ok());
  CHECK_FALSE(ParseDuration("x", "infs", &unit).ok());
  CHECK_FALSE(ParseDuration("x", "1d", &unit).ok());
  CHECK(ToDouble(*ParseDecimalBytes("x", "-1.5KiB")) == -1536);
  CHECK(ToDouble(*ParseDecimalBytes("x", "2G")) == 2147483648.0);
  CHECK_FALSE(ParseDecimalBytes("x", "1PiB").ok());
  CHECK_FALSE(ParseDecimalBytes("x", "9999999999TiB").ok());
}

TEST_CASE("costs: what is wrong is named") {
  CHECK_THAT(ErrorOf("F=1,I=1"), Contains("W is missing"));
  CHECK_THAT(ErrorOf(""), Contains("F is missing"));
  CHECK_THAT(ErrorOf("I=1", true), Contains("F is missing"));
  CHECK_THAT(ErrorOf("F=1,I=-2,W=1"), Contains("--cost I") && Contains("negative") && Contains("smallest that works is 0"));
  CHECK_THAT(ErrorOf("F=nan,I=1,W=1"), Contains("--cost F") && Contains("finite"));
  CHECK_THAT(ErrorOf("F=inf,I=1,W=1"), Contains("--cost F"));
  CHECK_THAT(ErrorOf("F=1,I=,W=1"), Contains("--cost I"));
  CHECK_THAT(ErrorOf("F=1,F=2,I=1,W=1"), Contains("F is given twice"));
  CHECK_THAT(ErrorOf("F=1,I=1,W=1,B=2"), Contains("\"B=2\""));
  CHECK_THAT(ErrorOf("F"), Contains("\"F\""));
  CHECK_THAT(ErrorOf("F=1,I=1,W=1,FB=0"), Contains("--cost FB"));
  CHECK_THAT(ErrorOf("F=1,I=1,W=1,FB=-1"), Contains("--cost FB"));
  CHECK_THAT(ErrorOf("F=1,I=1,W=1,FB=x"), Contains("--cost FB"));
  CHECK(ParseCosts("F=3", true).ok());
}

TEST_CASE("costs: whole ticks that are exact") {
  const CostSpec spec = *ParseCosts("F=18.522,I=18.086ms,W=9.337,FB=0.8", false);
  CHECK(spec.has_unit);
  const PipelineCosts c = *ResolveCosts(spec, 4, 8, 100);
  CHECK(c.exact);
  CHECK(c.ToUnits(c.forward[3]) == 18.522 / 2);
  CHECK(c.ToUnits(c.input[0]) == 0.018086 / 2);
  CHECK(c.forward.size() == 8);
  CHECK(c.ToUnits(c.Pair(0, 1)) == Approx(0.8 * (18.522 + 0.018086 + 9.337) / 2).epsilon(1e-14));
  // The pair's ticks are what the factor says, without a rest.
  CHECK(c.Pair(0, 1) * 5 == (c.forward[0] + c.input[1] + c.weight[1]) * 4);

  const PipelineCosts own = *ResolveCosts(*ParseCosts("F=1:2:3:4,I=1,W=0.5", false), 2, 4, 10);
  CHECK(own.ToUnits(own.forward[3]) == 4);
  CHECK(own.ToUnits(own.input[3]) == 0.5);
  CHECK(own.ToUnits(own.weight[0]) == 0.25);
}

TEST_CASE("costs: rounded where they do not fit, refused where nothing fits") {
  const PipelineCosts fine = *ResolveCosts(*ParseCosts("F=0.123456789012345678,I=1,W=1", false), 4, 4, 1'000'000);
  CHECK_FALSE(fine.exact);
  CHECK(fine.ToUnits(fine.forward[0]) == Approx(0.123456789012345678).epsilon(1e-9));
  const PipelineCosts pair = *ResolveCosts(*ParseCosts("F=0.123456789012345678,I=1,W=1,FB=0.7", false), 4, 4, 1'000'000);
  CHECK(pair.Pair(0, 0) * 10 == (pair.forward[0] + pair.input[0] + pair.weight[0]) * 7);
  CHECK_FALSE(ResolveCosts(*ParseCosts("F=1e17,I=1,W=1", false), 4, 4, 1000).ok());
  CHECK_THAT(std::string(ResolveCosts(*ParseCosts("F=0,I=0,W=0", false), 4, 4, 10).status().message()), Contains("no time"));
  CHECK_THAT(std::string(ResolveCosts(*ParseCosts("F=1:2:3,I=1,W=1", false), 4, 4, 10).status().message()),
             Contains("--cost F has 3 values") && Contains("4 stages"));
  CHECK_THAT(std::string(ResolveCosts(*ParseCosts("F=1,I=1,W=1", false), 2, 3, 10).status().message()),
             Contains("one value for each stage"));
}

}  // namespace weft
