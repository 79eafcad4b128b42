// Fused collectives and broadcasts in the place of sends between worker processes on several hosts, over Gloo: the same bits as without.

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "tests/integration/daemons.h"
#include "tests/integration/fused_graphs.h"

namespace weft {
namespace {

constexpr int kExecutions = 12;

TEST_CASE("buckets daemons: sums of three hosts are the same bits in buckets of any size, with overlap on and off") {
  const Daemons daemons({"h0", "h1", "h2"}, "h0", {"cpu", "cpu", "cpu"});
  const auto client = daemons.Dial();
  GradientsOptions o;
  o.workers = 3;
  o.overlap = v1::OFF;
  std::vector<std::string> groups;
  const RunBits apart = RunForBits(client.get(), Gradients("apart", o), kExecutions, &groups);
  CHECK(groups == std::vector<std::string>{"sum0", "sum1", "sum2", "sum3", "sum4"});
  REQUIRE(apart.size() == kExecutions);
  CHECK(apart[0].size() == 15);
  CHECK(apart[0].at("y0-0") == apart[0].at("y0-2"));
  CHECK(apart[0].at("y0-0") != apart[0].at("y1-0"));
  CHECK(apart[0].at("y0-0") != apart[1].at("y0-0"));
  for (const v1::Overlap overlap : {v1::OFF, v1::ON}) {
    for (const uint64_t bytes : {uint64_t{0}, 2 * kLayerBytes, uint64_t{1} << 20}) {
      o.overlap = overlap;
      o.bucket_bytes = bytes;
      INFO(v1::Overlap_Name(overlap) << ", buckets of " << bytes);
      const RunBits run = RunForBits(client.get(), Gradients(absl::StrCat("b", bytes, "-", overlap), o), kExecutions, &groups);
      CHECK(groups.size() == (bytes == 0 ? 5 : bytes == 2 * kLayerBytes ? 3 : 1));
      CHECK(Differences(apart, run) == "");
    }
  }
}

TEST_CASE("buckets daemons: an error of one value is the error of all results of its bucket, and of no other") {
  const Daemons daemons({"h0", "h1"}, "h0", {"cpu", "cpu"});
  const auto client = daemons.Dial();
  GradientsOptions o;
  o.fails = true;
  const RunBits apart = RunForBits(client.get(), Gradients("apart", o), 5);
  o.bucket_bytes = 2 * kLayerBytes;
  RunBits fused = RunForBits(client.get(), Gradients("fused", o), 5);
  for (const char* out : {"y0-0", "y0-1", "y1-0", "y1-1"}) {
    INFO(out);
    CHECK(fused[2].at(out).find("error of g1-1 on w1 in execution 2: ") == 0);
    CHECK(fused[2].at(out).find("as told") != std::string::npos);
    CHECK((apart[2].at(out).find("error of g1-1") == 0) == (out[1] == '1'));
    fused[2][out] = apart[2].at(out);
  }
  CHECK(Differences(apart, fused) == "");
}

TEST_CASE("broadcasts daemons: values of one host for four others are the same bits by broadcast and by sends, with overlap on and off") {
  const Daemons daemons({"h0", "h1", "h2", "h3", "h4"}, "h0", {"cpu", "cpu", "cpu", "cpu", "cpu"});
  const auto client = daemons.Dial();
  for (const bool fails : {false, true}) {
    FanOutOptions o;
    o.workers = 5;
    o.fails = fails;
    o.overlap = v1::OFF;
    std::vector<std::string> groups;
    const RunBits sends = RunForBits(client.get(), FanOut("sends", o), kExecutions, &groups);
    CHECK(groups.empty());
    CHECK(sends[0].size() == 7);
    CHECK(sends[0].at("good1") != sends[1].at("good1"));
    // Exactly those that take it.
    for (const auto& [name, value] : sends[2]) CHECK((value.find("error of bad on w0") == 0) == (fails && name[0] == 'b'));
    for (const v1::Overlap overlap : {v1::OFF, v1::ON}) {
      o.overlap = overlap;
      o.broadcast = true;
      INFO(v1::Overlap_Name(overlap) << (fails ? ", with an error" : ""));
      const RunBits run = RunForBits(client.get(), FanOut("together", o), kExecutions, &groups);
      CHECK(groups == std::vector<std::string>{"broadcast+good:0", "broadcast+bad:0"});
      CHECK(Differences(sends, run) == "");
      o.broadcast = false;
      CHECK(Differences(sends, RunForBits(client.get(), FanOut("sends", o), kExecutions)) == "");
    }
  }
}

}  // namespace
}  // namespace weft
