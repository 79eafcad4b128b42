// Reduce, in the order of reduce_order.h.

#include "common/device/cuda/api/reduce_order.h"
#include "common/device/cuda/plugin/element.cuh"

namespace weft::gpu {
namespace {

constexpr int kRowWarps = 4;
// Outputs side by side in a block of PartsKernel, where there are several along `inner`.
constexpr int kWide = 32;

template <typename E>
__device__ typename E::Sum Widen(typename E::Storage v) {
  if constexpr (kIsFloat<E>) {
    return static_cast<double>(E::Load(v));
  } else {
    return static_cast<int64_t>(v);
  }
}

template <typename Sum>
__device__ Sum Combine(DeviceReduce how, Sum a, Sum b) {
  if (how == DeviceReduce::kSum || how == DeviceReduce::kMean) {
    if constexpr (std::is_integral_v<Sum>) {
      return static_cast<Sum>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      return a + b;
    }
  }
  // A NaN on either side is the result.
  if (a != a) return a;
  const bool take = how == DeviceReduce::kMax ? b > a : b < a;
  return take || b != b ? b : a;
}

template <typename E>
__device__ typename E::Storage Finish(DeviceReduce how, typename E::Sum sum, int64_t size) {
  if constexpr (kIsFloat<E>) {
    if (how == DeviceReduce::kMean && size != 1) sum = sum / static_cast<double>(size);
    return E::Store(static_cast<typename E::Compute>(sum));
  } else {
    return static_cast<typename E::Storage>(sum);
  }
}

// `sum` and then p[k * stride] for k = first, first + step, ... below `end`, in this order. Loads are taken out of the additions, which wait for each
// other, so that eight are under way.
template <typename E>
__device__ typename E::Sum Accumulate(DeviceReduce how, typename E::Sum sum, const typename E::Storage* p, int64_t first, int64_t end, int64_t step,
                                      int64_t stride) {
  constexpr int kAtOnce = 8;
  int64_t k = first;
  for (; k + (kAtOnce - 1) * step < end; k += kAtOnce * step) {
    typename E::Storage v[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) v[j] = p[(k + j * step) * stride];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) sum = Combine(how, sum, Widen<E>(v[j]));
  }
  for (; k < end; k += step) sum = Combine(how, sum, Widen<E>(p[k * stride]));
  return sum;
}

// One thread per output, in order.
template <typename E>
__global__ void __launch_bounds__(kThreads)
    ColumnsKernel(DeviceReduce how, const typename E::Storage* x, int64_t outputs, int64_t size, int64_t inner, typename E::Storage* out) {
  for (int64_t i = ThreadIndex(); i < outputs; i += ThreadCount()) {
    if (size == 0) {
      out[i] = Finish<E>(how, 0, 1);
      continue;
    }
    const typename E::Storage* const p = x + (i / inner) * size * inner + i % inner;
    out[i] = Finish<E>(how, Accumulate<E>(how, Widen<E>(p[0]), p, 1, size, 1, inner), size);
  }
}

// inner == 1: a warp takes 32 rows through a square of shared memory, so that it reads along the rows and each thread sums one in order.
template <typename E>
__global__ void __launch_bounds__(kRowWarps * 32)
    RowsKernel(DeviceReduce how, const typename E::Storage* x, int64_t rows, int64_t size, typename E::Storage* out) {
  using S = typename E::Storage;
  __shared__ S squares[kRowWarps][32][33];
  S(*const square)[33] = squares[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * kRowWarps;
  for (int64_t row = (static_cast<int64_t>(blockIdx.x) * kRowWarps + threadIdx.x / 32) * 32; row < rows; row += warps * 32) {
    const int height = static_cast<int>(rows - row < 32 ? rows - row : 32);
    typename E::Sum sum = 0;
    for (int64_t from = 0; from < size; from += 32) {
      const int width = static_cast<int>(size - from < 32 ? size - from : 32);
      if (lane < width) {
#pragma unroll 8
        for (int r = 0; r < height; ++r) square[r][lane] = x[(row + r) * size + from + lane];
      }
      __syncwarp();
      if (lane < height) {
        for (int j = 0; j < width; ++j) {
          const typename E::Sum v = Widen<E>(square[lane][j]);
          sum = from == 0 && j == 0 ? v : Combine(how, sum, v);
        }
      }
      __syncwarp();
    }
    if (lane < height) out[row + lane] = Finish<E>(how, sum, size);
  }
}

// One block per part of Wide outputs. With one output, each thread is a lane; with kWide of them side by side a thread is kLanes / 8 lanes of
// one, so that a warp reads along `inner`. Each part has at least kReduceInOrder elements, so every lane has some.
template <typename E, int Wide>
__global__ void __launch_bounds__(Wide == 1 ? kReduceLanes : 256)
    PartsKernel(DeviceReduce how, const typename E::Storage* x, int64_t outer, int64_t size, int64_t inner, int64_t parts,
                typename E::Sum* partials, typename E::Storage* out) {
  using Sum = typename E::Sum;
  constexpr int kStep = Wide == 1 ? kReduceLanes : 256 / Wide;  // threads per output
  constexpr int kOwn = kReduceLanes / kStep;                    // lanes per thread
  __shared__ Sum lanes[kReduceLanes][Wide];
  const int column = Wide == 1 ? 0 : threadIdx.x % Wide, first = Wide == 1 ? threadIdx.x : threadIdx.x / Wide;
  const int64_t tiles = (inner + Wide - 1) / Wide;
  for (int64_t block = blockIdx.x; block < outer * tiles * parts; block += gridDim.x) {
    const int64_t part = block % parts, tile = block / parts % tiles, o = block / parts / tiles;
    const int64_t begin = size * part / parts, end = size * (part + 1) / parts, i = tile * Wide + column;
    if (i < inner) {
      const typename E::Storage* const p = x + o * size * inner + i;
      Sum sum[kOwn];
#pragma unroll
      for (int j = 0; j < kOwn; ++j) sum[j] = Widen<E>(p[(begin + first + j * kStep) * inner]);
      int64_t k = begin + kReduceLanes + first;
      if constexpr (kOwn == 1) {
        sum[0] = Accumulate<E>(how, sum[0], p, k, end, kReduceLanes, 1);
      } else {
        for (; k + (kOwn - 1) * kStep < end; k += kReduceLanes) {
          typename E::Storage v[kOwn];
#pragma unroll
          for (int j = 0; j < kOwn; ++j) v[j] = p[(k + j * kStep) * inner];
#pragma unroll
          for (int j = 0; j < kOwn; ++j) sum[j] = Combine(how, sum[j], Widen<E>(v[j]));
        }
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
          if (k + j * kStep < end) sum[j] = Combine(how, sum[j], Widen<E>(p[(k + j * kStep) * inner]));
        }
      }
#pragma unroll
      for (int j = 0; j < kOwn; ++j) lanes[first + j * kStep][column] = sum[j];
    }
    for (int half = kReduceLanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (i < inner) {
        for (int l = first; l < half; l += kStep) lanes[l][column] = Combine(how, lanes[l][column], lanes[l + half][column]);
      }
    }
    // Lane 0 is folded by the thread that reads it here.
    if (i < inner && first == 0) {
      if (parts == 1) {
        out[o * inner + i] = Finish<E>(how, lanes[0][column], size);
      } else {
        partials[(o * inner + i) * parts + part] = lanes[0][column];
      }
    }
    __syncthreads();
  }
}

// A warp per output.
template <typename E>
__global__ void __launch_bounds__(kThreads) FinalKernel(DeviceReduce how, const typename E::Sum* partials, int64_t outputs, int64_t parts,
                                                        int64_t size, typename E::Storage* out) {
  static_assert(kReduceFinalLanes == 32);
  using Sum = typename E::Sum;
  const int lane = threadIdx.x % 32;
  for (int64_t i = ThreadIndex() / 32; i < outputs; i += ThreadCount() / 32) {
    Sum sum = 0;
    if (lane < parts) {
      sum = partials[i * parts + lane];
      for (int64_t p = lane + 32; p < parts; p += 32) sum = Combine(how, sum, partials[i * parts + p]);
    }
    for (int half = 16; half > 0; half /= 2) {
      const Sum other = __shfl_down_sync(0xffffffff, sum, half);
      if (lane < half && lane + half < parts) sum = Combine(how, sum, other);
    }
    if (lane == 0) out[i] = Finish<E>(how, sum, size);
  }
}

template <typename... E>
cudaError_t LoadFor() {
  return LoadKernels(ColumnsKernel<E>..., RowsKernel<E>..., PartsKernel<E, 1>..., PartsKernel<E, kWide>..., FinalKernel<E>...);
}

template <typename E>
cudaError_t Run(DeviceReduce how, const void* from, int64_t outer, int64_t size, int64_t inner, void* to, void* partials, cudaStream_t stream) {
  using S = typename E::Storage;
  using Sum = typename E::Sum;
  const S* const x = static_cast<const S*>(from);
  S* const out = static_cast<S*>(to);
  const int64_t outputs = outer * inner;
  if (size <= kReduceInOrder) {
    if (inner == 1 && size > 1) {
      return Launch(RowsKernel<E>, GridFor(outer, kRowWarps * 32), dim3(kRowWarps * 32), 0, stream, how, x, outer, size, out);
    }
    return Launch(ColumnsKernel<E>, GridFor(outputs, kThreads), dim3(kThreads), 0, stream, how, x, outputs, size, inner, out);
  }
  const int64_t parts = ReduceParts(outputs, size);
  Sum* const partial = static_cast<Sum*>(partials);
  const int64_t blocks = outer * ((inner + kWide - 1) / kWide) * parts;
  cudaError_t e;
  if (inner == 1) {
    e = Launch(PartsKernel<E, 1>, GridFor(outer * parts, 1), dim3(kReduceLanes), 0, stream, how, x, outer, size, inner, parts, partial, out);
  } else {
    e = Launch(PartsKernel<E, kWide>, GridFor(blocks, 1), dim3(256), 0, stream, how, x, outer, size, inner, parts, partial, out);
  }
  if (e != cudaSuccess || parts == 1) return e;
  return Launch(FinalKernel<E>, GridFor(outputs * 32, kThreads), dim3(kThreads), 0, stream, how, static_cast<const Sum*>(partial), outputs, parts,
                size, out);
}

}  // namespace

cudaError_t LoadReduce() {
  return LoadFor<F16, BF16, F32, F64, Int<int8_t>, Int<uint8_t>, Int<int16_t>, Int<int32_t>, Int<int64_t>>();
}

cudaError_t LaunchReduce(DeviceReduce how, int dtype, const void* x, int64_t outer, int64_t size, int64_t inner, void* out, void* partials,
                         cudaStream_t stream) {
  return ForNumber(dtype, [&](auto e) { return Run<decltype(e)>(how, x, outer, size, inner, out, partials, stream); });
}

}  // namespace weft::gpu
