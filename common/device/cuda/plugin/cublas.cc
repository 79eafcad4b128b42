#include "common/device/cuda/plugin/cublas.h"

#include <cublas_v2.h>
#include <dlfcn.h>

#include <cstdio>

#include "common/device/cuda/api/device_dtype.h"

namespace weft::gpu {

struct Cublas::Functions {
  decltype(&cublasCreate) create;
  decltype(&cublasSetStream) set_stream;
  decltype(&cublasSetWorkspace) set_workspace;
  decltype(&cublasSetMathMode) set_math_mode;
  decltype(&cublasGemmEx_64) gemm;
  decltype(&cublasGetStatusString) text;
};

namespace {

// The newest first. Both have all that is called here, of the same types.
constexpr const char* kLibraries[] = {"libcublas.so.13", "libcublas.so.12"};

cudaError_t ToCuda(cublasStatus_t s) {
  // A failed launch leaves its error with the runtime, where it is more exact.
  if (s != CUBLAS_STATUS_SUCCESS) {
    if (const cudaError_t e = cudaGetLastError(); e != cudaSuccess) return e;
  }
  switch (s) {
    case CUBLAS_STATUS_SUCCESS: return cudaSuccess;
    case CUBLAS_STATUS_ALLOC_FAILED: return cudaErrorMemoryAllocation;
    case CUBLAS_STATUS_INVALID_VALUE: return cudaErrorInvalidValue;
    case CUBLAS_STATUS_ARCH_MISMATCH: return cudaErrorNoKernelImageForDevice;
    case CUBLAS_STATUS_NOT_SUPPORTED: return cudaErrorNotSupported;
    case CUBLAS_STATUS_NOT_INITIALIZED: return cudaErrorInitializationError;
    default: return cudaErrorUnknown;
  }
}

template <typename F>
bool Find(void* library, const char* name, F* out) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  return *out != nullptr;
}

}  // namespace

cudaError_t Cublas::Open(const char** problem) {
  *problem = problem_;
  void* library = nullptr;
  int written = std::snprintf(problem_, sizeof(problem_), "cuBLAS cannot be opened (");
  for (const char* name : kLibraries) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    if (written < static_cast<int>(sizeof(problem_))) {
      written += std::snprintf(problem_ + written, sizeof(problem_) - written, "%s%s", name == kLibraries[0] ? "" : "; ", dlerror());
    }
  }
  if (library == nullptr) {
    constexpr char kRemedy[] = "); install it, or put its folder into LD_LIBRARY_PATH";
    const int room = static_cast<int>(sizeof(problem_) - sizeof(kRemedy));
    std::snprintf(problem_ + (written < room ? written : room), sizeof(kRemedy), "%s", kRemedy);
    return cudaErrorSharedObjectInitFailed;
  }
  static Functions f;
  if (!Find(library, "cublasCreate_v2", &f.create) || !Find(library, "cublasSetStream_v2", &f.set_stream) ||
      !Find(library, "cublasSetWorkspace_v2", &f.set_workspace) || !Find(library, "cublasSetMathMode", &f.set_math_mode) ||
      !Find(library, "cublasGemmEx_64", &f.gemm) || !Find(library, "cublasGetStatusString", &f.text)) {
    std::snprintf(problem_, sizeof(problem_), "cuBLAS is too old (it has no cublasGemmEx_64); install that of CUDA 12 or 13");
    return cudaErrorSharedObjectSymbolNotFound;
  }
  cublasHandle_t handle = nullptr;
  cublasStatus_t s = f.create(&handle);
  // Halves are summed in float throughout, as kernels_api.h promises.
  if (s == CUBLAS_STATUS_SUCCESS) {
    s = f.set_math_mode(handle, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
  }
  if (s != CUBLAS_STATUS_SUCCESS) {
    std::snprintf(problem_, sizeof(problem_), "cuBLAS cannot be used: %s", f.text(s));
    return ToCuda(s);
  }
  f_ = &f;
  handle_ = handle;
  *problem = nullptr;
  return cudaSuccess;
}

cudaError_t Cublas::Gemm(int dtype, DevicePrecision precision, bool transpose_a, int64_t m, int64_t n, int64_t k, const void* a, int64_t lda,
                         bool transpose_b, const void* b, int64_t ldb, void* c, bool accumulate, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  cudaDataType_t type;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  switch (dtype) {
    case kDeviceF16: type = CUDA_R_16F; break;
    case kDeviceBF16: type = CUDA_R_16BF; break;
    case kDeviceF32:
      type = CUDA_R_32F;
      if (precision == DevicePrecision::kTf32) compute = CUBLAS_COMPUTE_32F_FAST_TF32;
      break;
    case kDeviceF64:
      type = CUDA_R_64F;
      compute = CUBLAS_COMPUTE_64F;
      break;
    default: return cudaErrorInvalidValue;
  }
  const cublasHandle_t handle = static_cast<cublasHandle_t>(handle_);
  cublasStatus_t s = f_->set_stream(handle, stream);
  // Each setting of the stream takes the workspace away.
  if (s == CUBLAS_STATUS_SUCCESS) s = f_->set_workspace(handle, workspace, workspace_bytes);
  if (s != CUBLAS_STATUS_SUCCESS) return ToCuda(s);
  const double one = 1, beta = accumulate ? 1 : 0;
  const float one_f = 1, beta_f = accumulate ? 1 : 0;
  const bool f64 = dtype == kDeviceF64;
  s = f_->gemm(handle, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, k, f64 ? static_cast<const void*>(&one) : &one_f, a, type, lda, b,
               type, ldb, f64 ? static_cast<const void*>(&beta) : &beta_f, c, type, m, compute, CUBLAS_GEMM_DEFAULT);
  return ToCuda(s);
}

}  // namespace weft::gpu
