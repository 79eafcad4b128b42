// The CUDA actors, on the fake and on a GPU, against the CPU's.

#include <cmath>
#include <limits>

#include "common/classes/signature.h"
#include "common/tensor/linear.h"
#include "worker/actor/cuda/cuda_call_test_util.h"

namespace weft {
namespace {

const DType kNumbers[] = {v1::F16, v1::BF16, v1::F32, v1::F64, v1::I8, v1::U8, v1::I16, v1::I32, v1::I64};
const DType kFloats[] = {v1::F16, v1::BF16, v1::F32, v1::F64};

// Filled by std.Source on the CPU.
Tensor Random(DType dtype, const std::string& shape, uint64_t seed) {
  v1::Config c;
  c.set_dtype(dtype);
  c.set_shape(shape);
  c.set_fill("random");
  c.set_seed(seed);
  return (*CallStd("std.Source", "make", c, {}))[0];
}

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

WEFT_GPU_CASE("cuda actors: every class and method that the compiler knows, and no class more") {
  const ActorRegistry& registry = ActorRegistry::Std("cuda");
  for (const std::string& name : ClassTable::Std().Names()) {
    const auto actor = registry.Make(name, Complete(name), gpu.device());
    CAPTURE(name, actor.status().ToString());
    REQUIRE(actor.ok());
    for (const MethodSignature& m : ClassTable::Std().Find(name)->methods) {
      CAPTURE(m.name);
      CHECK((*actor)->Method(m.name).ok());
      // A plan with wrong counts is an error, never a crash.
      const Tensor x = MakeTensor(v1::F32, {2, 2}, {1, 2, 3, 4});
      if (m.min_args > 0) CHECK_FALSE(CallCuda(gpu, name, m.name, Complete(name), {}).ok());
      if (m.max_args >= 0) CHECK_FALSE(CallCuda(gpu, name, m.name, Complete(name), std::vector<Tensor>(m.max_args + 1, x)).ok());
      CHECK_FALSE(CallCuda(gpu, name, m.name, Complete(name), std::vector<Tensor>(m.min_args, x), {0}).ok());
    }
    CHECK(absl::IsNotFound((*actor)->Method("nonsense").status()));
    CHECK(absl::IsInternal(registry.Make(name, Complete(name), nullptr).status()));
  }
  CHECK(registry.Classes().size() == ClassTable::Std().Names().size() + 1);  // weft.Bucket is for the compiler alone
  CHECK(absl::IsInternal(registry.Make("weft.Bucket", {}, nullptr).status()));
}

// What graphs of the class would call ahead of their first transfer: all in one piece of memory, as bootstrap does it.
void Warm(TestGpu& gpu, Actor* actor, const std::string& method, const v1::Config& config, const std::vector<Tensor>& args) {
  const int m = *actor->Method(method);
  REQUIRE(actor->LoadsByShape(m));
  CudaTestContext ctx(&gpu);
  ctx.config_ = config;
  std::vector<Tensor> on_device, outs(1);
  for (const Tensor& a : args) on_device.push_back(gpu.Rubbish(a.dtype(), a.dims()));
  const absl::Status s = actor->Warm(m, ctx, on_device, &outs);
  INFO(s.ToString());
  REQUIRE(s.ok());
  REQUIRE(gpu.device()->Check(gpu.device()->api()->StreamSynchronize(gpu.stream()->native()), "waiting").ok());
}

WEFT_GPU_CASE("cuda actors: products are what loads device code by shape, and leave nothing behind when it is loaded ahead") {
  for (const auto& [cls, method] : std::vector<std::pair<std::string, std::string>>{
           {"std.Math", "add"}, {"std.Math", "scale"}, {"std.Math", "reduce"}, {"std.Math", "peek"}, {"std.Mlp", "step"}, {"std.Mlp", "weights"}}) {
    const auto actor = ActorRegistry::Std("cuda").Make(cls, Complete(cls), gpu.device());
    REQUIRE(actor.ok());
    CHECK_FALSE((*actor)->LoadsByShape(*(*actor)->Method(method)));
  }
  const Tensor x = Random(v1::F32, "[24, 24]", 1);
  Warm(gpu, ActorRegistry::Std("cuda").Make("std.Gemm", {}, gpu.device())->get(), "square", {}, {x});
  Warm(gpu, ActorRegistry::Std("cuda").Make("std.Gemm", {}, gpu.device())->get(), "matmul", {}, {x, Random(v1::F32, "[24, 5]", 2)});
  v1::Config linear;
  linear.set_in_features(24);
  linear.set_out_features(7);
  Warm(gpu, ActorRegistry::Std("cuda").Make("std.Linear", linear, gpu.device())->get(), "forward", linear, {x});

  // A step of training comes to the same weights with and without.
  v1::Config mlp;
  for (const int w : {6, 5, 4}) mlp.add_widths(w);
  mlp.set_rows(3);
  mlp.set_learning_rate(0.5);
  mlp.set_seed(9);
  mlp.set_microbatches(2);
  mlp.set_slots(2);
  std::vector<Tensor> weights;
  for (const bool warm : {false, true}) {
    const auto actor = ActorRegistry::Std("cuda").Make("std.Mlp", mlp, gpu.device());
    INFO(actor.status().ToString());
    REQUIRE(actor.ok());
    const auto config = [&](int microbatch) {
      v1::Config c = mlp;
      c.set_microbatch(microbatch);
      c.set_slot(microbatch);
      return c;
    };
    const Tensor in = Random(v1::F32, "[3, 6]", 3), gradient = Random(v1::F32, "[3, 4]", 4);
    const auto ahead = [&] {
      if (!warm) return;
      Warm(gpu, actor->get(), "forward", config(1), {in});
      Warm(gpu, actor->get(), "input_grad", config(1), {gradient});
      Warm(gpu, actor->get(), "weight_grad", config(0), {gradient});
      Warm(gpu, actor->get(), "backward", config(0), {gradient});
    };
    const auto call = [&](const std::string& method, const v1::Config& c, const std::vector<Tensor>& args) {
      CudaTestContext ctx(&gpu);
      ctx.config_ = c;
      std::vector<Tensor> on_device, outs(1);
      for (const Tensor& a : args) on_device.push_back(gpu.Upload(a));
      const absl::Status s = (*actor)->Call(*(*actor)->Method(method), ctx, on_device, &outs);
      INFO(method << ": " << s.ToString());
      REQUIRE(s.ok());
      return gpu.Download(outs[0]);
    };
    ahead();
    for (const int mb : {0, 1}) {
      call("forward", config(mb), {in});
      const Tensor back = call("input_grad", config(mb), {gradient});
      call("weight_grad", config(mb), {back});
    }
    call("step", config(0), {Random(v1::F32, "[1]", 1)});
    weights.push_back(call("weights", config(0), {}));
  }
  CHECK(BitEqual(weights[0], weights[1]));
}

WEFT_GPU_CASE("cuda actors: a bucket packs and gives out what the CPU's does") {
  for (const DType d : {v1::F32, v1::F64, v1::I8, v1::BF16}) {
    // More parts than one kernel takes arguments, of odd sizes, some empty.
    std::vector<Tensor> parts;
    v1::Config config;
    for (int i = 0; i < 150; ++i) {
      const std::string shape = i % 7 == 3 ? "[0, 2]" : absl::StrCat("[", i % 5 + 1, ", ", i % 3 + 1, "]");
      parts.push_back(Random(d, shape, i));
      (*config.mutable_extra())[absl::StrCat(i)] = shape;
    }
    CheckAsOnCpu(gpu, "weft.Bucket", "pack", {}, parts);
    const auto packed = CallStd("weft.Bucket", "pack", {}, parts);
    REQUIRE(packed.ok());
    CudaCallOptions options;
    options.outputs = static_cast<int>(parts.size());
    CheckAsOnCpu(gpu, "weft.Bucket", "unpack", config, {packed->at(0)}, options);
    const auto out = CallCuda(gpu, "weft.Bucket", "unpack", config, {packed->at(0)}, options);
    REQUIRE(out.ok());
    for (size_t i = 0; i < parts.size(); ++i) CHECK(BitEqual(out->at(i), parts[i]));
    CheckAsOnCpu(gpu, "weft.Bucket", "unpack", config, {parts[0]}, options);  // too short
  }
  CheckAsOnCpu(gpu, "weft.Bucket", "pack", {}, {Random(v1::F32, "[2]", 1), Random(v1::I32, "[2]", 1)});
  v1::Config room;
  room.set_dtype(v1::F32);
  room.set_shape("[3, 5]");
  const auto made = CallCuda(gpu, "weft.Bucket", "room", room, {});
  REQUIRE(made.ok());
  CHECK(made->at(0).dims() == Dims{3, 5});
}

WEFT_GPU_CASE("cuda actors: source and constant make what the CPU's make") {
  for (const DType d : {v1::F16, v1::BF16, v1::F32, v1::F64, v1::I8, v1::U8, v1::I16, v1::I32, v1::I64, v1::BOOL}) {
    for (const char* fill : {"", "execution", "zeros", "ones", "iota", "random", "42", "-2.5"}) {
      v1::Config c;
      c.set_dtype(d);
      c.set_shape("[7, 11]");
      c.set_fill(fill);
      c.set_seed(5);
      CudaCallOptions options;
      options.execution = 300;
      CheckAsOnCpu(gpu, "std.Source", "make", c, {}, options);
      CheckAsOnCpu(gpu, "std.Constant", "make", c, {}, options);
    }
  }
  v1::Config c;
  CheckAsOnCpu(gpu, "std.Source", "make", c, {});
  c.set_dtype(v1::F32);
  c.set_shape("[0, 2]");
  CheckAsOnCpu(gpu, "std.Source", "make", c, {});
  c.set_fill("blue");
  CheckAsOnCpu(gpu, "std.Source", "make", c, {});
}

WEFT_GPU_CASE("cuda actors: identity, add and scale") {
  for (const DType d : kNumbers) {
    const Tensor a = Random(d, "[3, 50]", 1), b = Random(d, "[3, 50]", 2), c = Random(d, "[3, 50]", 3);
    CheckAsOnCpu(gpu, "std.Identity", "identity", {}, {a});
    CheckAsOnCpu(gpu, "std.Add", "add", {}, {a});
    CheckAsOnCpu(gpu, "std.Add", "add", {}, {a, b, c, a});
    if (d != v1::F16 && d != v1::BF16) CheckAsOnCpu(gpu, "std.Math", "add", {}, std::vector<Tensor>(200, b));
    for (const double factor : {0.1, -3.0}) {
      v1::Config config;
      config.set_scale(factor);
      CheckAsOnCpu(gpu, "std.Scale", "scale", config, {a});
    }
    CheckAsOnCpu(gpu, "std.Add", "add", {}, {*Tensor::OnHost(d, {0, 3}), *Tensor::OnHost(d, {0, 3})});
  }
  const Tensor half = Random(v1::F16, "[4]", 1);
  CheckAsOnCpu(gpu, "std.Add", "add", {}, std::vector<Tensor>(64, half));
  CHECK(Mentions(CallCuda(gpu, "std.Add", "add", {}, std::vector<Tensor>(65, half)).status(), "at most 64"));
  // What does not fit is said in the CPU's words.
  CheckAsOnCpu(gpu, "std.Add", "add", {}, {half, Random(v1::F16, "[1, 4]", 1)});
  CheckAsOnCpu(gpu, "std.Add", "add", {}, {half, Random(v1::F32, "[4]", 1)});
  CheckAsOnCpu(gpu, "std.Add", "add", {}, {Random(v1::BOOL, "[4]", 1)});
  CheckAsOnCpu(gpu, "std.Scale", "scale", {}, {half});
}

WEFT_GPU_CASE("cuda actors: reduce") {
  for (const DType d : kNumbers) {
    const Tensor x = Random(d, "[5, 33, 40]", 4);
    for (const char* how : {"", "sum", "mean", "max", "min", "median"}) {
      for (const int axis : {-2, 0, 1, 2, 3}) {
        v1::Config c;
        c.set_reduce(how);
        if (axis != -2) c.set_axis(axis);
        // Over all: more elements than are summed in the CPU's order.
        if (axis == -2 && IsFloat(d) && (c.reduce() == "" || c.reduce() == "sum" || c.reduce() == "mean")) continue;
        CheckAsOnCpu(gpu, "std.Reduce", "reduce", c, {x});
      }
    }
    CheckAsOnCpu(gpu, "std.Reduce", "reduce", {}, {Random(d, "[4096]", 5)});
    CheckAsOnCpu(gpu, "std.Math", "reduce", {}, {*Tensor::OnHost(d, {0, 3})});
  }
  const auto long_sum = CallCuda(gpu, "std.Reduce", "reduce", {}, {Random(v1::F32, "[300000]", 6)});
  REQUIRE(long_sum.ok());
  CHECK((*long_sum)[0].as<float>()[0] ==
        Approx((*CallStd("std.Reduce", "reduce", {}, {Random(v1::F32, "[300000]", 6)}))[0].as<float>()[0]).epsilon(1e-6));
}

WEFT_GPU_CASE("cuda actors: split and concat") {
  const Tensor x = Random(v1::I32, "[4, 6, 5]", 7);
  for (int axis = 0; axis < 4; ++axis) {
    for (const int parts : {1, 2, 3, 5}) {
      v1::Config c;
      c.set_axis(axis);
      c.set_parts(parts);
      CheckAsOnCpu(gpu, "std.Split", "split", c, {x}, {parts});
    }
    v1::Config c;
    c.set_axis(axis);
    CheckAsOnCpu(gpu, "std.Concat", "concat", c, {x});
    CheckAsOnCpu(gpu, "std.Concat", "concat", c, {x, Random(v1::I32, "[4, 1, 5]", 8), x});
    CheckAsOnCpu(gpu, "std.Concat", "concat", c, {x, Random(v1::I32, "[4, 6, 0]", 8)});
    CheckAsOnCpu(gpu, "std.Concat", "concat", c, {Random(v1::F16, "[1, 6, 5]", 8), Random(v1::F16, "[3, 6, 5]", 9)});
  }
  v1::Config c;
  c.set_parts(2);
  CheckAsOnCpu(gpu, "std.Split", "split", c, {x}, {3});
}

WEFT_GPU_CASE("cuda actors: peek") {
  for (const DType d : {v1::F16, v1::F64, v1::I8, v1::BOOL}) {
    CheckAsOnCpu(gpu, "std.Gemm", "peek", {}, {Random(d, "[2, 3, 9]", 10)}, {3});
    CheckAsOnCpu(gpu, "std.Gemm", "peek", {}, {*Tensor::OnHost(d, {2, 0})}, {3});
    CheckAsOnCpu(gpu, "std.Math", "peek", {}, {Random(d, "[]", 11)}, {3});
  }
}

// Whole numbers, whose products are exact in every type and order.
Tensor Small(DType dtype, const Dims& dims) {
  const Tensor t = *Tensor::OnHost(dtype, dims);
  for (int64_t i = 0; i < t.elements(); ++i) SetElementFromDouble(t, i, static_cast<double>(i * 7 % 5) + 1);
  return t;
}

WEFT_GPU_CASE("cuda actors: products; halves too, which the CPU refuses") {
  for (const DType d : kNumbers) {
    const bool half = d == v1::F16 || d == v1::BF16;
    for (const char* precision : {"", "fp32", "tf32", "fp8"}) {
      v1::Config c;
      c.set_precision(precision);
      const Tensor a = Small(d, {9, 6}), b = Small(d, {6, 4}), square = Small(d, {3, 3});
      if (half || c.precision() == "fp8") {
        const auto product = CallCuda(gpu, "std.Gemm", "matmul", c, {a, b});
        CHECK(product.ok() == (c.precision() != "fp8"));
        if (!product.ok()) {
          CHECK(Mentions(product.status(), "fp8"));
          continue;
        }
        CHECK(Values((*product)[0]) == Values((*CallStd("std.Gemm", "matmul", {}, {Small(v1::F32, {9, 6}), Small(v1::F32, {6, 4})}))[0]));
        CHECK((*product)[0].dtype() == d);
        continue;
      }
      CheckAsOnCpu(gpu, "std.Gemm", "matmul", c, {a, b});
      CheckAsOnCpu(gpu, "std.Math", "square", c, {square});
    }
    CheckAsOnCpu(gpu, "std.Gemm", "square", {}, {Small(d, {3, 4})});
    CheckAsOnCpu(gpu, "std.Gemm", "matmul", {}, {Small(d, {3, 4}), Small(d, {3, 4})});
    CheckAsOnCpu(gpu, "std.Gemm", "matmul", {}, {Small(d, {3, 4}), Small(d, {4})});
    if (!half) CheckAsOnCpu(gpu, "std.Gemm", "matmul", {}, {Small(d, {2, 0}), Small(d, {0, 3})});
  }
  CheckAsOnCpu(gpu, "std.Gemm", "square", {}, {Random(v1::BOOL, "[2, 2]", 1)});
}

WEFT_GPU_CASE("cuda actors: tf32 is coarser than fp32") {
  const Tensor a = Random(v1::F32, "[32, 64]", 1), b = Random(v1::F32, "[64, 16]", 2);
  v1::Config coarse;
  coarse.set_precision("tf32");
  const auto fine = CallCuda(gpu, "std.Gemm", "matmul", {}, {a, b}), rough = CallCuda(gpu, "std.Gemm", "matmul", coarse, {a, b});
  REQUIRE(fine.ok());
  REQUIRE(rough.ok());
  double worst = 0;
  for (int64_t i = 0; i < 32 * 16; ++i) {
    worst = std::max(worst, std::fabs(ElementAsDouble((*fine)[0], i) - ElementAsDouble((*rough)[0], i)));
  }
  CHECK(worst > 1e-5);
  CHECK(worst < 0.1);
}

WEFT_GPU_CASE("cuda actors: linear, with the CPU's weights") {
  for (const DType d : kFloats) {
    for (const char* activation : {"", "none", "relu", "gelu", "tanh", "sigmoid", "swish"}) {
      v1::Config c;
      c.set_in_features(12);
      c.set_out_features(7);
      c.set_seed(3);
      c.set_activation(activation);
      c.set_dtype(d);
      CAPTURE(DTypeName(d), activation);
      const Tensor x = Random(d, "[5, 12]", 4);
      const auto got = CallCuda(gpu, "std.Linear", "forward", c, {x});
      if (c.activation() == "swish") {
        CHECK(Mentions(got.status(), "swish"));
        continue;
      }
      REQUIRE(got.ok());
      // In double, by the same weights.
      const LinearParameters p = *LinearWeights(12, 7, 3, d);
      const Activation a = *ParseActivation(activation);
      for (int64_t i = 0; i < 5 * 7; ++i) {
        double sum = ElementAsDouble(p.bias, i % 7);
        for (int64_t k = 0; k < 12; ++k) sum += ElementAsDouble(x, i / 7 * 12 + k) * ElementAsDouble(p.weights, i % 7 * 12 + k);
        const double margin = d == v1::F64 ? 1e-14 : d == v1::F32 ? 1e-6 : d == v1::F16 ? 2e-3 : 2e-2;
        CHECK(ElementAsDouble((*got)[0], i) == Approx(Activate(a, sum)).margin(margin));
      }
      if (!gpu.real() && (d == v1::F32 || d == v1::F64)) CheckAsOnCpu(gpu, "std.Linear", "forward", c, {x});
    }
  }
  v1::Config c = Complete("std.Linear");
  CheckAsOnCpu(gpu, "std.Linear", "forward", c, {*Tensor::OnHost(v1::F32, {0, 2})});
  CheckAsOnCpu(gpu, "std.Linear", "forward", c, {Random(v1::F32, "[2, 3]", 1)});
  CheckAsOnCpu(gpu, "std.Linear", "forward", c, {Random(v1::F64, "[2, 2]", 1)});
  c.set_precision("fp4");
  CHECK(Mentions(CallCuda(gpu, "std.Linear", "forward", c, {Random(v1::F32, "[2, 2]", 1)}).status(), "fp4"));
  CheckAsOnCpu(gpu, "std.Linear", "forward", {}, {});
}

// An actor that lives on, with what its calls gave, on the host.
class Trainer {
 public:
  Trainer(TestGpu* gpu, const v1::Config& config)
      : gpu_(gpu), config_(config), actor_(*ActorRegistry::Std(gpu == nullptr ? "cpu" : "cuda").Make("std.Mlp", config, gpu == nullptr ? nullptr : gpu->device())) {}

  Tensor Call(const std::string& method, int64_t microbatch, const std::vector<Tensor>& args) {
    std::vector<Tensor> outs(1), given;
    const int m = *actor_->Method(method);
    absl::Status s;
    if (gpu_ == nullptr) {
      TestContext ctx;
      ctx.config_ = config_;
      ctx.config_.set_microbatch(microbatch);
      s = actor_->Call(m, ctx, args, &outs);
    } else {
      CudaTestContext ctx(gpu_);
      ctx.config_ = config_;
      ctx.config_.set_microbatch(microbatch);
      for (const Tensor& a : args) given.push_back(gpu_->Upload(a));
      s = actor_->Call(m, ctx, given, &outs);
      if (s.ok()) outs[0] = gpu_->Download(outs[0]);
    }
    CAPTURE(method, s.ToString());
    REQUIRE(s.ok());
    return outs[0];
  }

  // The loss of two microbatches and the parameters after the step.
  std::vector<double> Step(const Tensor& x, const Tensor& t) {
    std::vector<double> all;
    for (int64_t k = 0; k < 2; ++k) {
      const Tensor loss = Call("forward", k, {x, t});
      all.push_back(ElementAsDouble(loss, 0));
      Call("weight_grad", k, {Call("input_grad", k, {loss})});
    }
    Call("step", 0, {t});
    for (const double v : Values(Call("weights", 0, {}))) all.push_back(v);
    return all;
  }

 private:
  TestGpu* const gpu_;
  const v1::Config config_;
  const std::unique_ptr<Actor> actor_;
};

WEFT_GPU_CASE("cuda actors: a network is trained as on the CPU") {
  for (const DType d : kFloats) {
    for (const char* activation : {"relu", "tanh", "sigmoid"}) {
      v1::Config c;
      for (const int64_t w : {12, 16, 8, 8}) c.add_widths(w);
      c.set_dtype(d);
      c.set_rows(6);
      c.set_microbatches(2);
      c.set_learning_rate(0.1);
      c.set_seed(2);
      c.set_activation(activation);
      c.set_loss("mse");
      CAPTURE(DTypeName(d), activation);
      Trainer cuda(&gpu, c);
      v1::Config on_cpu = c;
      on_cpu.set_dtype(d == v1::F64 ? v1::F64 : v1::F32);
      Trainer cpu(nullptr, on_cpu);
      const double margin = d == v1::F64 ? 1e-13 : d == v1::F32 ? 1e-5 : d == v1::F16 ? 6e-3 : 5e-2;
      double worst = 0;
      for (uint64_t step = 0; step < 3; ++step) {
        const Tensor x = Random(on_cpu.dtype(), "[6, 12]", 10 + step), t = Random(on_cpu.dtype(), "[6, 8]", 20 + step);
        const Tensor dx = *Tensor::OnHost(d, x.dims()), dt = *Tensor::OnHost(d, t.dims());
        for (int64_t i = 0; i < x.elements(); ++i) SetElementFromDouble(dx, i, ElementAsDouble(x, i));
        for (int64_t i = 0; i < t.elements(); ++i) SetElementFromDouble(dt, i, ElementAsDouble(t, i));
        const std::vector<double> a = cuda.Step(dx, dt), b = cpu.Step(x, t);
        REQUIRE(a.size() == b.size());
        for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::fabs(a[i] - b[i]));
      }
      CAPTURE(worst);
      CHECK(worst < margin);
    }
  }
}

WEFT_GPU_CASE("cuda actors: delay passes on, and keeps as much of the GPU busy as it is told") {
  v1::Config c;
  c.set_duration_s(0.001);
  const Tensor x = Random(v1::F32, "[100]", 1);
  CudaCallOptions options;
  options.execution = 9;
  const auto run = [&](const std::vector<Tensor>& args) {
    const auto got = CallCuda(gpu, "std.Delay", "run", c, args, options);
    CAPTURE(got.status().ToString());
    REQUIRE(got.ok());
    CHECK(BitEqual((*got)[0], args.empty() ? MakeTensor(v1::F32, {1}, {9}) : args[0]));
  };
  run({x, x});
  run({});
  if (gpu.fake_kernels() != nullptr) {
    CHECK(gpu.fake_kernels()->last_delay_ns() == 1'000'000);
    CHECK(gpu.fake_kernels()->last_delay_blocks() == 1);
    for (const auto& [part, blocks] : {std::pair<double, int>{0, 1}, {0.25, 33}, {0.5, 66}, {1, 132}}) {
      c.set_gpu_part(part);
      run({});
      CHECK(gpu.fake_kernels()->last_delay_blocks() == blocks);
    }
  }
  c.set_gpu_part(1.5);
  CHECK(Mentions(CallCuda(gpu, "std.Delay", "run", c, {}).status(), "config.gpu_part 1.5"));
  c.set_duration_s(-1);
  CHECK(Mentions(CallCuda(gpu, "std.Delay", "run", c, {}).status(), "config.duration_s -1"));
}

WEFT_GPU_CASE("cuda actors: fail at issue as on the CPU, or found by the device") {
  v1::Config c;
  c.set_message("out of paper");
  c.add_fail_on(2);
  c.add_fail_on(5);
  const Tensor x = Random(v1::F32, "[3]", 1);
  CudaCallOptions options;
  for (options.execution = 0; options.execution < 7; ++options.execution) CheckAsOnCpu(gpu, "std.Fail", "run", c, {x}, options);
  CheckAsOnCpu(gpu, "std.Fail", "run", {}, {});

  c.set_on_device(true);
  uint64_t word = 0;
  options.word = &word;
  const uint64_t raised = uint64_t{13} << 56 | uint64_t{0x12345} << 32;
  for (options.execution = 0; options.execution < 7; ++options.execution) {
    const auto got = CallCuda(gpu, "std.Fail", "run", c, {x}, options);
    REQUIRE(got.ok());
    CHECK(BitEqual((*got)[0], x));
    const bool fails = options.execution == 2 || options.execution == 5;
    CHECK(word == (fails ? raised | static_cast<uint64_t>(options.execution) : 0));
  }
  c.clear_fail_on();
  REQUIRE(CallCuda(gpu, "std.Fail", "run", c, {x}, options).ok());
  CHECK(word == (raised | 7));
}

WEFT_GPU_CASE("cuda actors: a captured call finds its own execution's number") {
  const Tensor counter = gpu.Upload(MakeTensor(v1::I64, {1}, {-1}));
  CudaTestContext ctx(&gpu);
  ctx.config_.set_on_device(true);
  for (const int e : {1, 3}) ctx.config_.add_fail_on(e);
  const auto actor = *ActorRegistry::Std("cuda").Make("std.Fail", ctx.config_, gpu.device());
  std::vector<Tensor> outs(1);
  // Memory is taken outside the capture, as a plan's is.
  class Prepared : public CudaTestContext {
   public:
    Prepared(TestGpu* gpu, const v1::Config& config, const int64_t* counter)
        : CudaTestContext(gpu), out(gpu->Rubbish(v1::F32, {1})), status(gpu->NewStatus()) {
      config_ = config;
      counter_ = counter;
    }
    absl::StatusOr<Tensor> AllocateOutput(int, DType, const Dims&) override { return out; }
    DeviceStatus* device_status() const override { return StatusIn(status); }
    const Tensor out, status;
  };
  Prepared call(&gpu, ctx.config_, counter.as<int64_t>());
  CudaGraphHandle graph = nullptr;
  CudaGraphExecHandle exec = nullptr;
  REQUIRE(gpu.api()->BeginCapture(gpu.native()) == kCudaSuccess);
  REQUIRE(gpu.kernels()->Advance(counter.as<int64_t>(), gpu.native()) == kCudaSuccess);
  REQUIRE(gpu.kernels()->CombineStatus(nullptr, 0, StatusIn(call.status), gpu.native()) == kCudaSuccess);
  const absl::Status called = actor->Call(0, call, {}, &outs);
  REQUIRE(gpu.api()->EndCapture(gpu.native(), &graph) == kCudaSuccess);
  CAPTURE(called.ToString());
  REQUIRE(called.ok());
  REQUIRE(gpu.api()->GraphInstantiate(graph, &exec) == kCudaSuccess);
  for (uint64_t k = 0; k < 5; ++k) {
    REQUIRE(gpu.api()->GraphLaunch(exec, gpu.native()) == kCudaSuccess);
    CHECK(gpu.Download(call.out).as<float>()[0] == k);
    CHECK(gpu.StatusWord(call.status) == (k == 1 || k == 3 ? uint64_t{13} << 56 | uint64_t{0x12345} << 32 | k : 0));
  }
  REQUIRE(gpu.api()->GraphExecDestroy(exec) == kCudaSuccess);
  REQUIRE(gpu.api()->GraphDestroy(graph) == kCudaSuccess);
  for (int e = 10; e < 80; ++e) call.config_.add_fail_on(e);
  CHECK(Mentions(actor->Call(0, call, {}, &outs), "at most 64"));
}

WEFT_GPU_CASE("cuda actors: check finds on the device what is not finite") {
  for (const DType d : kFloats) {
    uint64_t word = 1;
    CudaCallOptions options;
    options.execution = 6;
    options.word = &word;
    const Tensor good = Random(d, "[40, 5]", 1);
    const auto same = CallCuda(gpu, "std.Check", "finite", {}, {good}, options);
    REQUIRE(same.ok());
    CHECK(BitEqual((*same)[0], good));
    CHECK(word == 0);
    for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      SetElementFromDouble(good, 199, bad);
      const auto passed = CallCuda(gpu, "std.Check", "finite", {}, {good}, options);
      REQUIRE(passed.ok());
      CHECK(BitEqual((*passed)[0], good));
      CHECK(word == (uint64_t{3} << 56 | uint64_t{0x12345} << 32 | 6));
    }
    CheckAsOnCpu(gpu, "std.Check", "finite", {}, {*Tensor::OnHost(d, {0})});
  }
  CheckAsOnCpu(gpu, "std.Check", "finite", {}, {Random(v1::I32, "[2]", 1)});
}

WEFT_GPU_CASE("cuda actors: without a place for the device's errors they are refused, not lost") {
  const std::tuple<const char*, const char*, const char*> calls[] = {{"std.Check", "finite", ""}, {"std.Fail", "run", "on_device: true"}};
  for (const auto& [cls, method, config] : calls) {
    CudaTestContext ctx(&gpu);
    ctx.with_status_ = false;
    ctx.config_.set_on_device(*config != '\0');
    const auto actor = *ActorRegistry::Std("cuda").Make(cls, ctx.config_, gpu.device());
    std::vector<Tensor> outs(1);
    const absl::Status s = actor->Call(*actor->Method(method), ctx, {gpu.Upload(MakeTensor(v1::F32, {1}, {1}))}, &outs);
    CHECK(absl::IsFailedPrecondition(s));
    CHECK(Mentions(s, "status words"));
  }
}

TEST_CASE("cuda actors: what cannot be launched or allocated is an error that says what was tried") {
  const auto gpu = TestGpu::Fake();
  CudaTestContext ctx(gpu.get());
  ctx.config_.set_duration_s(1);
  auto* const fake = dynamic_cast<FakeCuda*>(gpu->api());
  REQUIRE(fake != nullptr);
  fake->FailCall("Malloc", 1, kCudaOutOfMemory);
  v1::Config linear = Complete("std.Linear");
  const absl::Status no_room = ActorRegistry::Std("cuda").Make("std.Linear", linear, gpu->device()).status();
  CHECK(absl::IsResourceExhausted(no_room));
  CHECK(Mentions(no_room, "weights F32[3, 2]"));
  const auto add = *ActorRegistry::Std("cuda").Make("std.Add", {}, gpu->device());
  const Tensor x = gpu->Upload(MakeTensor(v1::F32, {1}, {1}));
  fake->FailCall("Enqueue", 1, kCudaLaunchFailure);
  std::vector<Tensor> outs(1);
  const absl::Status s = add->Call(0, ctx, {x, x}, &outs);
  CHECK(absl::IsInternal(s));
  CHECK(Mentions(s, "launching add"));
  CHECK_FALSE(gpu->device()->Health().ok());  // a sticky code was seen
}

}  // namespace
}  // namespace weft
