#include <catch2/catch.hpp>

#include "common/classes/signature.h"
#include "worker/actor/std/call_test_util.h"

namespace weft {
namespace {

// A config with which every class can be made.
v1::Config Complete(const std::string& cls) {
  v1::Config c;
  if (cls == "std.Linear") {
    c.set_in_features(2);
    c.set_out_features(3);
  }
  if (cls == "std.Mlp") {
    c.add_widths(2);
    c.add_widths(2);
    c.set_rows(2);
    c.set_learning_rate(1);
    c.set_microbatch(0);
  }
  return c;
}

TEST_CASE("registry: the worker has every class and method that the compiler knows, and no class more") {
  const ActorRegistry& registry = ActorRegistry::Std("cpu");
  for (const std::string& name : ClassTable::Std().Names()) {
    INFO(name);
    const absl::StatusOr<std::unique_ptr<Actor>> actor = registry.Make(name, Complete(name), nullptr);
    REQUIRE(actor.ok());
    for (const MethodSignature& m : ClassTable::Std().Find(name)->methods) {
      INFO(m.name);
      CHECK((*actor)->Method(m.name).ok());
    }
    const absl::Status none = (*actor)->Method("nonsense").status();
    CHECK(none.code() == absl::StatusCode::kNotFound);
    CHECK(Mentions(none, name));
  }
  CHECK(registry.Classes().size() == ClassTable::Std().Names().size() + 1);  // weft.Bucket is for the compiler alone
}

TEST_CASE("bucket: values go in one after the other and come out in their shapes") {
  const Tensor a = MakeTensor(v1::F32, {2, 2}, {1, 2, 3, 4}), b = MakeTensor(v1::F32, {1}, {5}), none = MakeTensor(v1::F32, {0, 3}, {});
  const auto packed = CallStd("weft.Bucket", "pack", {}, {a, none, b});
  REQUIRE(packed.ok());
  CHECK(Values(packed->at(0)) == std::vector<double>{1, 2, 3, 4, 5});
  v1::Config config;
  (*config.mutable_extra())["0"] = "[2, 2]";
  (*config.mutable_extra())["1"] = "[0, 3]";
  (*config.mutable_extra())["2"] = "[1]";
  const auto out = CallStd("weft.Bucket", "unpack", config, {packed->at(0)}, 3);
  REQUIRE(out.ok());
  CHECK(BitEqual(out->at(0), a));
  CHECK(out->at(1).dims() == Dims{0, 3});
  CHECK(BitEqual(out->at(2), b));
  config.set_dtype(v1::F32);
  config.set_shape("[3]");
  const auto room = CallStd("weft.Bucket", "room", config, {});
  REQUIRE(room.ok());
  CHECK(room->at(0).dims() == Dims{3});
  // Of a plan that was edited by hand.
  CHECK_FALSE(CallStd("weft.Bucket", "unpack", config, {packed->at(0)}, 4).ok());
  CHECK(Mentions(CallStd("weft.Bucket", "unpack", config, {b}, 3).status(), "ends before its part 0"));
  CHECK(Mentions(CallStd("weft.Bucket", "pack", {}, {a, MakeTensor(v1::I32, {1}, {1})}).status(), "one dtype"));
}

TEST_CASE("registry: unknown classes and devices are answered with what there is") {
  const absl::Status s = ActorRegistry::Std("cpu").Make("std.Nope", {}, nullptr).status();
  CHECK(s.code() == absl::StatusCode::kNotFound);
  CHECK(Mentions(s, "std.Nope"));
  CHECK(Mentions(s, "std.Gemm"));
  CHECK(Mentions(ActorRegistry::Std("abacus").Make("std.Gemm", {}, nullptr).status(), "none"));
}

TEST_CASE("registry: a class registered again replaces the first") {
  ActorRegistry r;
  r.Register("a", [](const v1::Config&, Device*) { return absl::InternalError("first"); });
  r.Register("a", [](const v1::Config&, Device*) { return absl::InternalError("second"); });
  CHECK(r.Classes().size() == 1);
  CHECK(Mentions(r.Make("a", {}, nullptr).status(), "second"));
}

TEST_CASE("registry: a plan with wrong counts is an error, never a crash") {
  for (const std::string& name : ClassTable::Std().Names()) {
    for (const MethodSignature& m : ClassTable::Std().Find(name)->methods) {
      const Tensor x = MakeTensor(v1::F32, {2, 2}, {1, 2, 3, 4});
      INFO(name << "." << m.name);
      if (m.min_args > 0) CHECK_FALSE(CallStd(name, m.name, Complete(name), {}).ok());
      if (m.max_args >= 0) CHECK_FALSE(CallStd(name, m.name, Complete(name), std::vector<Tensor>(m.max_args + 1, x)).ok());
      CHECK_FALSE(CallStd(name, m.name, Complete(name), std::vector<Tensor>(m.min_args, x), 0).ok());
    }
  }
}

TEST_CASE("registry: small calls run inline, large ones do not") {
  const Tensor small = *Tensor::OnHost(v1::F32, {1024}), large = *Tensor::OnHost(v1::F32, {1 << 20});
  const auto actor = *ActorRegistry::Std("cpu").Make("std.Math", {}, nullptr);
  CHECK(actor->RunsInline(*actor->Method("add"), {small, small}));
  CHECK_FALSE(actor->RunsInline(*actor->Method("add"), {small, large}));
  CHECK_FALSE(actor->RunsInline(*actor->Method("matmul"), {*Tensor::OnHost(v1::F32, {64, 64}), *Tensor::OnHost(v1::F32, {64, 64})}));
  CHECK(actor->RunsInline(*actor->Method("peek"), {large}));
  v1::Config c;
  c.set_dtype(v1::F32);
  c.set_shape("[4]");
  CHECK((*ActorRegistry::Std("cpu").Make("std.Source", c, nullptr))->RunsInline(0, {}));
  c.set_shape("[1048576]");
  CHECK_FALSE((*ActorRegistry::Std("cpu").Make("std.Source", c, nullptr))->RunsInline(0, {}));
  CHECK((*ActorRegistry::Std("cpu").Make("std.Delay", {}, nullptr))->RunsInline(0, {}));
  v1::Config makes;
  makes.set_dtype(v1::F32);
  makes.set_shape("[1048576]");
  for (const char* cls : {"std.Delay", "std.Fail"}) {
    CHECK_FALSE((*ActorRegistry::Std("cpu").Make(cls, makes, nullptr))->RunsInline(0, {}));  // makes 4 MiB
    CHECK((*ActorRegistry::Std("cpu").Make(cls, makes, nullptr))->RunsInline(0, {small}));
  }
}

}  // namespace
}  // namespace weft
