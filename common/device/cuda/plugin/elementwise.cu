// Fill, Add, Scale.

#include "common/device/cuda/plugin/element.cuh"
#include "common/tensor/random.h"

namespace weft::gpu {
namespace {

constexpr int kMaxArgs = 64;

struct Args {
  const void* p[kMaxArgs];
};

// Elements [0, packs * Pack::kSize) of `out` are written 16 bytes at a time by pack(p), the rest, or all where something is not aligned, by
// one(i).
template <typename S, typename PackOf, typename One>
__device__ void Write(S* out, int64_t n, int64_t packs, PackOf pack, One one) {
  for (int64_t p = ThreadIndex(); p < packs; p += ThreadCount()) pack(p).Store(out + p * Pack<S>::kSize);
  for (int64_t i = packs * Pack<S>::kSize + ThreadIndex(); i < n; i += ThreadCount()) out[i] = one(i);
}

template <typename E>
__global__ void __launch_bounds__(kThreads) FillKernel(DeviceFill kind, double number, uint64_t seed, ExecutionNumber execution,
                                                       typename E::Storage* out, int64_t n, int64_t packs) {
  using S = typename E::Storage;
  const auto fill = [&](auto element) {
    Write(
        out, n, packs,
        [&](int64_t p) {
          Pack<S> k;
#pragma unroll
          for (int j = 0; j < Pack<S>::kSize; ++j) k.v[j] = element(p * Pack<S>::kSize + j);
          return k;
        },
        element);
  };
  if (kind == DeviceFill::kIota) {
    fill([](int64_t i) { return FromInteger<E>(i); });
  } else if (kind == DeviceFill::kRandom) {
    // CounterBits, with what does not depend on the element taken out.
    const uint64_t base = Mix64(Mix64(seed) + static_cast<uint64_t>(Execution(execution)));
    fill([base](int64_t i) { return E::Random(Mix64(base + static_cast<uint64_t>(i))); });
  } else {
    const S same = kind == DeviceFill::kNumber ? FromDouble<E>(number) : FromInteger<E>(Execution(execution));
    fill([same](int64_t) { return same; });
  }
}

template <typename E>
__global__ void __launch_bounds__(kThreads) AddKernel(Args args, int count, typename E::Storage* out, int64_t n, int64_t packs) {
  using S = typename E::Storage;
  using C = typename E::Compute;
  Write(
      out, n, packs,
      [&](int64_t p) {
        C sum[Pack<S>::kSize];
        Pack<S> k = Pack<S>::Load(static_cast<const S*>(args.p[0]) + p * Pack<S>::kSize);
#pragma unroll
        for (int j = 0; j < Pack<S>::kSize; ++j) sum[j] = E::Load(k.v[j]);
        for (int a = 1; a < count; ++a) {
          k = Pack<S>::Load(static_cast<const S*>(args.p[a]) + p * Pack<S>::kSize);
#pragma unroll
          for (int j = 0; j < Pack<S>::kSize; ++j) sum[j] = sum[j] + E::Load(k.v[j]);
        }
#pragma unroll
        for (int j = 0; j < Pack<S>::kSize; ++j) k.v[j] = E::Store(sum[j]);
        return k;
      },
      [&](int64_t i) {
        C sum = E::Load(static_cast<const S*>(args.p[0])[i]);
        for (int a = 1; a < count; ++a) sum = sum + E::Load(static_cast<const S*>(args.p[a])[i]);
        return E::Store(sum);
      });
}

template <typename E>
__global__ void __launch_bounds__(kThreads)
    ScaleKernel(const typename E::Storage* x, typename E::Compute factor, typename E::Storage* out, int64_t n, int64_t packs) {
  using S = typename E::Storage;
  Write(
      out, n, packs,
      [&](int64_t p) {
        Pack<S> k = Pack<S>::Load(x + p * Pack<S>::kSize);
#pragma unroll
        for (int j = 0; j < Pack<S>::kSize; ++j) k.v[j] = E::Store(E::Load(k.v[j]) * factor);
        return k;
      },
      [&](int64_t i) { return E::Store(E::Load(x[i]) * factor); });
}

template <typename S>
int64_t Packs(bool aligned, int64_t n) {
  return aligned ? n / Pack<S>::kSize : 0;
}

template <typename S>
int64_t Blocks(int64_t packs, int64_t n) {
  return GridFor(std::max(packs, n - packs * Pack<S>::kSize), kThreads);
}

template <typename... E>
cudaError_t LoadArithmetic() {
  return LoadKernels(AddKernel<E>..., ScaleKernel<E>...);
}

}  // namespace

cudaError_t LoadElementwise() {
  const cudaError_t e = LoadKernels(FillKernel<F16>, FillKernel<BF16>, FillKernel<F32>, FillKernel<F64>, FillKernel<Int<int8_t>>,
                                    FillKernel<Int<uint8_t>>, FillKernel<Int<int16_t>>, FillKernel<Int<int32_t>>, FillKernel<Int<int64_t>>,
                                    FillKernel<Bool>);
  return e != cudaSuccess ? e : LoadArithmetic<F16, BF16, F32, F64, Int<uint8_t>, Int<uint16_t>, Int<uint32_t>, Int<uint64_t>>();
}

cudaError_t LaunchFill(DeviceFill kind, double number, uint64_t seed, ExecutionNumber execution, int dtype, void* out, int64_t n,
                       cudaStream_t stream) {
  const auto launch = [&](auto e) {
    using E = decltype(e);
    using S = typename E::Storage;
    const int64_t packs = Packs<S>(IsAligned(out), n);
    return Launch(FillKernel<E>, Blocks<S>(packs, n), dim3(kThreads), 0, stream, kind, number, seed, execution, static_cast<S*>(out), n, packs);
  };
  return dtype == kDeviceBool ? launch(Bool{}) : ForNumber(dtype, launch);
}

cudaError_t LaunchAdd(int dtype, const void* const* args, int count, void* out, int64_t n, cudaStream_t stream) {
  Args all = {};
  bool aligned = IsAligned(out);
  for (int i = 0; i < count; ++i) {
    all.p[i] = args[i];
    aligned = aligned && IsAligned(args[i]);
  }
  return ForWrapping(dtype, [&](auto e) {
    using E = decltype(e);
    using S = typename E::Storage;
    const int64_t packs = Packs<S>(aligned, n);
    return Launch(AddKernel<E>, Blocks<S>(packs, n), dim3(kThreads), 0, stream, all, count, static_cast<S*>(out), n, packs);
  });
}

cudaError_t LaunchScale(int dtype, const void* x, double factor, void* out, int64_t n, cudaStream_t stream) {
  return ForWrapping(dtype, [&](auto e) {
    using E = decltype(e);
    using S = typename E::Storage;
    using C = typename E::Compute;
    C f;
    if constexpr (kIsFloat<E>) {
      f = static_cast<C>(factor);
    } else {
      f = static_cast<C>(static_cast<int64_t>(factor));
    }
    const int64_t packs = Packs<S>(IsAligned(x) && IsAligned(out), n);
    return Launch(ScaleKernel<E>, Blocks<S>(packs, n), dim3(kThreads), 0, stream, static_cast<const S*>(x), f, static_cast<S*>(out), n, packs);
  });
}

}  // namespace weft::gpu
