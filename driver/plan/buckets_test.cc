#include "driver/plan/buckets.h"

#include "driver/plan/graph_builder.h"

namespace weft {
namespace {

int Collectives(const Plan& plan) { return static_cast<int>(plan.groups.size()); }

Plan MustCompile(GraphBuilder* b, uint64_t bucket_bytes) {
  b->options().set_bucket_bytes(bucket_bytes);
  Plan plan = b->CompileOk();
  const absl::Status verified = Verify(plan);
  INFO(verified.message());
  REQUIRE(verified.ok());
  const auto run = Simulate(plan, CostModel::Default(), {5, 0, false});
  INFO(run.status().message());
  REQUIRE(run.ok());
  const auto back = PlanFromText(PlanToText(plan));
  INFO(back.status().message());
  REQUIRE(back.ok());
  CHECK(PlanToText(*back) == PlanToText(plan));
  CHECK(PlanFromProto(PlanToProto(plan)).ok());
  return plan;
}

// Backward passes of `layers` on two workers, each gradient of 1 KiB summed up and applied.
GraphBuilder Layers(int layers) {
  GraphBuilder b;
  for (int w = 0; w < 2; ++w) b.Actor(absl::StrCat("a", w), absl::StrCat("w", w)).Actor(absl::StrCat("o", w), absl::StrCat("w", w));
  for (int l = 0; l < layers; ++l) {
    std::vector<std::string> grads;
    for (int w = 0; w < 2; ++w) {
      grads.push_back(absl::StrCat("b", l, "-", w));
      std::vector<std::string> args;
      if (l > 0) args.push_back(absl::StrCat("b", l - 1, "-", w));
      b.Node(grads.back(), absl::StrCat("a", w), args).mutable_config()->set_shape("[256]");
    }
    b.AllReduce(absl::StrCat("g", l), grads);
    for (int w = 0; w < 2; ++w) {
      b.Node(absl::StrCat("apply", l, "-", w), absl::StrCat("o", w), {absl::StrCat("+g", l)}).mutable_config()->set_shape("[256]");
      b.Output(absl::StrCat("y", l, "-", w), absl::StrCat("apply", l, "-", w));
    }
  }
  return b;
}

}  // namespace

TEST_CASE("buckets: small reductions go together as far as the bytes allow") {
  GraphBuilder b = Layers(5);
  CHECK(Collectives(MustCompile(&b, 0)) == 5);
  CHECK(Collectives(MustCompile(&b, 1023)) == 5);  // none fits
  CHECK(Collectives(MustCompile(&b, 2047)) == 5);  // no two do
  CHECK(Collectives(MustCompile(&b, 2048)) == 3);
  CHECK(Collectives(MustCompile(&b, 4096)) == 2);
  const Plan all = MustCompile(&b, 1 << 20);
  REQUIRE(Collectives(all) == 1);
  CHECK(all.groups[0].name == "bucket+g0");
  CHECK(all.groups[0].input.ToString() == "F32[1280]");
  CHECK(all.groups[0].member_nodes == std::vector<std::string>{"pack+g0@w0", "pack+g0@w1"});
  // Within a bucket's last gradient everything stands behind it, and on the worker's lane what is taken of it does not stand before
  // what goes into it.
  std::vector<std::string> list;
  for (const PlanOp& o : all.ops) {
    if (o.worker == 0 && o.kind == v1::COMPUTE) list.push_back(all.nodes[o.node].name);
  }
  CHECK(absl::StrJoin(list, " ") == "b0-0 b1-0 b2-0 b3-0 b4-0 pack+g0@w0 unpack+g0@w0 apply0-0 apply1-0 apply2-0 apply3-0 apply4-0");
}

TEST_CASE("buckets: not what depends on each other, nor other members, reductions or dtypes") {
  {
    // Each layer needs the sum of the one before.
    GraphBuilder b;
    for (int w = 0; w < 2; ++w) b.Actor(absl::StrCat("a", w), absl::StrCat("w", w));
    for (int l = 0; l < 3; ++l) {
      std::vector<std::string> members;
      for (int w = 0; w < 2; ++w) {
        members.push_back(absl::StrCat("n", l, "-", w));
        b.Node(members.back(), absl::StrCat("a", w), l > 0 ? std::vector<std::string>{absl::StrCat("+g", l - 1)} : std::vector<std::string>{});
      }
      b.AllReduce(absl::StrCat("g", l), members);
    }
    b.Output("y", "+g2");
    CHECK(Collectives(MustCompile(&b, 1 << 20)) == 3);
  }
  GraphBuilder b;
  for (int w = 0; w < 3; ++w) b.Actor(absl::StrCat("a", w), absl::StrCat("w", w));
  for (int n = 0; n < 6; ++n) {
    for (int w = 0; w < 3; ++w) {
      v1::Node& node = b.Node(absl::StrCat("n", n, "-", w), absl::StrCat("a", w));
      if (n == 4) node.mutable_config()->set_dtype(v1::I32);
    }
  }
  const auto members = [](int n, std::vector<int> workers) {
    std::vector<std::string> names;
    for (const int w : workers) names.push_back(absl::StrCat("n", n, "-", w));
    return names;
  };
  b.AllReduce("ab", members(0, {0, 1}));
  b.AllReduce("bc", members(1, {1, 2}));
  b.AllReduce("ba", members(2, {1, 0}));
  b.AllReduce("most", members(3, {0, 1})).set_reduce(v1::MAX);
  b.AllReduce("ints", members(4, {0, 1}));
  v1::Collective& gather = b.AllReduce("gather", members(5, {0, 1}));
  gather.set_op(v1::ALL_GATHER);
  gather.set_reduce(v1::REDUCE_OP_UNSPECIFIED);
  b.Output("y", "+gather");
  CHECK(Collectives(MustCompile(&b, 1 << 20)) == 6);
}

TEST_CASE("buckets: results that are outputs, `after`s, nobody's results, and takers on other actors") {
  GraphBuilder b;
  for (int w = 0; w < 2; ++w) b.Actor(absl::StrCat("a", w), absl::StrCat("w", w)).Actor(absl::StrCat("o", w), absl::StrCat("w", w));
  for (int w = 0; w < 2; ++w) b.Node(absl::StrCat("x", w), absl::StrCat("a", w));
  b.AllReduce("first", {"x0", "x1"});
  // Takes of the first on another actor, in the file before what goes into the second.
  b.Node("early", "o0", {"+first"});
  for (int w = 0; w < 2; ++w) b.Node(absl::StrCat("y", w), absl::StrCat("a", w));
  for (int w = 0; w < 2; ++w) b.Node(absl::StrCat("z", w), absl::StrCat("a", w));
  v1::Collective& second = b.AllReduce("second", {"y0", "y1"});
  second.mutable_member(0)->set_after("z0");
  b.Output("e", "early").Output("s", "+second");
  const Plan plan = MustCompile(&b, 1 << 20);
  REQUIRE(Collectives(plan) == 1);
  std::vector<std::string> nodes;
  for (const PlanNode& n : plan.nodes) nodes.push_back(n.name);
  const std::string names = absl::StrJoin(nodes, " ");
  // Nobody takes a result on w1: the first member, w0, gives the output.
  CHECK(names.find("unpack+first@w0") != std::string::npos);
  CHECK(names.find("unpack+first@w1") == std::string::npos);
  CHECK(names.find("pack+first@w1") != std::string::npos);
}

TEST_CASE("buckets: of GPU workers over NCCL, launched op by op or captured; not of both kinds of workers") {
  for (const v1::Launch launch : {v1::STREAM, v1::GRAPH}) {
    GraphBuilder b = Layers(5);
    b.options().set_bucket_bytes(2048);
    b.options().set_launch(launch);
    const Plan plan = b.CompileOk(TestCluster({"h0", "h0"}, "cuda"));
    MustRun(plan);
    REQUIRE(Collectives(plan) == 3);
    CHECK(plan.groups[0].name == "bucket+g0");
    for (const PlanGroup& g : plan.groups) CHECK(g.transport == v1::NCCL);
  }
  // It is refused by the collective's own name.
  GraphBuilder b = Layers(5);
  b.options().set_bucket_bytes(2048);
  Cluster both = TestCluster({"h0", "h0"});
  both.workers[1].device = "cuda";
  const auto refused = Compile(b.graph(), ClassTable::Std(), both);
  CHECK(Contains(refused.status(), "collective g0: member b0-1 is on w1, a GPU worker, and others are on CPU workers"));
}

TEST_CASE("buckets: a size that cannot be is refused") {
  GraphBuilder b = Layers(1);
  b.options().set_bucket_bytes(uint64_t{1} << 31);
  CHECK(Contains(b.TryCompile().status(), "options.bucket_bytes is 2147483648; give 0 (each collective by itself) to 1073741824"));
}

}  // namespace weft
