// Integer products, and what stands around cuBLAS's in Linear.

#include "common/device/cuda/plugin/element.cuh"

namespace weft::gpu {
namespace {

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // threads; each makes kTile / kTileRows elements of a column

// c[m, n] by tiles of kTile x kTile.
template <typename S>
__global__ void __launch_bounds__(kTile* kTileRows)
    IntegerKernel(const S* a, const S* b, S* c, int64_t m, int64_t n, int64_t k) {
  using U = std::conditional_t<sizeof(S) == 8, uint64_t, uint32_t>;
  __shared__ U left[kTile][kTile], right[kTile][kTile];
  const int64_t across = (n + kTile - 1) / kTile, tiles = across * ((m + kTile - 1) / kTile);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t row0 = tile / across * kTile, column = tile % across * kTile + threadIdx.x;
    U sum[kTile / kTileRows] = {};
    for (int64_t from = 0; from < k; from += kTile) {
      for (int r = threadIdx.y; r < kTile; r += kTileRows) {
        const int64_t ka = from + threadIdx.x, kb = from + r;
        left[r][threadIdx.x] = row0 + r < m && ka < k ? static_cast<U>(a[(row0 + r) * k + ka]) : U{0};
        right[r][threadIdx.x] = kb < k && column < n ? static_cast<U>(b[kb * n + column]) : U{0};
      }
      __syncthreads();
#pragma unroll
      for (int p = 0; p < kTile; ++p) {
        const U y = right[p][threadIdx.x];
#pragma unroll
        for (int j = 0; j < kTile / kTileRows; ++j) sum[j] += left[threadIdx.y + j * kTileRows][p] * y;
      }
      __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < kTile / kTileRows; ++j) {
      const int64_t row = row0 + threadIdx.y + j * kTileRows;
      if (row < m && column < n) c[row * n + column] = static_cast<S>(sum[j]);
    }
  }
}

template <typename S>
__global__ void __launch_bounds__(kThreads) RowsKernel(const S* bias, S* y, int64_t n, int64_t columns) {
  const int64_t step = ThreadCount() % columns;
  int64_t column = ThreadIndex() % columns;
  for (int64_t i = ThreadIndex(); i < n; i += ThreadCount()) {
    y[i] = bias[column];
    column += step;
    if (column >= columns) column -= columns;
  }
}

template <typename T>
__device__ T Activate(DeviceActivation a, T x) {
  switch (a) {
    case DeviceActivation::kRelu: return x < T{0} ? T{0} : x;  // a NaN stays one
    case DeviceActivation::kGelu: return x * T(0.5) * (T{1} + erf(x * T(0.70710678118654752440)));
    case DeviceActivation::kTanh: return tanh(x);
    case DeviceActivation::kSigmoid: return T{1} / (T{1} + exp(-x));
    default: return x;
  }
}

template <typename E>
__global__ void __launch_bounds__(kThreads) ActivationKernel(DeviceActivation a, typename E::Storage* y, int64_t n) {
  for (int64_t i = ThreadIndex(); i < n; i += ThreadCount()) y[i] = E::Store(Activate(a, E::Load(y[i])));
}

template <typename T>
__device__ T Gradient(DeviceActivation a, T y, T dy) {
  switch (a) {
    case DeviceActivation::kRelu: return y > T{0} ? dy : T{0};
    case DeviceActivation::kTanh: return dy * (T{1} - y * y);
    case DeviceActivation::kSigmoid: return dy * (y * (T{1} - y));
    default: return dy;
  }
}

// dx may be y or dy: each thread reads an element before it writes it.
template <typename E>
__global__ void __launch_bounds__(kThreads) GradientKernel(DeviceActivation a, const typename E::Storage* y, const typename E::Storage* dy,
                                                           typename E::Storage* dx, int64_t n) {
  for (int64_t i = ThreadIndex(); i < n; i += ThreadCount()) dx[i] = E::Store(Gradient(a, E::Load(y[i]), E::Load(dy[i])));
}

}  // namespace

cudaError_t LoadMatmul() {
  return LoadKernels(IntegerKernel<uint8_t>, IntegerKernel<uint16_t>, IntegerKernel<uint32_t>, IntegerKernel<uint64_t>, RowsKernel<uint16_t>,
                     RowsKernel<uint32_t>, RowsKernel<uint64_t>, ActivationKernel<F16>, ActivationKernel<BF16>, ActivationKernel<F32>,
                     ActivationKernel<F64>, GradientKernel<F16>, GradientKernel<BF16>, GradientKernel<F32>, GradientKernel<F64>);
}

cudaError_t LaunchIntegerMatmul(int bytes, const void* a, const void* b, void* c, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  const auto launch = [&](auto s) {
    using S = decltype(s);
    const int64_t tiles = ((m + kTile - 1) / kTile) * ((n + kTile - 1) / kTile);
    return Launch(IntegerKernel<S>, GridFor(tiles, 1), dim3(kTile, kTileRows), 0, stream, static_cast<const S*>(a), static_cast<const S*>(b),
                  static_cast<S*>(c), m, n, k);
  };
  switch (bytes) {
    case 1: return launch(uint8_t{});
    case 2: return launch(uint16_t{});
    case 4: return launch(uint32_t{});
    case 8: return launch(uint64_t{});
    default: return cudaErrorInvalidValue;
  }
}

cudaError_t LaunchRows(int bytes, const void* bias, void* y, int64_t rows, int64_t columns, cudaStream_t stream) {
  const auto launch = [&](auto s) {
    using S = decltype(s);
    return Launch(RowsKernel<S>, GridFor(rows * columns, kThreads), dim3(kThreads), 0, stream, static_cast<const S*>(bias), static_cast<S*>(y),
                  rows * columns, columns);
  };
  switch (bytes) {
    case 2: return launch(uint16_t{});
    case 4: return launch(uint32_t{});
    case 8: return launch(uint64_t{});
    default: return cudaErrorInvalidValue;
  }
}

cudaError_t LaunchActivation(int dtype, DeviceActivation activation, void* y, int64_t n, cudaStream_t stream) {
  return ForFloat(dtype, [&](auto e) {
    using E = decltype(e);
    return Launch(ActivationKernel<E>, GridFor(n, kThreads), dim3(kThreads), 0, stream, activation, static_cast<typename E::Storage*>(y), n);
  });
}

cudaError_t LaunchActivationGradient(int dtype, DeviceActivation activation, const void* y, const void* dy, void* dx, int64_t n,
                                     cudaStream_t stream) {
  return ForFloat(dtype, [&](auto e) {
    using E = decltype(e);
    using S = typename E::Storage;
    return Launch(GradientKernel<E>, GridFor(n, kThreads), dim3(kThreads), 0, stream, activation, static_cast<const S*>(y),
                  static_cast<const S*>(dy), static_cast<S*>(dx), n);
  });
}

}  // namespace weft::gpu
