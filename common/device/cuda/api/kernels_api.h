#pragma once

// weft's own device code, and cuBLAS, behind an interface without CUDA's headers. Every method puts work on `stream` and returns its
// cudaError_t; none blocks but where said. Element types are v1::DType's numbers; a type that a method does not take yields
// kCudaInvalidValue. Pointers are device memory.

#include <cstddef>
#include <cstdint>

namespace weft {

// What only the device knows, behind each value's payload where the plan says so (docs/cuda.md). 0: all is well. Otherwise
// code << 56 | node << 32 | low 32 bits of the execution, where node is PlanNode::id (24 bits). Errors are combined by maximum.
struct DeviceStatus {
  uint64_t word;
  uint64_t unused;
};
static_assert(sizeof(DeviceStatus) == 16);

// The execution's number where a kernel needs it: `counter` when set (device memory, read when the kernel runs: a captured graph runs for many
// executions), otherwise `value`.
struct ExecutionNumber {
  const int64_t* counter;
  int64_t value;
};

enum class DeviceFill { kExecution, kNumber, kIota, kRandom };
enum class DeviceReduce { kSum, kMean, kMax, kMin };
enum class DeviceActivation { kNone, kRelu, kGelu, kTanh, kSigmoid };
// How products of F32 are made: with all 24 bits, or with tf32's 11.
enum class DevicePrecision { kFp32, kTf32 };

class KernelsApi {
 public:
  virtual ~KernelsApi() = default;

  // Loads all device code and makes cuBLAS's handle and workspace for the calling thread's device, so that nothing is loaded later but what cuBLAS
  // keeps for shapes that it has not seen. Blocks. Again for the same device it does nothing; a process has one.
  // On failure *problem says what is missing, in words that stay valid.
  virtual int Load(const char** problem) = 0;
  // Gives `stream` a workspace of its own (about 32 MiB) for Matmul, Linear and Reduce, before the first of them and outside a capture; CloseStream
  // takes it back, before the stream is destroyed. All streams that were not opened share one workspace: at most one of them at a time may have such
  // work under way. Workspaces are of one size, so results do not depend on the stream. Thread-safe; OpenStream may block.
  virtual int OpenStream(void* /*stream*/) { return 0; }
  virtual void CloseStream(void* /*stream*/) {}

  // As FillTensor of common/tensor/fill.h, bit for bit.
  virtual int Fill(DeviceFill kind, double number, uint64_t seed, ExecutionNumber execution, int dtype, void* out, int64_t n, void* stream) = 0;
  // out = args[0] + args[1] + ... in this order, as the CPU's std.Add; 1 to 64 args.
  virtual int Add(int dtype, const void* const* args, int count, void* out, int64_t n, void* stream) = 0;
  // out = x * factor as the CPU's std.Scale.
  virtual int Scale(int dtype, const void* x, double factor, void* out, int64_t n, void* stream) = 0;
  // [outer, size, inner] -> [outer, inner]. Floats are summed in double, in the order of reduce_order.h.
  virtual int Reduce(DeviceReduce how, int dtype, const void* x, int64_t outer, int64_t size, int64_t inner, void* out, void* stream) = 0;
  // c[m, n] = a[m, k] * b[k, n], row-major. F32, F64, F16, BF16 by cuBLAS (accumulated in F32, F64 in F64); integers wrap around.
  virtual int Matmul(int dtype, DevicePrecision precision, const void* a, const void* b, void* c, int64_t m, int64_t n, int64_t k,
                     void* stream) = 0;
  // y[batch, out] = activation(x[batch, in] * w[out, in]^T + bias[out]). F32, F64, F16, BF16.
  virtual int Linear(int dtype, DevicePrecision precision, DeviceActivation activation, const void* x, const void* w, const void* bias,
                     void* y, int64_t batch, int64_t in, int64_t out, void* stream) = 0;
  // c[m, n] = a[m, k] * b[k, n], plus what c holds when `accumulate`; row-major. A transposed factor lies in memory as [k, m] or [n, k]. F32, F64, F16,
  // BF16, by cuBLAS as Matmul.
  virtual int Gemm(int dtype, DevicePrecision precision, const void* a, bool a_transposed, const void* b, bool b_transposed, void* c, int64_t m,
                   int64_t n, int64_t k, bool accumulate, void* stream) = 0;
  // dx = dy * f'(x), by y = f(x): kNone, kRelu, kTanh, kSigmoid. `dx` may be y or dy. F32, F64, F16, BF16.
  virtual int ActivationGradient(int dtype, DeviceActivation activation, const void* y, const void* dy, void* dx, int64_t n, void* stream) = 0;
  // Spins in dependent arithmetic on `blocks` multiprocessors (one block each) for about `ns`, by the calibration of Calibrate.
  virtual int Delay(int64_t ns, int blocks, void* stream) = 0;
  // Measures how fast Delay's arithmetic runs here. Blocks for some milliseconds at the first call of a process; later calls do nothing.
  // Thread-safe.
  virtual int Calibrate() = 0;

  // *to = max of the words of *from[i]; 0 to 64 of them.
  virtual int CombineStatus(const DeviceStatus* const* from, int count, DeviceStatus* to, void* stream) = 0;
  // Sets to->word to the maximum of itself and `word` when any of the n elements (a float type) is not finite.
  virtual int CheckFinite(int dtype, const void* x, int64_t n, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus* to,
                          void* stream) = 0;
  // Sets to->word when the execution is one of `on` (device memory; count 0: always).
  virtual int FailOn(const int64_t* on, int count, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus* to, void* stream) = 0;
  // ++*counter, the first node of a captured iteration.
  virtual int Advance(int64_t* counter, void* stream) = 0;
  // A kernel that does nothing, for benchmarks.
  virtual int Nothing(void* stream) = 0;
  // Writes to address 0: a sticky error, for tests of what a worker does then.
  virtual int IllegalAddress(void* stream) = 0;
};

}  // namespace weft
