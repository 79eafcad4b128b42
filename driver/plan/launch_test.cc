#include "driver/plan/launch.h"

#include <catch2/catch.hpp>

#include "driver/plan/graph_builder.h"

namespace weft {
namespace {

// GPU workers of one host by their devices' letters: "gcg" is w0 with a GPU, w1 without, w2 with one. Small edges between GPUs go by IPC.
Cluster Mixed(const std::string& devices) {
  Cluster c = TestCluster(std::vector<std::string>(devices.size(), "h0"));
  for (size_t w = 0; w < devices.size(); ++w) c.workers[w].device = devices[w] == 'g' ? "cuda" : "cpu";
  c.ipc_crossover_bytes = 1;
  return c;
}

absl::Status Refused(GraphBuilder& b, const Cluster& cluster) {
  const auto plan = Compile(b.graph(), ClassTable::Std(), cluster);
  REQUIRE_FALSE(plan.ok());
  return plan.status();
}

// x -> p on w0 -> q on w1 -> y
GraphBuilder Chain() {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1").Input("x");
  b.Node("p", "a", {"<x"});
  b.Node("q", "b", {"p"});
  b.Output("y", "q");
  b.options().set_launch(v1::GRAPH);
  return b;
}

TEST_CASE("launch graph: every edge and op of GPU workers has the same number of slots, and the plan holds") {
  GraphBuilder b = Chain();
  b.Actor("c", "w2").Actor("d", "w3");
  b.Node("r", "c", {"p"});
  b.Node("s", "d", {"r"});
  b.Output("z", "s");
  b.options().set_max_in_flight(3);
  const Plan plan = b.CompileOk(Mixed("ggcc"));
  MustRun(plan);
  for (const char* op : {"COMPUTE p", "COMPUTE q", "READ x -> p:0", "READ p:0 -> q:0", "READ p:0 -> r:0"})
    CHECK(OpNamed(plan, op).slots == 3);
  CHECK(OpNamed(plan, "COMPUTE r").slots == 2);  // a CPU worker's own
  CHECK(WaitsOf(plan, OpNamed(plan, "COMPUTE p")) == "DATA READ x -> p:0, BUFFER WRITE p:0 -> q:0 @3, BUFFER WRITE p:0 -> r:0 @3");
  CHECK(plan.edges[OpNamed(plan, "READ r:0 -> s:0").edge].slots == 2);
  CHECK(plan.peak_bytes[0] == (3 + 3) * 1024);
  CHECK(plan.peak_bytes[1] == (3 + 3) * 1024);
}

TEST_CASE("launch graph: nothing is different without it, or without GPUs") {
  GraphBuilder b = Chain();
  const Plan graph = b.CompileOk(Mixed("cc"));
  b.options().set_launch(v1::STREAM);
  const Plan stream = b.CompileOk(Mixed("cc"));
  CHECK(graph.ops.size() == stream.ops.size());
  CHECK(graph.peak_bytes == stream.peak_bytes);
  CHECK_FALSE(UsesStatusWords(graph));
  CHECK(PlanToText(graph).find("launch=GRAPH") != std::string::npos);
  const Plan gpus = b.CompileOk(Mixed("gg"));
  CHECK_FALSE(UsesStatusWords(gpus));
  CHECK(OpNamed(gpus, "COMPUTE p").slots == 2);
  CHECK(OpNamed(gpus, "READ x -> p:0").slots == 4);
}

TEST_CASE("launch graph: every node says what its error is as a number, and std.Fail fails on the device") {
  GraphBuilder b = Chain();
  v1::Actor* fail = b.graph().add_actor();
  fail->set_name("f");
  fail->set_class_("std.Fail");
  fail->set_worker("w0");
  fail->mutable_config()->add_fail_on(7);
  b.Node("boom", "f", {"p"});
  b.Output("z", "boom");
  b.Actor("c", "w2");
  b.Node("r", "c", {"q"});
  b.Output("u", "r");
  const Plan plan = b.CompileOk(Mixed("ggc"));
  MustRun(plan);
  const auto node = [&](const std::string& name) {
    return *std::find_if(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& n) { return n.name == name; });
  };
  CHECK(node("p").device_error == "failed");
  CHECK(node("r").device_error == "its task failed");
  CHECK(node("boom").device_error == "std.Fail fails as it was told to");
  CHECK(node("boom").config.on_device());
  CHECK(UsesStatusWords(plan));
  CHECK(PartOf(plan, 1).nodes.size() == plan.nodes.size());
}

TEST_CASE("launch graph: shapes that are not fixed are refused, each by name") {
  GraphBuilder two = Chain();
  two.graph().mutable_input(0)->set_shape("[?<=256]");
  absl::Status s = Refused(two, Mixed("gg"));
  CHECK(Contains(s, "options.launch GRAPH"));
  CHECK(Contains(s, "the value of edge x -> p:0 (client -> w0), which a GPU worker takes, is F32[?<=256]"));
  CHECK(Contains(s, "output 0 of node q on GPU worker w1"));
  CHECK(Contains(s, "launch STREAM"));

  GraphBuilder one;
  one.Actor("a", "w0").Input("x", "[?]");
  one.Node("p", "a", {"<x"});
  one.Output("y", "p");
  MustRun(one.CompileOk(Mixed("g")));
  one.options().set_launch(v1::GRAPH);
  s = Refused(one, Mixed("g"));
  CHECK(Contains(s, "edge x -> p:0 (client -> w0)"));
  CHECK(Contains(s, "output 0 of node p on GPU worker w0"));

  GraphBuilder b = Chain();
  b.graph().mutable_input(0)->set_shape("[?<=256]");
  MustRun(b.CompileOk(Mixed("cc")));
}

TEST_CASE("launch graph: transports that no captured iteration can use are refused, each by name") {
  GraphBuilder b = Chain();
  Cluster far = Mixed("cg");
  far.workers[1].host_id = "h1";
  absl::Status s = Refused(b, far);
  CHECK(Contains(s, "edge p:0 -> q:0 (w0 -> w1) goes by GLOO"));
  CHECK(Contains(s, "edge q:0 -> y (w1 -> client) goes by REMOTE"));
  CHECK(Contains(s, "use a worker on the driver's host"));

  b.options().mutable_emulate()->set_latency_s(0.001);
  s = Refused(b, Mixed("cg"));
  CHECK(Contains(s, "edge p:0 -> q:0 (w0 -> w1) has an emulated link"));
}

// p on w0, then q on w1, then r on w0 again.
GraphBuilder ThereAndBack() {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1");
  b.Node("p", "a");
  b.Node("q", "b", {"p"});
  b.Node("r", "a", {"q"});
  b.Output("y", "r");
  b.options().set_launch(v1::GRAPH);
  return b;
}

TEST_CASE("launch graph: an iteration that would be needed twice in an execution is refused with the circle") {
  GraphBuilder b = ThereAndBack();
  const absl::Status s = Refused(b, Mixed("gc"));
  CHECK(Contains(s, "w1: READ p:0 -> q:0 needs the end of w0's iteration"));
  CHECK(Contains(s, "the end of w0's iteration needs"));
  CHECK(Contains(s, "the start of w0's iteration needs w1: WRITE q:0 -> r:0"));
  CHECK(Contains(s, "IPC or NCCL"));
  CHECK(Contains(s, "launch STREAM"));

  // Between GPUs the device does it all.
  MustRun(b.CompileOk(Mixed("gg")));
  b.Edge("p", "q").set_transport(v1::NCCL);
  MustRun(b.CompileOk(Mixed("gg")));
  // One of the ways through a host is still one iteration after the other.
  b = ThereAndBack();
  b.Edge("p", "q").set_transport(v1::SHM);
  CHECK(Contains(Refused(b, Mixed("gg")), "the start of w1's iteration needs the end of w0's iteration"));
  b.options().set_launch(v1::STREAM);
  MustRun(b.CompileOk(Mixed("gg")));
}

TEST_CASE("launch graph: what only waits behind a transfer within an iteration is no circle") {
  for (const v1::Overlap overlap : {v1::ON, v1::OFF}) {
    GraphBuilder b;
    b.Actor("a", "w0").Actor("b", "w1").Actor("c", "w2");
    b.Node("p", "a");
    b.Node("p2", "a");
    b.Node("q", "b", {"p"});
    b.Node("q2", "b", {"p2", "q"});
    b.Node("r", "c", {"q", "p2"});
    b.Output("y", "r");
    b.Output("y2", "q2");
    b.options().set_launch(v1::GRAPH);
    b.options().set_overlap(overlap);
    for (const char* devices : {"gcc", "gcg", "cgg", "ggg", "ggc"}) {
      CAPTURE(overlap, devices);
      MustRun(b.CompileOk(Mixed(devices)));
    }
  }
}

TEST_CASE("launch graph: slots stay within the memory limit, and edges of the client keep theirs") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1");
  b.Node("p", "a");
  b.Node("q", "b", {"p"});
  b.Node("r", "b", {"q"});
  b.options().set_launch(v1::GRAPH);
  b.options().set_prefetch_depth(6);
  CHECK(OpNamed(b.CompileOk(Mixed("gg")), "COMPUTE p").slots == 7);
  b.options().set_memory_limit_bytes(13 * 1024);  // w1 holds three values for each slot
  Plan plan = b.CompileOk(Mixed("gg"));
  MustRun(plan);
  CHECK(OpNamed(plan, "COMPUTE p").slots == 4);
  CHECK(WaitsOf(plan, OpNamed(plan, "COMPUTE p")) == "BUFFER WRITE p:0 -> q:0 @4");
  CHECK(plan.peak_bytes == std::vector<uint64_t>{4 * 1024, 12 * 1024});

  b.Output("y", "r");
  b.options().set_max_in_flight(5);
  const absl::Status s = Refused(b, Mixed("gg"));
  CHECK(absl::IsResourceExhausted(s));
  CHECK(Contains(s, "at least 7"));
  b.options().set_prefetch_depth(0);
  CHECK(Contains(Refused(b, Mixed("gg")), "at least 5"));
  b.options().set_max_in_flight(2);
  plan = b.CompileOk(Mixed("gg"));
  MustRun(plan);
  CHECK(OpNamed(plan, "READ p:0 -> q:0").slots == 2);
}

}  // namespace
}  // namespace weft
