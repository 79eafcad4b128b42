#include "driver/plan/memory.h"

#include <catch2/catch.hpp>

#include "driver/plan/graph_builder.h"

namespace weft {
namespace {

// F32[256] (1 KiB) from w0 to w1 and on to the client.
GraphBuilder Small() {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1").Input("x");
  b.Node("p", "a", {"<x"});
  b.Node("q", "b", {"p"});
  b.Output("y", "q");
  return b;
}

TEST_CASE("slots, write-after-read waits and peak bytes") {
  GraphBuilder b = Small();
  Plan plan = b.CompileOk();
  MustRun(plan);
  CHECK(OpNamed(plan, "COMPUTE p").slots == 2);
  CHECK(OpNamed(plan, "READ p:0 -> q:0").slots == 2);
  CHECK(OpNamed(plan, "READ x -> p:0").slots == 4);  // max_in_flight
  CHECK(WaitsOf(plan, OpNamed(plan, "COMPUTE p")) == "DATA READ x -> p:0, BUFFER WRITE p:0 -> q:0 @2");
  // w0: p's two buffers and the two slots of shared memory that it writes; w1: q's two and the output's four.
  CHECK(plan.peak_bytes == std::vector<uint64_t>{4 * 1024, 6 * 1024});

  b.Comm("p", "q");
  b.options().set_prefetch_depth(2);
  b.options().set_max_in_flight(1);
  plan = b.CompileOk();
  MustRun(plan);
  // Three buffers each; received values now lie at the receiver.
  CHECK(plan.peak_bytes == std::vector<uint64_t>{3 * 1024, (3 + 3 + 3) * 1024});
  CHECK(WaitsOf(plan, OpNamed(plan, "RECV p:0 -> q:0")) == "BUFFER COMPUTE q @3");
  CHECK(OpNamed(plan, "READ x -> p:0").slots == 3);  // depth + 1

  Cluster far = TestCluster({"h1", "h1"});
  plan = b.CompileOk(far);
  MustRun(plan);
  // What comes from another host is received into the worker's own memory.
  CHECK(plan.peak_bytes == std::vector<uint64_t>{(3 + 3) * 1024, (3 + 3) * 1024});
}

TEST_CASE("several readers of a value are each waited for, once") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1");
  b.Node("p", "a");
  b.Node("q", "a", {"p", "p"});
  b.Node("r", "b", {"p"});
  b.Output("y", "p");
  const Plan plan = b.CompileOk();
  MustRun(plan);
  CHECK(OpNamed(plan, "COMPUTE p").waits.size() == 3);
  CHECK(OpNamed(plan, "COMPUTE q").args.size() == 2);
  CHECK(WaitsOf(plan, OpNamed(plan, "COMPUTE q")) == "DATA COMPUTE p");
}

TEST_CASE("a byte limit takes buffers away, the largest first, and fails only when one of each is too much") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1");
  b.Node("big", "a").mutable_config()->set_shape("[1024]");
  b.Node("small", "a");
  b.Node("use", "b", {"big", "small"});
  b.Comm("big", "use");
  b.Comm("small", "use");
  b.options().set_prefetch_depth(3);
  // w0: 4 * (4 KiB + 1 KiB); w1: the same received, and 4 * 4 KiB for use's own output.
  CHECK(b.CompileOk().peak_bytes == std::vector<uint64_t>{20 * 1024, 36 * 1024});

  b.options().set_memory_limit_bytes(14 * 1024);
  Plan plan = b.CompileOk();
  MustRun(plan);
  CHECK(plan.peak_bytes[0] == 12 * 1024);
  CHECK(OpNamed(plan, "COMPUTE big").slots == 2);
  CHECK(OpNamed(plan, "COMPUTE small").slots == 4);
  CHECK(plan.peak_bytes[1] <= 14 * 1024);

  b.options().set_memory_limit_bytes(9 * 1024);
  plan = b.CompileOk();
  MustRun(plan);
  CHECK(plan.peak_bytes[1] == 9 * 1024);

  b.options().set_memory_limit_bytes(9 * 1024 - 1);
  const absl::Status status = b.TryCompile().status();
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(Contains(status, "w1 needs 9.0 KiB (9216 bytes) even with the fewest buffers, options.memory_limit_bytes allows 9215"));
  CHECK(Contains(status, "4096 bytes, goes to RECV big:0 -> use:0"));
}

TEST_CASE("a byte limit and a dimension without bound exclude each other") {
  GraphBuilder b;
  b.Actor("a", "w0").Input("x", "[?]");
  b.Node("p", "a", {"<x"});
  b.Output("y", "p");
  MustRun(b.CompileOk());
  b.options().set_memory_limit_bytes(1 << 30);
  const absl::Status status = b.TryCompile().status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(Contains(status, "?"));
}

TEST_CASE("sums of absurd sizes saturate instead of wrapping") {
  GraphBuilder b;
  b.Actor("a", "w0");
  for (int i = 0; i < 3000; ++i) b.Node(absl::StrCat("n", i), "a").mutable_config()->set_shape("[274877906944]");  // 1 TiB each
  b.options().set_prefetch_depth(64);
  CHECK(b.CompileOk().peak_bytes[0] == 3000ull * 65 << 40);
  b.options().set_memory_limit_bytes(1);
  CHECK(b.TryCompile().status().code() == absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace weft
