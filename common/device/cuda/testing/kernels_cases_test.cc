// The contract of KernelsApi, on the fake and on a GPU. Results are held against the host's arithmetic (common/tensor), bit for bit where the
// order of operations is the same.

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/device/cuda/fake/fake_math.h"
#include "common/device/cuda/testing/gpu_case.h"
#include "common/tensor/arith.h"
#include "common/tensor/combine.h"
#include "common/tensor/fill.h"
#include "common/tensor/random.h"

namespace weft {
namespace {

const DType kAll[] = {v1::F16, v1::BF16, v1::F32, v1::F64, v1::I8, v1::U8, v1::I16, v1::I32, v1::I64, v1::BOOL};
const DType kNumbers[] = {v1::F16, v1::BF16, v1::F32, v1::F64, v1::I8, v1::U8, v1::I16, v1::I32, v1::I64};
const DType kFloats[] = {v1::F16, v1::BF16, v1::F32, v1::F64};
const DType kIntegers[] = {v1::I8, v1::U8, v1::I16, v1::I32, v1::I64};
const ExecutionNumber kNone = {nullptr, 0};

// Elements of any bits but infinity and NaN, of the whole range of exponents.
Tensor AnyFinite(DType dtype, int64_t n, uint64_t seed) {
  const Tensor t = *Tensor::OnHost(dtype, {n});
  for (int64_t i = 0; i < n; ++i) {
    uint64_t bits = CounterBits(seed, 0, static_cast<uint64_t>(i));
    if (dtype == v1::F16 && (bits & 0x7c00) == 0x7c00) bits ^= 0x400;
    if (dtype == v1::BF16 && (bits & 0x7f80) == 0x7f80) bits ^= 0x80;
    if (dtype == v1::F32 && (bits & 0x7f800000) == 0x7f800000) bits ^= 0x800000;
    if (dtype == v1::F64 && (bits & 0x7ff0000000000000) == 0x7ff0000000000000) bits ^= 0x10000000000000;
    std::memcpy(t.as<char>() + static_cast<size_t>(i) * SizeOf(dtype), &bits, SizeOf(dtype));
  }
  return t;
}

// Whole numbers from -range to range; from 0 for U8.
Tensor Whole(DType dtype, const Dims& dims, int range, uint64_t seed) {
  const Tensor t = *Tensor::OnHost(dtype, dims);
  for (int64_t i = 0; i < t.elements(); ++i) {
    const int64_t v = static_cast<int64_t>(CounterBits(seed, 1, static_cast<uint64_t>(i)) % static_cast<uint64_t>(2 * range + 1)) - range;
    SetElementFromDouble(t, i, static_cast<double>(dtype == v1::U8 ? std::abs(v) : v));
  }
  return t;
}

// Uniform in [-1, 1).
Tensor Uniform(DType dtype, const Dims& dims, uint64_t seed) {
  const Tensor t = *Tensor::OnHost(dtype, dims);
  for (int64_t i = 0; i < t.elements(); ++i) SetElementFromDouble(t, i, 2 * UniformDouble(CounterBits(seed, 2, static_cast<uint64_t>(i))) - 1);
  return t;
}

// Equal bits; a NaN equals any NaN, since which one an operation gives differs between processors.
bool Same(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.dims() != b.dims()) return false;
  if (BitEqual(a, b)) return true;
  const size_t size = SizeOf(a.dtype());
  for (int64_t i = 0; i < a.elements(); ++i) {
    if (std::memcmp(a.as<char>() + i * size, b.as<char>() + i * size, size) == 0) continue;
    if (std::isnan(ElementAsDouble(a, i)) && std::isnan(ElementAsDouble(b, i))) continue;
    UNSCOPED_INFO(a.ToString() << " at " << i << ": " << ElementAsDouble(a, i) << " and " << ElementAsDouble(b, i));
    return false;
  }
  return true;
}

WEFT_KERNELS_CASE("kernels: fill makes what the host's FillTensor makes") {
  KernelsApi& k = *gpu.kernels();
  const Fill fills[] = {{Fill::kExecution, 0},   {Fill::kIota, 0},        {Fill::kRandom, 0},     {Fill::kNumber, 0},      {Fill::kNumber, 1},
                        {Fill::kNumber, 0.1},    {Fill::kNumber, -3.7},   {Fill::kNumber, 254.5}, {Fill::kNumber, 65519},  {Fill::kNumber, 65520},
                        {Fill::kNumber, -32769}, {Fill::kNumber, 6.1e-5}, {Fill::kNumber, 2e-8},  {Fill::kNumber, 1e300},  {Fill::kNumber, -1e300},
                        {Fill::kNumber, 3e9},    {Fill::kNumber, -3e9},   {Fill::kNumber, 127.9}, {Fill::kNumber, -128.9}, {Fill::kNumber, 1e-45}};
  for (const DType d : kAll) {
    for (const Fill& fill : fills) {
      for (const auto& [n, shift] : {std::pair<int64_t, int64_t>{1, 0}, {4099, 0}, {1003, 1}}) {
        CAPTURE(DTypeName(d), static_cast<int>(fill.kind), fill.number, n, shift);
        const int64_t execution = (int64_t{1} << 33) + 70001;
        const Tensor want = *Tensor::OnHost(d, {n});
        FillTensor(fill, 77, execution, want);
        const Tensor got = gpu.Rubbish(d, {n}, shift);
        REQUIRE(k.Fill(static_cast<DeviceFill>(fill.kind), fill.number, 77, {nullptr, execution}, d, got.data(), n, gpu.native()) == kCudaSuccess);
        CHECK(Same(gpu.Download(got), want));
      }
    }
  }
  CHECK(k.Fill(DeviceFill::kNumber, 1, 0, kNone, v1::F32, nullptr, 0, gpu.native()) == kCudaSuccess);
  CHECK(k.Fill(DeviceFill::kNumber, 1, 0, kNone, 99, nullptr, 1, gpu.native()) == kCudaInvalidValue);
}

WEFT_KERNELS_CASE("kernels: an execution's number comes from the counter where there is one, when the kernel runs") {
  KernelsApi& k = *gpu.kernels();
  const Tensor start = *Tensor::OnHost(v1::I64, {1});
  start.as<int64_t>()[0] = 41;
  const Tensor counter = gpu.Upload(start);
  const ExecutionNumber number = {counter.as<int64_t>(), 7};
  const Tensor x = gpu.Rubbish(v1::F32, {5}), random = gpu.Rubbish(v1::F64, {100});
  REQUIRE(k.Advance(counter.as<int64_t>(), gpu.native()) == kCudaSuccess);
  REQUIRE(k.Fill(DeviceFill::kExecution, 0, 0, number, v1::F32, x.data(), 5, gpu.native()) == kCudaSuccess);
  REQUIRE(k.Fill(DeviceFill::kRandom, 0, 3, number, v1::F64, random.data(), 100, gpu.native()) == kCudaSuccess);
  CHECK(gpu.Download(x).as<float>()[4] == 42);
  const Tensor want = *Tensor::OnHost(v1::F64, {100});
  FillTensor({Fill::kRandom, 0}, 3, 42, want);
  CHECK(Same(gpu.Download(random), want));
}

WEFT_KERNELS_CASE("kernels: add sums in the order of its arguments, as the host does") {
  KernelsApi& k = *gpu.kernels();
  for (const DType d : kNumbers) {
    for (const int count : {1, 2, 3, 64}) {
      for (const auto& [n, shift] : {std::pair<int64_t, int64_t>{2053, 0}, {517, 3}}) {
        CAPTURE(DTypeName(d), count, n, shift);
        std::vector<Tensor> host, device;
        std::vector<const void*> from, on_device;
        for (int a = 0; a < count; ++a) {
          host.push_back(AnyFinite(d, n, static_cast<uint64_t>(100 * a) + d));
          device.push_back(gpu.Upload(host.back(), a == 0 ? shift : 0));
          from.push_back(host.back().data());
          on_device.push_back(device.back().data());
        }
        const Tensor want = *Tensor::OnHost(d, {n});
        REQUIRE(Combine(d, v1::SUM, from, want.data(), n).ok());
        const Tensor got = gpu.Rubbish(d, {n});
        REQUIRE(k.Add(d, on_device.data(), count, got.data(), n, gpu.native()) == kCudaSuccess);
        CHECK(Same(gpu.Download(got), want));
      }
    }
  }
}

WEFT_KERNELS_CASE("kernels: conversions of halves are the host's for every one of their bit patterns") {
  KernelsApi& k = *gpu.kernels();
  for (const DType d : {v1::F16, v1::BF16}) {
    const Tensor all = *Tensor::OnHost(d, {65536});
    for (int i = 0; i < 65536; ++i) all.as<uint16_t>()[i] = static_cast<uint16_t>(i);
    const Tensor x = gpu.Upload(all), y = gpu.Rubbish(d, {65536});
    // Halved and thirded: the results fall between two values, on the middle of two, and below the least.
    for (const double factor : {1.0, 0.5, 1.0 / 3, 3.0, 4096.0}) {
      CAPTURE(DTypeName(d), factor);
      const Tensor want = *Tensor::OnHost(d, {65536});
      for (int i = 0; i < 65536; ++i) {
        const uint16_t bits = static_cast<uint16_t>(i);
        const float v = (d == v1::F16 ? HalfToFloat(bits) : BFloat16ToFloat(bits)) * static_cast<float>(factor);
        want.as<uint16_t>()[i] = d == v1::F16 ? FloatToHalf(v) : FloatToBFloat16(v);
      }
      REQUIRE(k.Scale(d, x.data(), factor, y.data(), 65536, gpu.native()) == kCudaSuccess);
      CHECK(Same(gpu.Download(y), want));
    }
  }
}

WEFT_KERNELS_CASE("kernels: scale multiplies in the type of its elements") {
  KernelsApi& k = *gpu.kernels();
  for (const DType d : kNumbers) {
    for (const double factor : {0.0, 1.0, -3.0, 0.1, 1e-20, 9007199254740991.0}) {
      if (!IsFloat(d) && factor != std::trunc(factor)) continue;
      for (const int64_t shift : {0, 1}) {
        CAPTURE(DTypeName(d), factor, shift);
        const Tensor x = AnyFinite(d, 1501, d), want = *Tensor::OnHost(d, {1501});
        REQUIRE(ForElementType(d, [&](auto e) {
                  using E = decltype(e);
                  for (int i = 0; i < 1501; ++i) {
                    want.as<typename E::Storage>()[i] =
                        E::Store(Times(E::Load(x.as<typename E::Storage>()[i]), static_cast<typename E::Compute>(factor)));
                  }
                  return absl::OkStatus();
                }).ok());
        const Tensor got = gpu.Upload(x, shift);
        REQUIRE(k.Scale(d, got.data(), factor, got.data(), 1501, gpu.native()) == kCudaSuccess);  // in place
        CHECK(Same(gpu.Download(got), want));
      }
    }
  }
}

struct Shape3 {
  int64_t outer, size, inner;
};

WEFT_KERNELS_CASE("kernels: reduce is right in whole numbers, whose order makes no difference") {
  KernelsApi& k = *gpu.kernels();
  for (const DType d : kNumbers) {
    for (const Shape3 s : {Shape3{1, 1, 1}, {3, 5, 7}, {33, 70, 1}, {1, 4096, 1}, {2, 4097, 3}, {1, 5000, 33}, {40, 100, 1}, {3, 9001, 1}}) {
      const Tensor x = Whole(d, {s.outer, s.size, s.inner}, 3, d);
      const Tensor on_device = gpu.Upload(x);
      for (const DeviceReduce how : {DeviceReduce::kSum, DeviceReduce::kMax, DeviceReduce::kMin, DeviceReduce::kMean}) {
        if (how == DeviceReduce::kMean && !IsFloat(d)) continue;
        CAPTURE(DTypeName(d), s.outer, s.size, s.inner, static_cast<int>(how));
        const Tensor want = *Tensor::OnHost(d, {s.outer, s.inner});
        for (int64_t i = 0; i < s.outer * s.inner; ++i) {
          double sum = 0, most = -1e9, least = 1e9;
          for (int64_t p = 0; p < s.size; ++p) {
            const double v = ElementAsDouble(x, (i / s.inner * s.size + p) * s.inner + i % s.inner);
            sum += v;
            most = std::max(most, v);
            least = std::min(least, v);
          }
          if (how == DeviceReduce::kMean) sum /= static_cast<double>(s.size);
          if (how == DeviceReduce::kMax) sum = most;
          if (how == DeviceReduce::kMin) sum = least;
          if (IsFloat(d)) {
            SetElementFromDouble(want, i, sum);
          } else {
            const int64_t whole = static_cast<int64_t>(sum);  // wraps around where it is stored
            std::memcpy(want.as<char>() + static_cast<size_t>(i) * SizeOf(d), &whole, SizeOf(d));
          }
        }
        const Tensor got = gpu.Rubbish(d, {s.outer, s.inner});
        REQUIRE(k.Reduce(how, d, on_device.data(), s.outer, s.size, s.inner, got.data(), gpu.native()) == kCudaSuccess);
        CHECK(Same(gpu.Download(got), want));
      }
    }
  }
  CHECK(k.Reduce(DeviceReduce::kMean, v1::I32, nullptr, 1, 1, 1, nullptr, gpu.native()) == kCudaInvalidValue);
}

WEFT_KERNELS_CASE("kernels: reduce of floats keeps the order of reduce_order.h") {
  KernelsApi& k = *gpu.kernels();
  for (const DType d : kFloats) {
    for (const Shape3 s : {Shape3{1, 4096, 1}, {70, 333, 1}, {5, 77, 40}, {1, 1 << 20, 1}, {3, 50'000, 1}, {2, 9'000, 3}, {1, 20'000, 65}}) {
      const Tensor x = Uniform(d, {s.outer, s.size, s.inner}, 5);
      const Tensor on_device = gpu.Upload(x), got = gpu.Rubbish(d, {s.outer, s.inner});
      for (const DeviceReduce how : {DeviceReduce::kSum, DeviceReduce::kMean}) {
        CAPTURE(DTypeName(d), s.outer, s.size, s.inner, static_cast<int>(how));
        const Tensor want = *Tensor::OnHost(d, {s.outer, s.inner});
        REQUIRE(FakeReduce(how, d, x.data(), s.outer, s.size, s.inner, want.data()).ok());
        REQUIRE(k.Reduce(how, d, on_device.data(), s.outer, s.size, s.inner, got.data(), gpu.native()) == kCudaSuccess);
        CHECK(Same(gpu.Download(got), want));
      }
    }
  }
}

WEFT_KERNELS_CASE("kernels: reduce in order adds one element after the other") {
  KernelsApi& k = *gpu.kernels();
  // In any other order the small ones would count.
  const Tensor x = *Tensor::OnHost(v1::F64, {1, 4096});
  for (int i = 0; i < 4096; ++i) x.as<double>()[i] = i == 0 ? 1e16 : i == 4095 ? -1e16 : 0.5;
  const Tensor on_device = gpu.Upload(x), got = gpu.Rubbish(v1::F64, {1});
  REQUIRE(k.Reduce(DeviceReduce::kSum, v1::F64, on_device.data(), 1, 4096, 1, got.data(), gpu.native()) == kCudaSuccess);
  CHECK(gpu.Download(got).as<double>()[0] == 0);
}

WEFT_KERNELS_CASE("kernels: reduce of nothing, and with NaN") {
  KernelsApi& k = *gpu.kernels();
  const Tensor got = gpu.Rubbish(v1::F32, {3});
  REQUIRE(k.Reduce(DeviceReduce::kSum, v1::F32, got.data(), 1, 0, 3, got.data(), gpu.native()) == kCudaSuccess);
  for (int i = 0; i < 3; ++i) CHECK(gpu.Download(got).as<float>()[i] == 0);
  REQUIRE(k.Reduce(DeviceReduce::kSum, v1::F32, nullptr, 0, 5, 3, nullptr, gpu.native()) == kCudaSuccess);
  for (const int64_t size : {10, 10'000}) {
    for (const int64_t at : {int64_t{0}, size / 2, size - 1}) {
      const Tensor x = Whole(v1::F32, {size}, 3, 1);
      x.as<float>()[at] = std::numeric_limits<float>::quiet_NaN();
      const Tensor on_device = gpu.Upload(x);
      for (const DeviceReduce how : {DeviceReduce::kMax, DeviceReduce::kMin, DeviceReduce::kSum}) {
        REQUIRE(k.Reduce(how, v1::F32, on_device.data(), 1, size, 1, got.data(), gpu.native()) == kCudaSuccess);
        CHECK(std::isnan(gpu.Download(got).as<float>()[0]));
      }
    }
  }
}

WEFT_KERNELS_CASE("kernels: products of whole numbers are exact in every type, whatever the order") {
  KernelsApi& k = *gpu.kernels();
  for (const DType d : kNumbers) {
    for (const auto& [m, n, inner] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {65, 33, 130}, {4, 100, 32}, {128, 1, 64}, {2, 3, 0}}) {
      for (const DevicePrecision precision : {DevicePrecision::kFp32, DevicePrecision::kTf32}) {
        CAPTURE(DTypeName(d), m, n, inner);
        const Tensor a = Whole(d, {m, inner}, 1, 1), b = Whole(d, {inner, n}, 2, 2), want = *Tensor::OnHost(d, {m, n});
        for (int64_t i = 0; i < m * n; ++i) {
          double sum = 0;
          for (int64_t p = 0; p < inner; ++p) sum += ElementAsDouble(a, i / n * inner + p) * ElementAsDouble(b, p * n + i % n);
          const int64_t whole = static_cast<int64_t>(sum);
          if (IsFloat(d)) {
            SetElementFromDouble(want, i, sum);
          } else {
            std::memcpy(want.as<char>() + static_cast<size_t>(i) * SizeOf(d), &whole, SizeOf(d));
          }
        }
        const Tensor c = gpu.Rubbish(d, {m, n});
        REQUIRE(k.Matmul(d, precision, gpu.Upload(a).data(), gpu.Upload(b).data(), c.data(), m, n, inner, gpu.native()) == kCudaSuccess);
        Tensor got = gpu.Download(c);
        // A zero may have either sign.
        if (IsFloat(d)) {
          for (int64_t i = 0; i < m * n; ++i) {
            if (ElementAsDouble(got, i) == 0) SetElementFromDouble(got, i, ElementAsDouble(want, i) == 0 ? ElementAsDouble(want, i) : 0);
          }
        }
        CHECK(Same(got, want));
      }
    }
  }
  CHECK(k.Matmul(v1::F32, DevicePrecision::kFp32, nullptr, nullptr, nullptr, 0, 3, 2, gpu.native()) == kCudaSuccess);
}

WEFT_KERNELS_CASE("kernels: integer products wrap around") {
  KernelsApi& k = *gpu.kernels();
  for (const DType d : kIntegers) {
    CAPTURE(DTypeName(d));
    const Tensor a = AnyFinite(d, 40 * 37, 1), b = AnyFinite(d, 37 * 35, 2), want = *Tensor::OnHost(d, {40, 35});
    REQUIRE(FakeMatmul(d, DevicePrecision::kFp32, a.data(), b.data(), want.data(), 40, 35, 37).ok());
    const Tensor c = gpu.Rubbish(d, {40, 35});
    REQUIRE(k.Matmul(d, DevicePrecision::kFp32, gpu.Upload(a).data(), gpu.Upload(b).data(), c.data(), 40, 35, 37, gpu.native()) == kCudaSuccess);
    CHECK(Same(gpu.Download(c), want));
  }
}

// The largest distance of an element from the product made in double.
double WorstOf(const Tensor& a, const Tensor& b, const Tensor& c, int64_t m, int64_t n, int64_t k) {
  double worst = 0;
  for (int64_t i = 0; i < m * n; ++i) {
    double sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += ElementAsDouble(a, i / n * k + p) * ElementAsDouble(b, p * n + i % n);
    worst = std::max(worst, std::fabs(sum - ElementAsDouble(c, i)));
  }
  return worst;
}

WEFT_KERNELS_CASE("kernels: floats are multiplied as exactly as their type and precision say") {
  KernelsApi& k = *gpu.kernels();
  constexpr int64_t m = 64, n = 48, inner = 256;
  for (const DType d : kFloats) {
    const Tensor a = Uniform(d, {m, inner}, 1), b = Uniform(d, {inner, n}, 2);
    const Tensor on_a = gpu.Upload(a), on_b = gpu.Upload(b), c = gpu.Rubbish(d, {m, n});
    REQUIRE(k.Matmul(d, DevicePrecision::kFp32, on_a.data(), on_b.data(), c.data(), m, n, inner, gpu.native()) == kCudaSuccess);
    const double worst = WorstOf(a, b, gpu.Download(c), m, n, inner);
    CAPTURE(DTypeName(d), worst);
    // Results are below 32: half a unit in the last place of the type, and the sum's own roundings.
    CHECK(worst < (d == v1::F64 ? 1e-13 : d == v1::F32 ? 2e-5 : d == v1::F16 ? 0.0081 : 0.0651));
    if (d != v1::F32) continue;
    REQUIRE(k.Matmul(d, DevicePrecision::kTf32, on_a.data(), on_b.data(), c.data(), m, n, inner, gpu.native()) == kCudaSuccess);
    const double coarse = WorstOf(a, b, gpu.Download(c), m, n, inner);
    CHECK(coarse > 5 * worst);
    CHECK(coarse < 0.03);
  }
}

WEFT_KERNELS_CASE("kernels: gemm takes factors as they lie, and adds to what is there when told to") {
  KernelsApi& k = *gpu.kernels();
  constexpr int64_t m = 24, n = 20, inner = 40;
  for (const DType d : kFloats) {
    for (const int how : {0, 1, 2, 3, 4, 7}) {
      const bool ta = (how & 1) != 0, tb = (how & 2) != 0, accumulate = (how & 4) != 0;
      CAPTURE(DTypeName(d), ta, tb, accumulate);
      // Whole numbers below 8: exact in every type and order.
      const Tensor a = Whole(d, {m * inner}, 1, 1), b = Whole(d, {inner * n}, 2, 2), before = Whole(d, {m, n}, 5, 3);
      const Tensor c = accumulate ? gpu.Upload(before) : gpu.Rubbish(d, {m, n});
      REQUIRE(k.Gemm(d, DevicePrecision::kFp32, gpu.Upload(a).data(), ta, gpu.Upload(b).data(), tb, c.data(), m, n, inner, accumulate, gpu.native()) ==
              kCudaSuccess);
      const Tensor got = gpu.Download(c);
      int wrong = 0;
      for (int64_t i = 0; i < m * n; ++i) {
        double sum = accumulate ? ElementAsDouble(before, i) : 0;
        for (int64_t p = 0; p < inner; ++p) {
          sum += ElementAsDouble(a, ta ? p * m + i / n : i / n * inner + p) * ElementAsDouble(b, tb ? i % n * inner + p : p * n + i % n);
        }
        wrong += ElementAsDouble(got, i) != sum;
      }
      CHECK(wrong == 0);
    }
  }
  CHECK(k.Gemm(v1::I32, DevicePrecision::kFp32, nullptr, false, nullptr, false, nullptr, 1, 1, 1, false, gpu.native()) == kCudaInvalidValue);
  CHECK(k.Gemm(v1::F32, DevicePrecision::kFp32, nullptr, false, nullptr, false, nullptr, 0, 1, 1, false, gpu.native()) == kCudaSuccess);
}

WEFT_KERNELS_CASE("kernels: the gradient of an activation, by its result; also in place") {
  KernelsApi& k = *gpu.kernels();
  for (const DType d : kFloats) {
    const Tensor y = Uniform(d, {1003}, 1), dy = Uniform(d, {1003}, 2);
    for (const DeviceActivation a : {DeviceActivation::kNone, DeviceActivation::kRelu, DeviceActivation::kTanh, DeviceActivation::kSigmoid}) {
      CAPTURE(DTypeName(d), static_cast<int>(a));
      const Tensor on_y = gpu.Upload(y), on_dy = gpu.Upload(dy), dx = gpu.Rubbish(d, {1003});
      REQUIRE(k.ActivationGradient(d, a, on_y.data(), on_dy.data(), dx.data(), 1003, gpu.native()) == kCudaSuccess);
      const Tensor got = gpu.Download(dx);
      double worst = 0;
      for (int64_t i = 0; i < 1003; ++i) {
        const double v = ElementAsDouble(y, i), g = ElementAsDouble(dy, i);
        const double slope = a == DeviceActivation::kRelu ? (v > 0 ? 1 : 0) : a == DeviceActivation::kTanh ? 1 - v * v : a == DeviceActivation::kSigmoid ? v * (1 - v) : 1;
        worst = std::max(worst, std::fabs(g * slope - ElementAsDouble(got, i)));
      }
      CAPTURE(worst);
      CHECK(worst < (d == v1::F64 ? 1e-15 : d == v1::F32 ? 1e-6 : d == v1::F16 ? 2e-3 : 1e-2));
      for (const Tensor& to : {on_y, on_dy}) {
        const Tensor other = gpu.Upload(to.data() == on_y.data() ? dy : y);
        const bool to_y = to.data() == on_y.data();
        REQUIRE(k.ActivationGradient(d, a, to_y ? to.data() : other.data(), to_y ? other.data() : to.data(), to.data(), 1003, gpu.native()) == kCudaSuccess);
        CHECK(Same(gpu.Download(to), got));
      }
    }
  }
  CHECK(k.ActivationGradient(v1::F32, DeviceActivation::kGelu, nullptr, nullptr, nullptr, 1, gpu.native()) == kCudaInvalidValue);
  CHECK(k.ActivationGradient(v1::I32, DeviceActivation::kRelu, nullptr, nullptr, nullptr, 1, gpu.native()) == kCudaInvalidValue);
  CHECK(k.ActivationGradient(v1::F32, DeviceActivation::kRelu, nullptr, nullptr, nullptr, 0, gpu.native()) == kCudaSuccess);
}

WEFT_KERNELS_CASE("kernels: linear is activation(x W^T + bias)") {
  KernelsApi& k = *gpu.kernels();
  constexpr int64_t batch = 7, in = 33, out = 20;
  for (const DType d : kFloats) {
    const Tensor x = Uniform(d, {batch, in}, 1), w = Uniform(d, {out, in}, 2), bias = Uniform(d, {out}, 3);
    const Tensor on_x = gpu.Upload(x), on_w = gpu.Upload(w), on_bias = gpu.Upload(bias), y = gpu.Rubbish(d, {batch, out});
    for (const DeviceActivation a : {DeviceActivation::kNone, DeviceActivation::kRelu, DeviceActivation::kGelu, DeviceActivation::kTanh,
                                     DeviceActivation::kSigmoid}) {
      CAPTURE(DTypeName(d), static_cast<int>(a));
      REQUIRE(k.Linear(d, DevicePrecision::kFp32, a, on_x.data(), on_w.data(), on_bias.data(), y.data(), batch, in, out, gpu.native()) ==
              kCudaSuccess);
      const Tensor got = gpu.Download(y);
      double worst = 0;
      for (int64_t i = 0; i < batch * out; ++i) {
        double v = ElementAsDouble(bias, i % out);
        for (int64_t p = 0; p < in; ++p) v += ElementAsDouble(x, i / out * in + p) * ElementAsDouble(w, i % out * in + p);
        switch (a) {
          case DeviceActivation::kRelu: v = std::max(v, 0.0); break;
          case DeviceActivation::kGelu: v = v * 0.5 * (1 + std::erf(v / std::sqrt(2.0))); break;
          case DeviceActivation::kTanh: v = std::tanh(v); break;
          case DeviceActivation::kSigmoid: v = 1 / (1 + std::exp(-v)); break;
          default: break;
        }
        worst = std::max(worst, std::fabs(v - ElementAsDouble(got, i)));
      }
      CAPTURE(worst);
      CHECK(worst < (d == v1::F64 ? 1e-14 : d == v1::F32 ? 5e-6 : d == v1::F16 ? 0.006 : 0.05));
    }
  }
  CHECK(k.Linear(v1::F32, DevicePrecision::kFp32, DeviceActivation::kNone, nullptr, nullptr, nullptr, nullptr, 0, 2, 2, gpu.native()) ==
        kCudaSuccess);
}

WEFT_GPU_CASE("kernels: a product captured into a graph gives the bits of a launched one, on every stream") {
  KernelsApi& k = *gpu.kernels();
  constexpr int64_t n = 96;
  const Tensor a = gpu.Upload(Uniform(v1::F32, {n, n}, 1)), b = gpu.Upload(Uniform(v1::F32, {n, n}, 2));
  const Tensor launched = gpu.Rubbish(v1::F32, {n, n}), captured = gpu.Rubbish(v1::F32, {n, n}), elsewhere = gpu.Rubbish(v1::F32, {n, n});
  const auto matmul = [&](const Tensor& c, void* stream) {
    return k.Matmul(v1::F32, DevicePrecision::kFp32, a.data(), b.data(), c.data(), n, n, n, stream);
  };
  REQUIRE(matmul(launched, gpu.native()) == kCudaSuccess);
  const Tensor want = gpu.Download(launched);

  CudaGraphHandle graph = nullptr;
  CudaGraphExecHandle exec = nullptr;
  REQUIRE(gpu.api()->BeginCapture(gpu.native()) == kCudaSuccess);
  REQUIRE(matmul(captured, gpu.native()) == kCudaSuccess);
  REQUIRE(gpu.api()->EndCapture(gpu.native(), &graph) == kCudaSuccess);
  REQUIRE(gpu.api()->GraphInstantiate(graph, &exec) == kCudaSuccess);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(gpu.api()->MemsetAsync(captured.data(), 0, captured.bytes(), gpu.native()) == kCudaSuccess);
    REQUIRE(gpu.api()->GraphLaunch(exec, gpu.native()) == kCudaSuccess);
    CHECK(Same(gpu.Download(captured), want));
  }
  REQUIRE(gpu.api()->GraphExecDestroy(exec) == kCudaSuccess);
  REQUIRE(gpu.api()->GraphDestroy(graph) == kCudaSuccess);

  CudaStreamHandle other = nullptr;
  REQUIRE(gpu.api()->StreamCreate(0, &other) == kCudaSuccess);
  for (const bool open : {false, true}) {
    if (open) REQUIRE(k.OpenStream(other) == kCudaSuccess);
    REQUIRE(matmul(elsewhere, other) == kCudaSuccess);
    REQUIRE(gpu.api()->StreamSynchronize(other) == kCudaSuccess);
    CHECK(Same(gpu.Download(elsewhere), want));
    if (open) k.CloseStream(other);
  }
  REQUIRE(gpu.api()->StreamDestroy(other) == kCudaSuccess);
}

WEFT_KERNELS_CASE("kernels: status words are combined by maximum") {
  KernelsApi& k = *gpu.kernels();
  const Tensor to = gpu.NewStatus(99);
  REQUIRE(k.CombineStatus(nullptr, 0, StatusIn(to), gpu.native()) == kCudaSuccess);
  CHECK(gpu.StatusWord(to) == 0);
  std::vector<Tensor> words;
  std::vector<const DeviceStatus*> from;
  for (int i = 0; i < 64; ++i) {
    words.push_back(gpu.NewStatus(i == 50 ? uint64_t{3} << 56 | 7 : static_cast<uint64_t>(i)));
    from.push_back(StatusIn(words.back()));
  }
  REQUIRE(k.CombineStatus(from.data(), 50, StatusIn(to), gpu.native()) == kCudaSuccess);
  CHECK(gpu.StatusWord(to) == 49);
  REQUIRE(k.CombineStatus(from.data(), 64, StatusIn(to), gpu.native()) == kCudaSuccess);
  CHECK(gpu.StatusWord(to) == (uint64_t{3} << 56 | 7));
  // In place.
  REQUIRE(k.CombineStatus(from.data(), 50, StatusIn(words[0]), gpu.native()) == kCudaSuccess);
  CHECK(gpu.StatusWord(words[0]) == 49);
  CHECK(k.CombineStatus(from.data(), 65, StatusIn(to), gpu.native()) == kCudaInvalidValue);
}

WEFT_KERNELS_CASE("kernels: an element that is not finite raises the word, wherever it stands") {
  KernelsApi& k = *gpu.kernels();
  const uint64_t code = uint64_t{3} << 56 | uint64_t{77} << 32;
  const int64_t execution = (int64_t{5} << 32) + 12;
  for (const DType d : kFloats) {
    for (const auto& [n, shift] : {std::pair<int64_t, int64_t>{1, 0}, {3001, 0}, {100, 1}}) {
      const Tensor x = AnyFinite(d, n, 9);
      const auto word_for = [&](uint64_t before) {
        const Tensor status = gpu.NewStatus(before);
        REQUIRE(k.CheckFinite(d, gpu.Upload(x, shift).data(), n, code, {nullptr, execution}, StatusIn(status), gpu.native()) == kCudaSuccess);
        return gpu.StatusWord(status);
      };
      CAPTURE(DTypeName(d), n, shift);
      CHECK(word_for(0) == 0);
      CHECK(word_for(5) == 5);
      for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
        for (const double bad : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                                 std::numeric_limits<double>::quiet_NaN()}) {
          SetElementFromDouble(x, at, bad);
          CHECK(word_for(0) == (code | 12));
          CHECK(word_for(UINT64_MAX) == UINT64_MAX);
        }
        SetElementFromDouble(x, at, 1);
      }
    }
  }
  CHECK(k.CheckFinite(v1::I32, nullptr, 1, code, kNone, nullptr, gpu.native()) == kCudaInvalidValue);
  CHECK(k.CheckFinite(v1::F32, nullptr, 0, code, kNone, nullptr, gpu.native()) == kCudaSuccess);
}

WEFT_KERNELS_CASE("kernels: fail-on raises the word on the executions of its list, or on all") {
  KernelsApi& k = *gpu.kernels();
  const uint64_t code = uint64_t{13} << 56 | uint64_t{1} << 32;
  const Tensor list = *Tensor::OnHost(v1::I64, {70});
  for (int i = 0; i < 70; ++i) list.as<int64_t>()[i] = 3 * i;
  const Tensor on = gpu.Upload(list);
  const auto word = [&](int count, ExecutionNumber e) {
    const Tensor status = gpu.NewStatus();
    REQUIRE(k.FailOn(on.as<int64_t>(), count, code, e, StatusIn(status), gpu.native()) == kCudaSuccess);
    return gpu.StatusWord(status);
  };
  CHECK(word(70, {nullptr, 207}) == (code | 207));
  CHECK(word(70, {nullptr, 0}) == code);
  CHECK(word(70, {nullptr, 208}) == 0);
  CHECK(word(69, {nullptr, 207}) == 0);
  CHECK(word(0, {nullptr, 208}) == (code | 208));
  CHECK(word(70, {on.as<int64_t>() + 5, 208}) == (code | 15));  // the counter's number
}

WEFT_GPU_CASE("kernels: a delay takes about as long as it is told") {
  gpu.Calibrate();
  CudaEventHandle begin = nullptr, end = nullptr;
  REQUIRE(gpu.api()->EventCreate(true, &begin) == kCudaSuccess);
  REQUIRE(gpu.api()->EventCreate(true, &end) == kCudaSuccess);
  for (const int blocks : {1, 1000}) {  // more than there are is all
    for (const int64_t ns : {int64_t{2'000'000}, int64_t{20'000'000}}) {
      REQUIRE(gpu.api()->EventRecord(begin, gpu.native()) == kCudaSuccess);
      REQUIRE(gpu.kernels()->Delay(ns, blocks, gpu.native()) == kCudaSuccess);
      REQUIRE(gpu.api()->EventRecord(end, gpu.native()) == kCudaSuccess);
      gpu.Sync();
      float ms = 0;
      REQUIRE(gpu.api()->EventElapsed(begin, end, &ms) == kCudaSuccess);
      CAPTURE(blocks, ns, ms);
      CHECK(ms > 0.85e-6 * static_cast<double>(ns));
      // A real GPU's clock is its own; the fake's threads share two cores with everything else.
      if (gpu.real()) CHECK(ms < 1.25e-6 * static_cast<double>(ns) + 0.1);
    }
  }
  REQUIRE(gpu.kernels()->Delay(0, 1, gpu.native()) == kCudaSuccess);
  gpu.Sync();
  REQUIRE(gpu.api()->EventDestroy(begin) == kCudaSuccess);
  REQUIRE(gpu.api()->EventDestroy(end) == kCudaSuccess);
}

WEFT_REAL_GPU_CASE("kernels: more elements than 32 bits count") {
  constexpr int64_t n = (int64_t{1} << 32) + 77;
  KernelsApi& k = *gpu.kernels();
  const Tensor x = gpu.Rubbish(v1::U8, {n}), y = gpu.Rubbish(v1::U8, {n}), sum = gpu.Rubbish(v1::U8, {1});
  REQUIRE(k.Fill(DeviceFill::kIota, 0, 0, kNone, v1::U8, x.data(), n, gpu.native()) == kCudaSuccess);
  REQUIRE(k.Scale(v1::U8, x.data(), 3, y.data(), n, gpu.native()) == kCudaSuccess);
  const Tensor tail = gpu.Download(Tensor(v1::U8, {100}, y.as<char>() + n - 100, y.owner()));
  for (int i = 0; i < 100; ++i) CHECK(tail.as<uint8_t>()[i] == static_cast<uint8_t>(3 * (n - 100 + i)));
  REQUIRE(k.Reduce(DeviceReduce::kSum, v1::U8, x.data(), 1, n, 1, sum.data(), gpu.native()) == kCudaSuccess);
  // Whole rounds of 0 to 255 sum to 128 modulo 256 each, an even number of times; then 0 to 76.
  CHECK(gpu.Download(sum).as<uint8_t>()[0] == static_cast<uint8_t>(76 * 77 / 2));
}

WEFT_REAL_GPU_CASE("kernels: those that only move memory do so at its speed") {
  // 1 GiB each way; an H200 moves 4.8 TB/s, and less than half of that would be a kernel that is wrong.
  constexpr int64_t n = int64_t{1} << 28;
  KernelsApi& k = *gpu.kernels();
  const Tensor x = gpu.Rubbish(v1::F32, {n}), y = gpu.Rubbish(v1::F32, {n}), one = gpu.Rubbish(v1::F32, {1});
  CudaEventHandle begin = nullptr, end = nullptr;
  REQUIRE(gpu.api()->EventCreate(true, &begin) == kCudaSuccess);
  REQUIRE(gpu.api()->EventCreate(true, &end) == kCudaSuccess);
  const auto measure = [&](const char* name, double bytes, auto run) {
    REQUIRE(run() == kCudaSuccess);
    REQUIRE(gpu.api()->EventRecord(begin, gpu.native()) == kCudaSuccess);
    for (int i = 0; i < 5; ++i) REQUIRE(run() == kCudaSuccess);
    REQUIRE(gpu.api()->EventRecord(end, gpu.native()) == kCudaSuccess);
    gpu.Sync();
    float ms = 0;
    REQUIRE(gpu.api()->EventElapsed(begin, end, &ms) == kCudaSuccess);
    const double rate = bytes * 5 / ms * 1e-6;
    WARN(name << ": " << rate << " GB/s");
    return rate;
  };
  const double b = static_cast<double>(x.bytes());
  const void* const args[] = {x.data(), y.data()};
  const Tensor status = gpu.NewStatus();
  const double copy = measure("copy", 2 * b, [&] { return gpu.api()->MemcpyAsync(y.data(), x.data(), x.bytes(), gpu.native()); });
  const auto fill = [&](DeviceFill how) {
    return [&, how] { return k.Fill(how, 1, 0, kNone, v1::F32, x.data(), n, gpu.native()); };
  };
  CHECK(measure("fill, a number", b, fill(DeviceFill::kNumber)) > copy / 2);
  CHECK(measure("fill, random", b, fill(DeviceFill::kRandom)) > copy / 8);
  CHECK(measure("scale", 2 * b, [&] { return k.Scale(v1::F32, x.data(), 2, y.data(), n, gpu.native()); }) > copy / 2);
  CHECK(measure("add", 3 * b, [&] { return k.Add(v1::F32, args, 2, y.data(), n, gpu.native()); }) > copy / 2);
  CHECK(measure("check finite", b, [&] {
          return k.CheckFinite(v1::F32, x.data(), n, 1, kNone, StatusIn(status), gpu.native());
        }) > copy / 4);
  CHECK(measure("reduce all", b, [&] { return k.Reduce(DeviceReduce::kSum, v1::F32, x.data(), 1, n, 1, one.data(), gpu.native()); }) > copy / 4);
  CHECK(measure("reduce rows of 1024", b, [&] {
          return k.Reduce(DeviceReduce::kSum, v1::F32, x.data(), n / 1024, 1024, 1, y.data(), gpu.native());
        }) > copy / 8);
  CHECK(measure("reduce columns of 1024", b, [&] {
          return k.Reduce(DeviceReduce::kSum, v1::F32, x.data(), 1, 1024, n / 1024, y.data(), gpu.native());
        }) > copy / 4);
  REQUIRE(gpu.api()->EventDestroy(begin) == kCudaSuccess);
  REQUIRE(gpu.api()->EventDestroy(end) == kCudaSuccess);
}

}  // namespace
}  // namespace weft
