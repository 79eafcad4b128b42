// Fused collectives and broadcasts in the place of sends between worker processes on GPUs, over NCCL; on GPUs that the CPU plays where
// $WEFT_TEST_DEVICE does not say otherwise.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tests/integration/daemons.h"
#include "tests/integration/fused_graphs.h"
#include "tests/integration/gpu_graphs.h"

namespace weft {
namespace {

constexpr int kExecutions = 10;

// Of two workers, so that there is one order of additions, whatever NCCL chooses.
TEST_CASE("gpu daemons: sums in buckets are the bits of sums by themselves, with overlap on and off, launched op by op or captured") {
  Daemons cluster({"h0", "h0"}, "h0", {Gpu(0), Gpu(1)});
  const auto client = cluster.Dial();
  GradientsOptions o;
  o.overlap = v1::OFF;
  std::vector<std::string> groups;
  const RunBits apart = RunForBits(client.get(), Gradients("apart", o), kExecutions, &groups);
  CHECK(groups.size() == 5);
  REQUIRE(apart.size() == kExecutions);
  CHECK(apart[0].at("y0-0") == apart[0].at("y0-1"));
  CHECK(apart[0].at("y0-0") != apart[0].at("y1-0"));
  CHECK(apart[0].at("y0-0") != apart[1].at("y0-0"));
  for (const v1::Launch launch : {v1::STREAM, v1::GRAPH}) {
    for (const v1::Overlap overlap : {v1::OFF, v1::ON}) {
      for (const uint64_t bytes : {2 * kLayerBytes, uint64_t{1} << 20}) {
        o.launch = launch;
        o.overlap = overlap;
        o.bucket_bytes = bytes;
        INFO(v1::Launch_Name(launch) << ", overlap " << v1::Overlap_Name(overlap) << ", buckets of " << bytes);
        const std::string name = absl::StrCat("b", bytes, "-", overlap, "-", launch);
        const RunBits run = RunForBits(client.get(), Gradients(name, o), kExecutions, &groups);
        CHECK(groups.size() == (bytes == 2 * kLayerBytes ? 3 : 1));
        CHECK(groups[0] == "bucket+sum0");
        CHECK(Differences(apart, run) == "");
      }
    }
  }
}

// Known to the host or to the device alone, whose status word goes through the bucket.
TEST_CASE("gpu daemons: an error of one value is the error of all results of its bucket, and of no other") {
  Daemons cluster({"h0", "h0"}, "h0", {Gpu(0), Gpu(1)});
  const auto client = cluster.Dial();
  for (const v1::Launch launch : {v1::STREAM, v1::GRAPH}) {
    for (const bool on_device : {false, true}) {
      INFO(v1::Launch_Name(launch) << (on_device ? ", found by the device" : ", known at issue"));
      GradientsOptions o;
      o.fails = true;
      o.launch = launch;
      const auto graph = [&](const char* name) {
        v1::Graph g = Gradients(name, o);
        for (v1::Actor& a : *g.mutable_actor()) {
          if (a.class_() == "std.Fail") a.mutable_config()->set_on_device(on_device);
        }
        return g;
      };
      const RunBits apart = RunForBits(client.get(), graph("apart"), 5);
      o.bucket_bytes = 2 * kLayerBytes;
      RunBits fused = RunForBits(client.get(), graph("fused"), 5);
      for (const char* out : {"y0-0", "y0-1", "y1-0", "y1-1"}) {
        INFO(out << ": " << fused[2].at(out));
        CHECK(fused[2].at(out).find("error of g1-1 on w1 in execution 2: ") == 0);
        CHECK(fused[2].at(out).find("as told") != std::string::npos);
        CHECK((apart[2].at(out).find("error of g1-1") == 0) == (out[1] == '1'));
        fused[2][out] = apart[2].at(out);
      }
      CHECK(Differences(apart, fused) == "");
    }
  }
}

TEST_CASE("gpu daemons: values by one broadcast are the bits of those by sends, and their errors reach the same") {
  Daemons cluster({"h0", "h0", "h0", "h0"}, "h0", {Gpu(0), Gpu(1), Gpu(2), Gpu(3)});
  const auto client = cluster.Dial();
  for (const bool fails : {false, true}) {
    FanOutOptions o;
    o.workers = 4;
    o.transport = v1::NCCL;
    o.fails = fails;
    o.overlap = v1::OFF;
    std::vector<std::string> groups;
    const RunBits sends = RunForBits(client.get(), FanOut("sends", o), kExecutions, &groups);
    CHECK(groups.empty());
    CHECK(sends[0].size() == 5);
    for (const auto& [name, value] : sends[2]) CHECK((value.find("error of bad on w0") == 0) == (fails && name[0] == 'b'));
    o.broadcast = true;
    for (const v1::Launch launch : {v1::STREAM, v1::GRAPH}) {
      for (const v1::Overlap overlap : {v1::OFF, v1::ON}) {
        INFO(v1::Launch_Name(launch) << ", overlap " << v1::Overlap_Name(overlap) << (fails ? ", with an error" : ""));
        o.launch = launch;
        o.overlap = overlap;
        const RunBits run = RunForBits(client.get(), FanOut(absl::StrCat("together-", launch, "-", overlap), o), kExecutions, &groups);
        CHECK(groups == std::vector<std::string>{"broadcast+good:0", "broadcast+bad:0"});
        CHECK(Differences(sends, run) == "");
      }
    }
  }
}

}  // namespace
}  // namespace weft
