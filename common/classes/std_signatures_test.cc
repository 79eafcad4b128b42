#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/classes/signature.h"

namespace weft {
namespace {

using Catch::Contains;

Spec S(DType dtype, const std::string& shape) {
  const auto parsed = Shape::Parse(shape);
  REQUIRE(parsed.ok());
  return {dtype, *parsed};
}

absl::StatusOr<std::vector<Spec>> Infer(const std::string& cls, const std::string& method, const v1::Config& config,
                                        const std::vector<Spec>& args) {
  const ClassSignature* c = ClassTable::Std().Find(cls);
  REQUIRE(c != nullptr);
  const MethodSignature* m = c->Find(method);
  REQUIRE(m != nullptr);
  REQUIRE(static_cast<int>(args.size()) >= m->min_args);
  REQUIRE((m->max_args < 0 || static_cast<int>(args.size()) <= m->max_args));
  return m->infer(config, args);
}

// "F32[2, 3]; I64[1]", or the error's text.
std::string Run(const std::string& method, const std::vector<Spec>& args, const v1::Config& config = {},
                const std::string& cls = "std.Math") {
  const auto out = Infer(cls, method, config, args);
  if (!out.ok()) {
    CHECK(absl::IsInvalidArgument(out.status()));
    return std::string(out.status().message());
  }
  std::string text;
  for (const Spec& s : *out) text += (text.empty() ? "" : "; ") + s.ToString();
  return text;
}

std::string Check(const std::string& cls, const v1::Config& config) {
  const ClassSignature* c = ClassTable::Std().Find(cls);
  REQUIRE(c != nullptr);
  if (c->check_config == nullptr) return "";
  return std::string(c->check_config(config).message());
}

TEST_CASE("the table holds weft's classes and their methods") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> expected = {
      {"std.Source", {"make"}},
      {"std.Constant", {"make"}},
      {"std.Identity", {"identity"}},
      {"std.Add", {"add"}},
      {"std.Scale", {"scale"}},
      {"std.Split", {"split"}},
      {"std.Concat", {"concat"}},
      {"std.Reduce", {"reduce"}},
      {"std.Gemm", {"matmul", "square", "add", "scale", "identity", "reduce", "peek"}},
      {"std.Math", {"identity", "add", "scale", "square", "matmul", "reduce", "split", "concat", "peek"}},
      {"std.Linear", {"forward"}},
      {"std.Mlp", {"forward", "input_grad", "weight_grad", "backward", "step", "weights"}},
      {"std.Delay", {"run"}},
      {"std.Fail", {"run"}},
      {"std.Check", {"finite"}},
  };
  CHECK(ClassTable::Std().Names().size() == expected.size());
  for (const auto& [name, methods] : expected) {
    CAPTURE(name);
    const ClassSignature* c = ClassTable::Std().Find(name);
    REQUIRE(c != nullptr);
    CHECK(c->name == name);
    CHECK_FALSE(c->summary.empty());
    CHECK(c->methods.size() == methods.size());
    for (const std::string& m : methods) CHECK(c->Find(m) != nullptr);
    CHECK((c->Find("") != nullptr) == (methods.size() == 1));
    CHECK(c->Find("no_such") == nullptr);
    // Every name of a field is one of Config's.
    for (const std::string& f : c->config_fields) {
      CHECK(v1::Config::descriptor()->FindFieldByName(f) != nullptr);
    }
    for (const MethodSignature& m : c->methods) {
      for (const std::string& f : m.config_fields.value_or(std::vector<std::string>{})) {
        CHECK(std::count(c->config_fields.begin(), c->config_fields.end(), f) == 1);
      }
    }
  }
  CHECK(ClassTable::Std().Find("std.Nope") == nullptr);
}

TEST_CASE("add takes one spec, and narrows what is bounded") {
  CHECK(Run("add", {S(v1::F16, "[2, 3]")}) == "F16[2, 3]");
  CHECK(Run("add", {S(v1::F16, "[2, 3]"), S(v1::F16, "[2, 3]"), S(v1::F16, "[2, 3]")}) == "F16[2, 3]");
  CHECK(Run("add", {S(v1::I8, "[?<=8]"), S(v1::I8, "[?<=8]")}) == "I8[?<=8]");
  CHECK(Run("add", {S(v1::F16, "[4, 4]"), S(v1::F16, "[4, ?<=8]")}) == "F16[4, 4]");
  CHECK(Run("add", {S(v1::F16, "[?]"), S(v1::F16, "[?<=8]")}) == "F16[?<=8]");
  CHECK_THAT(Run("add", {S(v1::F32, "[2]"), S(v1::F32, "[2]"), S(v1::F32, "[3]")}), Contains("argument 2 is F32[3]"));
  CHECK_THAT(Run("add", {S(v1::F32, "[2]"), S(v1::F64, "[2]")}), Contains("argument 1 is F64[2]"));
  CHECK_THAT(Run("add", {S(v1::F32, "[9]"), S(v1::F32, "[?<=8]")}), Contains("argument 1"));
  CHECK_THAT(Run("add", {S(v1::F32, "[]"), S(v1::F32, "[1]")}), Contains("argument 1"));
  CHECK_THAT(Run("add", {S(v1::BOOL, "[2]")}), Contains("BOOL"));
}

TEST_CASE("scale") {
  v1::Config half;
  half.set_scale(0.5);
  CHECK(Run("scale", {S(v1::BF16, "[2, ?]")}, half) == "BF16[2, ?]");
  CHECK_THAT(Run("scale", {S(v1::F32, "[2]")}), Contains("config.scale is missing"));
  CHECK_THAT(Run("scale", {S(v1::I32, "[2]")}, half), Contains("whole factor"));
  CHECK_THAT(Run("scale", {S(v1::BOOL, "[2]")}, half), Contains("BOOL"));
  half.set_scale(-3);
  CHECK(Run("scale", {S(v1::U8, "[2]")}, half) == "U8[2]");
}

TEST_CASE("matmul and square") {
  CHECK(Run("matmul", {S(v1::F32, "[2, 3]"), S(v1::F32, "[3, 5]")}) == "F32[2, 5]");
  CHECK(Run("matmul", {S(v1::F16, "[?<=2, 3]"), S(v1::F16, "[?, 5]")}) == "F16[?<=2, 5]");
  CHECK(Run("matmul", {S(v1::I64, "[2, 3]"), S(v1::I64, "[3, ?]")}) == "I64[2, ?]");
  CHECK_THAT(Run("matmul", {S(v1::F32, "[2, 3]"), S(v1::F32, "[4, 5]")}), Contains("argument 1 is F32[4, 5]"));
  CHECK_THAT(Run("matmul", {S(v1::F32, "[2, 3]"), S(v1::F64, "[3, 5]")}), Contains("one dtype"));
  CHECK_THAT(Run("matmul", {S(v1::I16, "[2, 3]"), S(v1::I16, "[3, 5]")}), Contains("argument 0") && Contains("F64"));
  CHECK_THAT(Run("matmul", {S(v1::F32, "[2]"), S(v1::F32, "[3, 5]")}), Contains("two dimensions"));
  CHECK_THAT(Run("matmul", {S(v1::F32, "[1099511627776, 1]"), S(v1::F32, "[1, 1099511627776]")}), Contains("1 TiB"));
  CHECK(Run("square", {S(v1::F32, "[4, 4]")}) == "F32[4, 4]");
  CHECK(Run("square", {S(v1::F32, "[4, ?<=8]")}) == "F32[4, 4]");
  CHECK_THAT(Run("square", {S(v1::F32, "[4, 5]")}), Contains("rows and columns"));
  CHECK_THAT(Run("square", {S(v1::BOOL, "[4, 4]")}), Contains("square takes"));
}

TEST_CASE("reduce") {
  v1::Config config;
  CHECK(Run("reduce", {S(v1::I8, "[2, 3]")}) == "I8[1]");
  config.set_axis(0);
  CHECK(Run("reduce", {S(v1::F32, "[2, ?<=3]")}, config) == "F32[?<=3]");
  config.set_axis(1);
  CHECK(Run("reduce", {S(v1::F32, "[2, ?]")}, config) == "F32[2]");
  CHECK_THAT(Run("reduce", {S(v1::F32, "[2]")}, config), Contains("config.axis is 1"));
  CHECK_THAT(Run("reduce", {S(v1::F32, "[]")}, config), Contains("scalar"));
  config.set_reduce("mean");
  CHECK(Run("reduce", {S(v1::F16, "[2, 3]")}, config) == "F16[2]");
  CHECK_THAT(Run("reduce", {S(v1::I32, "[2, 3]")}, config), Contains("mean"));
  config.set_reduce("max");
  CHECK_THAT(Run("reduce", {S(v1::I32, "[2, 0]")}, config), Contains("no elements"));
  config.set_axis(0);
  CHECK(Run("reduce", {S(v1::I32, "[2, 0]")}, config) == "I32[0]");
  CHECK_THAT(Run("reduce", {S(v1::BOOL, "[2]")}, config), Contains("BOOL"));
}

TEST_CASE("split and concat") {
  v1::Config config;
  config.set_parts(3);
  CHECK(Run("split", {S(v1::F32, "[6, ?<=4]")}, config) == "F32[2, ?<=4]; F32[2, ?<=4]; F32[2, ?<=4]");
  CHECK_THAT(Run("split", {S(v1::F32, "[7]")}, config), Contains("does not divide"));
  CHECK_THAT(Run("split", {S(v1::F32, "[?<=6]")}, config), Contains("fixed size along axis 0"));
  CHECK_THAT(Run("split", {S(v1::F32, "[]")}, config), Contains("scalar"));
  config.set_axis(1);
  CHECK(Run("split", {S(v1::BOOL, "[1, 3]")}, config) == "BOOL[1, 1]; BOOL[1, 1]; BOOL[1, 1]");
  CHECK_THAT(Run("split", {S(v1::F32, "[6]")}, {}), Contains("config.parts is missing"));
  config.set_parts(int64_t{1} << 40);
  CHECK_THAT(Run("split", {S(v1::U8, "[1, 1099511627776]")}, config), Contains("config.parts"));

  CHECK(Run("concat", {S(v1::F32, "[2, 4]"), S(v1::F32, "[3, 4]")}) == "F32[5, 4]");
  CHECK(Run("concat", {S(v1::F32, "[?<=2, 4]"), S(v1::F32, "[3, 4]")}) == "F32[?<=5, 4]");
  CHECK(Run("concat", {S(v1::F32, "[3, 4]"), S(v1::F32, "[?<=2, ?<=4]")}) == "F32[?<=5, 4]");
  CHECK(Run("concat", {S(v1::F32, "[?, 4]"), S(v1::F32, "[3, 4]")}) == "F32[?, 4]");
  CHECK_THAT(Run("concat", {S(v1::F32, "[2, 4]"), S(v1::F32, "[2, 5]")}), Contains("argument 1"));
  CHECK_THAT(Run("concat", {S(v1::F32, "[2, 4]"), S(v1::F16, "[2, 4]")}), Contains("argument 1"));
  CHECK_THAT(Run("concat", {S(v1::F32, "[]")}), Contains("scalar"));
  CHECK_THAT(Run("concat", std::vector<Spec>(100, S(v1::U8, "[1099511627776]"))), Contains("1 TiB"));
}

TEST_CASE("peek") {
  CHECK(Run("peek", {S(v1::F16, "[2, ?]")}) == "F16[1]; I64[2]; I32[1]");
  CHECK(Run("peek", {S(v1::BOOL, "[]")}) == "BOOL[1]; I64[0]; I32[1]");
  CHECK_THAT(Run("peek", {S(v1::F16, "[2, 0]")}), Contains("first element"));
}

TEST_CASE("sources") {
  v1::Config config;
  const auto make = [&](const char* cls) { return Run("make", {}, config, cls); };
  CHECK_THAT(make("std.Source"), Contains("config.dtype is missing") && Contains("config.shape is missing"));
  config.set_dtype(v1::F16);
  config.set_shape("[1024, 1024]");
  CHECK(make("std.Source") == "F16[1024, 1024]");
  CHECK(make("std.Constant") == "F16[1024, 1024]");
  config.set_shape("[?<=4]");
  CHECK_THAT(make("std.Source"), Contains("fixed sizes"));

  for (const char* fill : {"", "execution", "zeros", "ones", "iota", "random", "3.5", "-2"}) {
    config.set_fill(fill);
    CHECK(Check("std.Source", config) == "");
  }
  config.set_fill("execution");
  CHECK_THAT(Check("std.Constant", config), Contains("std.Source"));
  for (const char* fill : {"nan", "inf", "1e999", "what", "1 2", "0x"}) {
    config.set_fill(fill);
    CHECK_THAT(Check("std.Source", config), Contains("config.fill"));
  }
  config.set_dtype(v1::U8);
  config.set_fill("256");
  CHECK_THAT(Check("std.Constant", config), Contains("not a value of config.dtype U8"));
  config.set_fill("0.5");
  CHECK_THAT(Check("std.Constant", config), Contains("U8"));
  config.set_fill("255");
  CHECK(Check("std.Constant", config) == "");
}

TEST_CASE("linear") {
  v1::Config config;
  CHECK_THAT(Check("std.Linear", config), Contains("in_features") && Contains("out_features"));
  config.set_in_features(8);
  config.set_out_features(3);
  CHECK(Check("std.Linear", config) == "");
  CHECK(Run("forward", {S(v1::F32, "[?<=16, 8]")}, config, "std.Linear") == "F32[?<=16, 3]");
  CHECK_THAT(Run("forward", {S(v1::F32, "[4, 7]")}, config, "std.Linear"), Contains("[batch, 8]"));
  CHECK_THAT(Run("forward", {S(v1::F64, "[4, 8]")}, config, "std.Linear"), Contains("F32[batch, 8]"));
  CHECK_THAT(Run("forward", {S(v1::F32, "[8]")}, config, "std.Linear"), Contains("argument 0"));
  config.set_activation("swish");
  CHECK_THAT(Check("std.Linear", config), Contains("activation"));
  config.set_activation("gelu");
  config.set_dtype(v1::I32);
  CHECK_THAT(Check("std.Linear", config), Contains("F32 or F64") && Contains("F16 or BF16, for CUDA"));
  config.set_dtype(v1::BF16);
  CHECK(Check("std.Linear", config) == "");
  CHECK(Run("forward", {S(v1::BF16, "[4, 8]")}, config, "std.Linear") == "BF16[4, 3]");
  config.set_precision("tf32");
  CHECK(Check("std.Linear", config) == "");
  config.set_precision("fp16");
  CHECK_THAT(Check("std.Linear", config), Contains("config.precision \"fp16\" is not one of fp32, tf32"));
  config.clear_precision();
  config.set_dtype(v1::F64);
  CHECK(Run("forward", {S(v1::F64, "[4, 8]")}, config, "std.Linear") == "F64[4, 3]");
  config.set_in_features(int64_t{1} << 31);
  config.set_out_features(int64_t{1} << 31);
  CHECK_THAT(Check("std.Linear", config), Contains("1 TiB"));
  config.set_in_features(-1);
  CHECK_THAT(Check("std.Linear", config), Contains("in_features is -1"));
}

TEST_CASE("delay and fail") {
  v1::Config config;
  CHECK_THAT(Run("run", {}, config, "std.Delay"), Contains("duration_s is missing"));
  CHECK(Run("run", {}, config, "std.Fail") == "F32[1]");
  config.set_duration_s(0.01);
  CHECK(Run("run", {}, config, "std.Delay") == "F32[1]");
  CHECK(Run("run", {S(v1::BOOL, "[?]"), S(v1::F32, "[2]")}, config, "std.Delay") == "BOOL[?]");
  config.set_dtype(v1::I64);
  config.set_shape("[3]");
  CHECK(Run("run", {}, config, "std.Delay") == "I64[3]");
  for (const double bad : {-1.0, 3600.5, std::numeric_limits<double>::quiet_NaN()}) {
    config.set_duration_s(bad);
    CHECK_THAT(Check("std.Delay", config), Contains("duration_s"));
  }
  config.set_duration_s(3600);
  CHECK(Check("std.Delay", config) == "");
  for (const double bad : {-0.1, 1.01, std::numeric_limits<double>::quiet_NaN()}) {
    config.set_gpu_part(bad);
    CHECK_THAT(Check("std.Delay", config), Contains("gpu_part"));
  }
  for (const double good : {0.0, 0.5, 1.0}) {
    config.set_gpu_part(good);
    CHECK(Check("std.Delay", config) == "");
  }
  config.add_fail_on(3);
  CHECK(Check("std.Fail", config) == "");
  config.add_fail_on(-1);
  CHECK_THAT(Check("std.Fail", config), Contains("fail_on holds -1"));
}

TEST_CASE("check: floats only, and what may fail on a device is known") {
  CHECK(Run("finite", {S(v1::F16, "[2, ?<=3]")}, {}, "std.Check") == "F16[2, ?<=3]");
  CHECK_THAT(Run("finite", {S(v1::I32, "[2]")}, {}, "std.Check"), Contains("argument 0 is I32[2]") && Contains("always finite"));
  v1::Config on_device;
  on_device.set_on_device(true);
  for (const std::string& name : ClassTable::Std().Names()) {
    for (const MethodSignature& m : ClassTable::Std().Find(name)->methods) {
      CAPTURE(name, m.name);
      const auto fails = [&m = m](const v1::Config& c) { return m.fails_on_device != nullptr && m.fails_on_device(c); };
      CHECK(fails({}) == (name == "std.Check"));
      CHECK(fails(on_device) == (name == "std.Check" || name == "std.Fail"));
      CHECK((m.fails_on_device != nullptr) == !m.device_error.empty());
    }
  }
}

TEST_CASE("ranges of the stateless methods' fields") {
  v1::Config config;
  config.set_precision("half");
  config.set_axis(-1);
  config.set_parts(5000);
  config.set_reduce("avg");
  CHECK_THAT(Check("std.Math", config),
             Contains("config.axis -1") && Contains("config.parts 5000") && Contains("\"avg\"") && Contains("\"half\""));
}

TEST_CASE("std.Mlp: what its methods take and give") {
  v1::Config c;
  c.add_widths(8);
  c.add_widths(6);
  c.add_widths(3);
  c.set_rows(4);
  c.set_microbatches(5);
  c.set_first_layer(2);
  c.set_learning_rate(0.1);
  CHECK(Check("std.Mlp", c) == "");
  CHECK_THAT(Run("forward", {S(v1::F32, "[4, 8]")}, c, "std.Mlp"), Contains("config.microbatch is missing"));
  c.set_microbatch(4);
  CHECK(Run("forward", {S(v1::F32, "[4, 8]")}, c, "std.Mlp") == "F32[4, 3]");
  CHECK_THAT(Run("forward", {S(v1::F32, "[5, 8]")}, c, "std.Mlp"), Contains("x is F32[4, 8]"));
  CHECK_THAT(Run("forward", {S(v1::F32, "[?<=4, 8]")}, c, "std.Mlp"), Contains("x is F32[4, 8]"));
  CHECK_THAT(Run("forward", {S(v1::F32, "[4, 8]"), S(v1::F32, "[4, 3]")}, c, "std.Mlp"), Contains("takes x alone"));
  CHECK(Run("input_grad", {S(v1::F32, "[4, 3]")}, c, "std.Mlp") == "F32[4, 8]");
  CHECK(Run("backward", {S(v1::F32, "[4, 3]")}, c, "std.Mlp") == "F32[4, 8]");
  CHECK_THAT(Run("backward", {S(v1::F32, "[4, 8]")}, c, "std.Mlp"), Contains("the gradient of the output is F32[4, 3]"));
  CHECK(Run("weight_grad", {S(v1::F32, "[4, 8]")}, c, "std.Mlp") == "F32[1]");
  CHECK(Run("step", {S(v1::F32, "[1]")}, c, "std.Mlp") == "F32[1]");
  CHECK(Run("weights", {}, c, "std.Mlp") == "F32[75]");
  c.clear_first_layer();
  CHECK(Run("input_grad", {S(v1::F32, "[4, 3]")}, c, "std.Mlp") == "F32[1]");
  c.set_loss("mse");
  CHECK(Run("forward", {S(v1::F32, "[4, 8]"), S(v1::F32, "[4, 3]")}, c, "std.Mlp") == "F32[1]");
  CHECK_THAT(Run("forward", {S(v1::F32, "[4, 8]")}, c, "std.Mlp"), Contains("x and the targets"));
  CHECK(Run("backward", {S(v1::F32, "[1]")}, c, "std.Mlp") == "F32[1]");
  c.clear_learning_rate();
  CHECK_THAT(Run("step", {S(v1::F32, "[1]")}, c, "std.Mlp"), Contains("config.learning_rate is missing"));
}

TEST_CASE("std.Mlp: every field that is wrong is named") {
  v1::Config c;
  CHECK_THAT(Check("std.Mlp", c), Contains("config.rows is missing") && Contains("config.widths has 0 numbers"));
  c.add_widths(8);
  c.add_widths(-1);
  c.set_rows(4);
  c.set_slots(-1);
  c.set_first_layer(-2);
  c.set_loss("hinge");
  c.set_activation("gelu");
  c.set_dtype(v1::I32);
  c.set_precision("fp8");
  CHECK_THAT(Check("std.Mlp", c), Contains("config.widths is -1") && Contains("config.slots is -1") && Contains("config.first_layer is -2") &&
                                      Contains("config.loss \"hinge\" is not mse") && Contains("gelu") && Contains("config.dtype I32") &&
                                      Contains("fp8"));
  v1::Config large;
  large.add_widths(int64_t{1} << 31);
  large.add_widths(int64_t{1} << 31);
  large.set_rows(1);
  CHECK_THAT(Check("std.Mlp", large), Contains("1 TiB"));
  v1::Config call;
  call.add_widths(2);
  call.add_widths(2);
  call.set_rows(1);
  call.set_microbatches(3);
  call.set_slots(2);
  call.set_microbatch(3);
  call.set_slot(2);
  CHECK_THAT(Check("std.Mlp", call), Contains("config.microbatch is 3; config.microbatches allows 0 to 2") && Contains("config.slots allows 0 to 1"));
  call.set_microbatch(2);
  call.clear_slot();
  CHECK_THAT(Run("forward", {S(v1::F32, "[1, 2]")}, call, "std.Mlp"), Contains("microbatch 2 in slot 2 is beyond"));
}

}  // namespace
}  // namespace weft
