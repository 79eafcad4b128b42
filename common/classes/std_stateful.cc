// Classes that make values or behave by their config: std.Source, std.Constant, std.Linear, std.Delay, std.Fail, std.Check.

#include <cmath>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/classes/infer.h"
#include "common/classes/std_messages.h"
#include "common/classes/std_signatures.h"

namespace weft {
namespace {

constexpr double kMaxDelaySeconds = 3600;

class Problems {
 public:
  template <typename... Parts>
  void Add(const Parts&... parts) {
    absl::StrAppend(&text_, text_.empty() ? "" : "; ", parts...);
  }
  absl::Status ToStatus() const { return text_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(text_); }

 private:
  std::string text_;
};

// The spec that config.dtype and config.shape give; `dtype` and `shape` stand in for those that are unset, unless
// empty.
absl::StatusOr<Spec> ConfiguredSpec(const v1::Config& config, DType dtype, const std::string& shape) {
  Problems problems;
  v1::TensorSpec proto;
  proto.set_dtype(config.dtype() != v1::DTYPE_UNSPECIFIED ? config.dtype() : dtype);
  proto.set_shape(!config.shape().empty() ? config.shape() : shape);
  if (proto.dtype() == v1::DTYPE_UNSPECIFIED) problems.Add("config.dtype is missing; set it, such as F32");
  if (proto.shape().empty()) problems.Add("config.shape is missing; set it, such as \"[4, 8]\"");
  WEFT_RETURN_IF_ERROR(problems.ToStatus());
  absl::StatusOr<Spec> spec = SpecFromProto(proto);
  if (!spec.ok()) return absl::InvalidArgumentError(absl::StrCat("config: ", std::string(spec.status().message())));
  if (!spec->shape.IsStatic()) {
    return absl::InvalidArgumentError(absl::StrCat("config.shape ", spec->shape.ToString(),
                                                   " must have fixed sizes only, since the value is made from it"));
  }
  return spec;
}

bool IsFillWord(const std::string& fill) {
  return fill == "execution" || fill == "zeros" || fill == "ones" || fill == "iota" || fill == "random";
}

// Whether every element of `dtype` can hold `v` without being cut or saturated.
bool Holds(DType dtype, double v) {
  const auto whole_within = [v](double lo, double hi) { return v == std::trunc(v) && v >= lo && v <= hi; };
  switch (dtype) {
    case v1::BOOL: return v == 0 || v == 1;
    case v1::I8: return whole_within(-128, 127);
    case v1::U8: return whole_within(0, 255);
    case v1::I16: return whole_within(-32768, 32767);
    case v1::I32: return whole_within(-2147483648.0, 2147483647.0);
    case v1::I64: return whole_within(-9007199254740992.0, 9007199254740992.0);
    case v1::F16: return std::fabs(v) <= 65504;
    case v1::BF16:
    case v1::F32: return std::fabs(v) <= std::numeric_limits<float>::max();
    default: return true;
  }
}

absl::Status CheckFill(const v1::Config& config) {
  const std::string& fill = config.fill();
  if (fill.empty() || IsFillWord(fill)) return absl::OkStatus();
  double v = 0;
  if (!absl::SimpleAtod(fill, &v) || !std::isfinite(v)) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.fill \"", fill.substr(0, 40),
                     "\" is not one of execution, zeros, ones, iota, random, or a finite number"));
  }
  if (config.dtype() != v1::DTYPE_UNSPECIFIED && !Holds(config.dtype(), v)) {
    return absl::InvalidArgumentError(absl::StrCat("config.fill ", fill.substr(0, 40),
                                                   " is not a value of config.dtype ", DTypeName(config.dtype())));
  }
  return absl::OkStatus();
}

absl::Status CheckConstant(const v1::Config& config) {
  if (config.fill() == "execution") {
    return absl::InvalidArgumentError(
        "config.fill \"execution\" changes with every execution, so std.Constant refuses it; use std.Source");
  }
  return CheckFill(config);
}

absl::StatusOr<Specs> InferMake(const v1::Config& config, const Specs&) {
  WEFT_ASSIGN_OR_RETURN(Spec spec, ConfiguredSpec(config, v1::DTYPE_UNSPECIFIED, ""));
  return Specs{spec};
}

DType LinearDType(const v1::Config& config) {
  return config.dtype() == v1::DTYPE_UNSPECIFIED ? v1::F32 : config.dtype();
}

absl::Status CheckLinear(const v1::Config& config) {
  Problems problems;
  const auto check_features = [&](const char* field, int64_t n) {
    if (n < 1 || n > (int64_t{1} << 31)) {
      problems.Add("config.", field, " is ", n == 0 ? "missing" : absl::StrCat(n), "; set it to 1 to 2^31");
    }
  };
  check_features("in_features", config.in_features());
  check_features("out_features", config.out_features());
  const DType dtype = LinearDType(config);
  // The halves are for CUDA devices: a CPU worker refuses the actor, as only the placement decides which device it is.
  if (!IsFloat(dtype)) {
    problems.Add("config.dtype ", DTypeName(dtype), " is not F32 or F64, for every device, nor F16 or BF16, for CUDA devices");
  }
  if (const absl::Status s = CheckPrecision(config); !s.ok()) problems.Add(std::string(s.message()));
  const std::string& a = config.activation();
  if (!a.empty() && a != "none" && a != "relu" && a != "gelu" && a != "tanh" && a != "sigmoid") {
    problems.Add("config.activation \"", a.substr(0, 40), "\" is not one of none, relu, gelu, tanh, sigmoid");
  }
  WEFT_RETURN_IF_ERROR(problems.ToStatus());
  const Spec weights{dtype, Shape::Of({config.out_features(), config.in_features()})};
  if (!CheckSpecSize(weights).ok()) problems.Add("config: weights ", weights.ToString(), " are larger than 1 TiB");
  return problems.ToStatus();
}

absl::StatusOr<Specs> InferLinear(const v1::Config& config, const Specs& args) {
  const Spec& x = args[0];
  const DType dtype = LinearDType(config);
  if (x.dtype != dtype || x.shape.dims.size() != 2 ||
      !Unify(x.shape.dims[1], {Dim::kFixed, config.in_features()}).has_value()) {
    return BadArg(0, x,
                  absl::StrCat("forward takes ", DTypeName(dtype), "[batch, ", config.in_features(),
                               "], as config.dtype and config.in_features say"));
  }
  Spec out{dtype, Shape{{x.shape.dims[0], {Dim::kFixed, config.out_features()}}}};
  WEFT_RETURN_IF_ERROR(CheckSpecSize(out));
  return Specs{out};
}

absl::StatusOr<Specs> InferRun(const v1::Config& config, const Specs& args) {
  if (!args.empty()) return Specs{args[0]};
  WEFT_ASSIGN_OR_RETURN(Spec spec, ConfiguredSpec(config, v1::F32, "[1]"));
  return Specs{spec};
}

absl::Status CheckDelay(const v1::Config& config) {
  Problems problems;
  // Written so that NaN is refused too.
  if (config.has_duration_s() && !(config.duration_s() >= 0 && config.duration_s() <= kMaxDelaySeconds)) {
    problems.Add("config.duration_s ", config.duration_s(), " is not within 0 to ", kMaxDelaySeconds, " seconds");
  }
  if (config.has_gpu_part() && !(config.gpu_part() >= 0 && config.gpu_part() <= 1)) {
    problems.Add("config.gpu_part ", config.gpu_part(), " is not within 0 to 1");
  }
  return problems.ToStatus();
}

absl::StatusOr<Specs> InferDelay(const v1::Config& config, const Specs& args) {
  if (!config.has_duration_s()) {
    return absl::InvalidArgumentError("config.duration_s is missing; set it, in seconds, for the actor or the node");
  }
  return InferRun(config, args);
}

absl::Status CheckFail(const v1::Config& config) {
  for (const int64_t e : config.fail_on()) {
    if (e < 0) {
      return absl::InvalidArgumentError(absl::StrCat("config.fail_on holds ", e, "; executions count from 0"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Specs> InferFinite(const v1::Config&, const Specs& args) {
  if (!IsFloat(args[0].dtype)) return BadArg(0, args[0], "finite takes F16, BF16, F32 or F64; other dtypes are always finite");
  return Specs{args[0]};
}

}  // namespace

void AddStatefulClasses(ClassTable* table) {
  table->Add({"std.Source",
              "Makes a tensor of config.dtype and config.shape for each execution.",
              {"dtype", "shape", "fill", "seed"},
              {},
              CheckFill,
              {{"make", 0, 0, std::nullopt, InferMake}}});
  table->Add({"std.Constant",
              "Makes the same tensor of config.dtype and config.shape for each execution.",
              {"dtype", "shape", "fill", "seed"},
              {},
              CheckConstant,
              {{"make", 0, 0, std::nullopt, InferMake}}});
  const std::vector<std::string> linear = {"in_features", "out_features", "activation", "seed", "dtype", "precision"};
  table->Add({"std.Linear",
              "A linear layer and its activation, with weights from config.seed.",
              linear,
              linear,
              CheckLinear,
              {{"forward", 1, 1, std::vector<std::string>{}, InferLinear}}});
  table->Add({"std.Delay",
              "Holds its lane for config.duration_s without using a core, and passes its first argument on.",
              {"duration_s", "gpu_part", "dtype", "shape"},
              {},
              CheckDelay,
              {{"run", 0, -1, std::nullopt, InferDelay}}});
  table->Add({"std.Fail",
              "Fails on the executions in config.fail_on, or on all, and otherwise passes its first argument on.",
              {"fail_on", "message", "on_device", "dtype", "shape"},
              {},
              CheckFail,
              {{"run", 0, -1, std::nullopt, InferRun, [](const v1::Config& c) { return c.on_device(); }, kFailMessage}}});
  table->Add({"std.Check",
              "Passes a value on, and fails where it is not what the method's name says.",
              {},
              {},
              nullptr,
              {{"finite", 1, 1, std::vector<std::string>{}, InferFinite, [](const v1::Config&) { return true; }, kNotFiniteMessage}}});
}

}  // namespace weft
