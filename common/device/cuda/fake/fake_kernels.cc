#include "common/device/cuda/fake/fake_kernels.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/device/cuda/api/device_dtype.h"
#include "common/device/cuda/fake/fake_math.h"
#include "common/tensor/arith.h"
#include "common/tensor/combine.h"
#include "common/tensor/fill.h"
#include "common/tensor/linear.h"

namespace weft {
namespace {

static_assert(static_cast<int>(kDeviceF16) == v1::F16 && static_cast<int>(kDeviceBF16) == v1::BF16 && static_cast<int>(kDeviceF32) == v1::F32);
static_assert(static_cast<int>(kDeviceF64) == v1::F64 && static_cast<int>(kDeviceI8) == v1::I8 && static_cast<int>(kDeviceU8) == v1::U8);
static_assert(static_cast<int>(kDeviceI16) == v1::I16 && static_cast<int>(kDeviceI32) == v1::I32 && static_cast<int>(kDeviceI64) == v1::I64);
static_assert(static_cast<int>(kDeviceBool) == v1::BOOL);

constexpr int kMaxArgs = 64;
constexpr int kCudaInvalidDeviceFunction = 98;

DType Type(int dtype) { return static_cast<DType>(dtype); }
bool IsNumber(int dtype) { return SizeOf(Type(dtype)) != 0 && dtype != kDeviceBool; }
size_t Size(int dtype, int64_t n) { return SizeOf(Type(dtype)) * static_cast<size_t>(n); }
Tensor View(int dtype, int64_t n, void* p) { return Tensor(Type(dtype), {n}, p, nullptr); }

// What a kernel reads or writes.
using Ranges = std::vector<std::pair<const void*, size_t>>;

// Calls run() on the stream, unless memory of `ranges` cannot be reached then.
template <typename F>
int Put(FakeCuda* cuda, void* stream, const char* what, Ranges ranges, F run) {
  return cuda->Enqueue(
      stream,
      [cuda, ranges = std::move(ranges), run = std::move(run)] {
        for (const auto& [p, bytes] : ranges) {
          if (bytes > 0 && !cuda->DeviceReachable(p, bytes)) {
            cuda->BreakDevice(kCudaIllegalAddress);
            return;
          }
        }
        run();
      },
      what);
}

// For arithmetic whose arguments were checked before it was queued.
template <typename F>
auto Checked(FakeCuda* cuda, F run) {
  return [cuda, run = std::move(run)] {
    if (!run().ok()) cuda->BreakDevice(kCudaLaunchFailure);
  };
}

void AddNumber(const ExecutionNumber& e, Ranges* ranges) {
  if (e.counter != nullptr) ranges->emplace_back(e.counter, sizeof(*e.counter));
}
int64_t Number(const ExecutionNumber& e) { return e.counter != nullptr ? *e.counter : e.value; }

// Several kernels may raise one word at a time.
void Raise(DeviceStatus* to, uint64_t code_and_node, int64_t execution) {
  const uint64_t word = code_and_node | static_cast<uint32_t>(execution);
  std::atomic_ref<uint64_t> at(to->word);
  uint64_t now = at.load();
  while (now < word && !at.compare_exchange_weak(now, word)) {
  }
}

}  // namespace

void FakeKernels::FailLoad(int code, std::string problem) {
  fail_load_ = code;
  problem_ = std::move(problem);
}

int FakeKernels::Load(const char** problem) {
  *problem = nullptr;
  if (fail_load_ != kCudaSuccess) {
    *problem = problem_.c_str();
    return std::exchange(fail_load_, kCudaSuccess);
  }
  loaded_ = true;
  return kCudaSuccess;
}

int FakeKernels::OpenStream(void*) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  ++open_streams_;
  return kCudaSuccess;
}
void FakeKernels::CloseStream(void*) { --open_streams_; }

int FakeKernels::Fill(DeviceFill kind, double number, uint64_t seed, ExecutionNumber execution, int dtype, void* out, int64_t n, void* stream) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  if (SizeOf(Type(dtype)) == 0 || n < 0) return kCudaInvalidValue;
  if (n == 0) return kCudaSuccess;
  static_assert(static_cast<int>(DeviceFill::kExecution) == weft::Fill::kExecution && static_cast<int>(DeviceFill::kNumber) == weft::Fill::kNumber);
  static_assert(static_cast<int>(DeviceFill::kIota) == weft::Fill::kIota && static_cast<int>(DeviceFill::kRandom) == weft::Fill::kRandom);
  const weft::Fill fill{static_cast<weft::Fill::Kind>(kind), number};
  Ranges ranges = {{out, Size(dtype, n)}};
  AddNumber(execution, &ranges);
  return Put(cuda_, stream, "fill", std::move(ranges), [=] { FillTensor(fill, seed, Number(execution), View(dtype, n, out)); });
}

int FakeKernels::Add(int dtype, const void* const* args, int count, void* out, int64_t n, void* stream) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  if (!IsNumber(dtype) || count < 1 || count > kMaxArgs || n < 0) return kCudaInvalidValue;
  if (n == 0) return kCudaSuccess;
  const std::vector<const void*> inputs(args, args + count);
  Ranges ranges = {{out, Size(dtype, n)}};
  for (const void* p : inputs) ranges.emplace_back(p, Size(dtype, n));
  return Put(cuda_, stream, "add", std::move(ranges), Checked(cuda_, [=] { return Combine(Type(dtype), v1::SUM, inputs, out, n); }));
}

int FakeKernels::Scale(int dtype, const void* x, double factor, void* out, int64_t n, void* stream) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  if (!IsNumber(dtype) || n < 0) return kCudaInvalidValue;
  if (n == 0) return kCudaSuccess;
  const auto run = [=] {
    return ForElementType(Type(dtype), [&](auto e) {
      using E = decltype(e);
      const auto* from = static_cast<const typename E::Storage*>(x);
      auto* to = static_cast<typename E::Storage*>(out);
      const auto f = static_cast<typename E::Compute>(factor);
      for (int64_t i = 0; i < n; ++i) to[i] = E::Store(Times(E::Load(from[i]), f));
      return absl::OkStatus();
    });
  };
  return Put(cuda_, stream, "scale", {{x, Size(dtype, n)}, {out, Size(dtype, n)}}, Checked(cuda_, run));
}

int FakeKernels::Reduce(DeviceReduce how, int dtype, const void* x, int64_t outer, int64_t size, int64_t inner, void* out, void* stream) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  if (!IsNumber(dtype) || outer < 0 || size < 0 || inner < 0) return kCudaInvalidValue;
  if (how == DeviceReduce::kMean && !IsFloat(Type(dtype))) return kCudaInvalidValue;
  if (outer == 0 || inner == 0) return kCudaSuccess;
  return Put(cuda_, stream, "reduce", {{x, Size(dtype, outer * size * inner)}, {out, Size(dtype, outer * inner)}},
             Checked(cuda_, [=] { return FakeReduce(how, Type(dtype), x, outer, size, inner, out); }));
}

int FakeKernels::LoadProduct(const std::string& key) {
  {
    MutexLock lock(&mu_);
    if (!products_.insert(key).second) return kCudaSuccess;
  }
  return cuda_->LoadCode();
}

int FakeKernels::Matmul(int dtype, DevicePrecision precision, const void* a, const void* b, void* c, int64_t m, int64_t n, int64_t k,
                        void* stream) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  if (!IsNumber(dtype) || m < 0 || n < 0 || k < 0) return kCudaInvalidValue;
  if (m == 0 || n == 0) return kCudaSuccess;
  if (IsFloat(Type(dtype))) {
    const int loaded = LoadProduct(absl::StrCat("matmul ", dtype, " ", static_cast<int>(precision), " ", m, " ", n, " ", k));
    if (loaded != kCudaSuccess) return loaded;
  }
  return Put(cuda_, stream, "matmul", {{a, Size(dtype, m * k)}, {b, Size(dtype, k * n)}, {c, Size(dtype, m * n)}},
             Checked(cuda_, [=] { return FakeMatmul(Type(dtype), precision, a, b, c, m, n, k); }));
}

int FakeKernels::Linear(int dtype, DevicePrecision precision, DeviceActivation activation, const void* x, const void* w, const void* bias, void* y,
                        int64_t batch, int64_t in, int64_t out, void* stream) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  if (!IsFloat(Type(dtype)) || batch < 0 || in < 1 || out < 1) return kCudaInvalidValue;
  if (batch == 0) return kCudaSuccess;
  const int loaded = LoadProduct(absl::StrCat("linear ", dtype, " ", static_cast<int>(precision), " ", batch, " ", out, " ", in));
  if (loaded != kCudaSuccess) return loaded;
  return Put(cuda_, stream, "linear",
             {{x, Size(dtype, batch * in)}, {w, Size(dtype, out * in)}, {bias, Size(dtype, out)}, {y, Size(dtype, batch * out)}},
             Checked(cuda_, [=] { return FakeLinear(Type(dtype), precision, activation, x, w, bias, y, batch, in, out); }));
}

int FakeKernels::Gemm(int dtype, DevicePrecision precision, const void* a, bool a_transposed, const void* b, bool b_transposed, void* c, int64_t m,
                      int64_t n, int64_t k, bool accumulate, void* stream) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  if (!IsFloat(Type(dtype)) || m < 0 || n < 0 || k < 1) return kCudaInvalidValue;
  if (m == 0 || n == 0) return kCudaSuccess;
  const int loaded = LoadProduct(absl::StrCat("gemm ", dtype, " ", static_cast<int>(precision), " ", a_transposed, b_transposed, " ", m, " ", n, " ", k));
  if (loaded != kCudaSuccess) return loaded;
  return Put(cuda_, stream, "gemm", {{a, Size(dtype, m * k)}, {b, Size(dtype, k * n)}, {c, Size(dtype, m * n)}}, Checked(cuda_, [=] {
               return FakeGemm(Type(dtype), precision, a, a_transposed, b, b_transposed, c, m, n, k, accumulate);
             }));
}

int FakeKernels::ActivationGradient(int dtype, DeviceActivation activation, const void* y, const void* dy, void* dx, int64_t n, void* stream) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  if (!IsFloat(Type(dtype)) || activation == DeviceActivation::kGelu || n < 0) return kCudaInvalidValue;
  if (n == 0) return kCudaSuccess;
  const auto run = [=] {
    return ForElementType(Type(dtype), [&](auto e) {
      using E = decltype(e);
      if constexpr (std::is_floating_point_v<typename E::Compute>) {
        const auto* ys = static_cast<const typename E::Storage*>(y);
        const auto* dys = static_cast<const typename E::Storage*>(dy);
        auto* dxs = static_cast<typename E::Storage*>(dx);
        for (int64_t i = 0; i < n; ++i) {
          dxs[i] = E::Store(weft::ActivationGradient(static_cast<Activation>(activation), E::Load(ys[i]), E::Load(dys[i])));
        }
      }
      return absl::OkStatus();
    });
  };
  return Put(cuda_, stream, "activation gradient", {{y, Size(dtype, n)}, {dy, Size(dtype, n)}, {dx, Size(dtype, n)}}, Checked(cuda_, run));
}

int FakeKernels::Delay(int64_t ns, int blocks, void* stream) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  if (ns < 0 || blocks < 1 || !calibrated_) return kCudaInvalidValue;
  last_delay_blocks_ = blocks;
  last_delay_ns_ = ns;
  return Put(cuda_, stream, "delay", {}, [cuda = cuda_, ns] {
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + std::chrono::nanoseconds(ns);
    // In short naps, so that the fake can end.
    for (auto now = Clock::now(); now < until && !cuda->ended(); now = Clock::now()) {
      std::this_thread::sleep_for(std::min<Clock::duration>(until - now, std::chrono::milliseconds(20)));
    }
  });
}

int FakeKernels::Calibrate() {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  calibrated_ = true;
  return kCudaSuccess;
}

int FakeKernels::CombineStatus(const DeviceStatus* const* from, int count, DeviceStatus* to, void* stream) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  if (count < 0 || count > kMaxArgs) return kCudaInvalidValue;
  std::vector<const DeviceStatus*> all;
  Ranges ranges = {{to, sizeof(*to)}};
  for (int i = 0; i < count; ++i) {
    all.push_back(from[i]);
    ranges.emplace_back(from[i], sizeof(*to));
  }
  return Put(cuda_, stream, "combine status", std::move(ranges), [all = std::move(all), to] {
    uint64_t word = 0;
    for (const DeviceStatus* s : all) word = std::max(word, s->word);
    *to = {word, 0};
  });
}

int FakeKernels::CheckFinite(int dtype, const void* x, int64_t n, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus* to,
                             void* stream) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  if (!IsFloat(Type(dtype)) || n < 0) return kCudaInvalidValue;
  if (n == 0) return kCudaSuccess;
  Ranges ranges = {{x, Size(dtype, n)}, {to, sizeof(*to)}};
  AddNumber(execution, &ranges);
  return Put(cuda_, stream, "check finite", std::move(ranges), Checked(cuda_, [=] {
               return ForElementType(Type(dtype), [&](auto e) {
                 using E = decltype(e);
                 bool bad = false;
                 for (int64_t i = 0; i < n; ++i) bad |= !std::isfinite(static_cast<double>(E::Load(static_cast<const typename E::Storage*>(x)[i])));
                 if (bad) Raise(to, code_and_node, Number(execution));
                 return absl::OkStatus();
               });
             }));
}

int FakeKernels::FailOn(const int64_t* on, int count, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus* to, void* stream) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  if (count < 0) return kCudaInvalidValue;
  Ranges ranges = {{on, sizeof(*on) * static_cast<size_t>(count)}};
  AddNumber(execution, &ranges);
  return Put(cuda_, stream, "fail on", std::move(ranges), [=, cuda = cuda_] {
    if (count != 0 && std::find(on, on + count, Number(execution)) == on + count) return;
    // As on a GPU, where nothing else touches it.
    if (!cuda->DeviceReachable(to, sizeof(*to))) return cuda->BreakDevice(kCudaIllegalAddress);
    Raise(to, code_and_node, Number(execution));
  });
}

int FakeKernels::Advance(int64_t* counter, void* stream) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  return Put(cuda_, stream, "advance", {{counter, sizeof(*counter)}}, [counter] { ++*counter; });
}

int FakeKernels::Nothing(void* stream) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  return Put(cuda_, stream, "nothing", {}, [] {});
}

int FakeKernels::IllegalAddress(void* stream) {
  if (!loaded_) return kCudaInvalidDeviceFunction;
  return Put(cuda_, stream, "illegal address", {{nullptr, sizeof(int)}}, [] {});
}

}  // namespace weft
