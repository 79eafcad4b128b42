#include "common/device/cuda/plugin/runtime.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "common/device/cuda/plugin/driver_entry.h"
#include "common/device/cuda/plugin/range.h"

namespace weft::gpu {
namespace {

static_assert(kCudaInvalidValue == cudaErrorInvalidValue && kCudaOutOfMemory == cudaErrorMemoryAllocation && kCudaNoDevice == cudaErrorNoDevice);
static_assert(kCudaEccUncorrectable == cudaErrorECCUncorrectable && kCudaPeerAlreadyEnabled == cudaErrorPeerAccessAlreadyEnabled);
static_assert(kCudaHostMemoryAlreadyRegistered == cudaErrorHostMemoryAlreadyRegistered && kCudaNotReady == cudaErrorNotReady);
static_assert(kCudaIllegalAddress == cudaErrorIllegalAddress && kCudaLaunchTimeout == cudaErrorLaunchTimeout && kCudaAssert == cudaErrorAssert);
static_assert(kCudaHardwareStackError == cudaErrorHardwareStackError && kCudaIllegalInstruction == cudaErrorIllegalInstruction);
static_assert(kCudaMisalignedAddress == cudaErrorMisalignedAddress && kCudaInvalidAddressSpace == cudaErrorInvalidAddressSpace);
static_assert(kCudaInvalidPc == cudaErrorInvalidPc && kCudaLaunchFailure == cudaErrorLaunchFailure && kCudaUnknown == cudaErrorUnknown);
static_assert(sizeof(CudaIpcHandle) == sizeof(cudaIpcMemHandle_t));

// The runtime also keeps the last error for the thread, and a later call may return it as if it were its own: whoever got it takes it away.
int Code(cudaError_t e) {
  if (e != cudaSuccess) (void)cudaGetLastError();
  return static_cast<int>(e);
}

cudaStream_t Stream(CudaStreamHandle s) { return static_cast<cudaStream_t>(s); }
cudaEvent_t Event(CudaEventHandle e) { return static_cast<cudaEvent_t>(e); }

class RealCuda final : public CudaApi {
 public:
  const char* ErrorName(int code) override { return cudaGetErrorName(static_cast<cudaError_t>(code)); }
  const char* ErrorText(int code) override { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

  int Versions(int* driver, int* runtime) override {
    const int e = Code(cudaDriverGetVersion(driver));
    return e != kCudaSuccess ? e : Code(cudaRuntimeGetVersion(runtime));
  }
  int DeviceCount(int* count) override {
    *count = 0;
    return Code(cudaGetDeviceCount(count));
  }
  int GetDeviceInfo(int ordinal, CudaDeviceInfo* out) override;
  int MemInfo(uint64_t* free_bytes, uint64_t* total_bytes) override {
    size_t f = 0, t = 0;
    const int e = Code(cudaMemGetInfo(&f, &t));
    *free_bytes = f;
    *total_bytes = t;
    return e;
  }
  int CanAccessPeer(int device, int peer, int* can) override { return Code(cudaDeviceCanAccessPeer(can, device, peer)); }
  int SetDevice(int ordinal) override;

  int StreamPriorityRange(int* least, int* greatest) override { return Code(cudaDeviceGetStreamPriorityRange(least, greatest)); }
  int StreamCreate(int priority, CudaStreamHandle* out) override {
    return Code(cudaStreamCreateWithPriority(reinterpret_cast<cudaStream_t*>(out), cudaStreamNonBlocking, priority));
  }
  int StreamDestroy(CudaStreamHandle s) override { return Code(cudaStreamDestroy(Stream(s))); }
  int StreamQuery(CudaStreamHandle s) override { return Code(cudaStreamQuery(Stream(s))); }
  int StreamSynchronize(CudaStreamHandle s) override { return Code(cudaStreamSynchronize(Stream(s))); }

  int EventCreate(bool timing, CudaEventHandle* out) override {
    return Code(cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(out), timing ? cudaEventDefault : cudaEventDisableTiming));
  }
  int EventDestroy(CudaEventHandle e) override { return Code(cudaEventDestroy(Event(e))); }
  int EventRecord(CudaEventHandle e, CudaStreamHandle s) override { return Code(cudaEventRecord(Event(e), Stream(s))); }
  int EventQuery(CudaEventHandle e) override { return Code(cudaEventQuery(Event(e))); }
  int StreamWaitEvent(CudaStreamHandle s, CudaEventHandle e) override { return Code(cudaStreamWaitEvent(Stream(s), Event(e), 0)); }
  int EventElapsed(CudaEventHandle start, CudaEventHandle end, float* ms) override {
    return Code(cudaEventElapsedTime(ms, Event(start), Event(end)));
  }

  int Malloc(size_t bytes, void** out) override { return Code(cudaMalloc(out, bytes)); }
  int Free(void* p) override { return Code(cudaFree(p)); }
  int MallocAsync(size_t bytes, CudaStreamHandle s, void** out) override { return Code(cudaMallocAsync(out, bytes, Stream(s))); }
  int FreeAsync(void* p, CudaStreamHandle s) override { return Code(cudaFreeAsync(p, Stream(s))); }
  int HostAlloc(size_t bytes, void** out) override { return Code(cudaHostAlloc(out, bytes, cudaHostAllocPortable | cudaHostAllocMapped)); }
  int HostFree(void* p) override { return Code(cudaFreeHost(p)); }
  int HostRegister(void* p, size_t bytes) override {
    return Code(cudaHostRegister(p, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
  }
  int HostUnregister(void* p) override { return Code(cudaHostUnregister(p)); }

  int MemcpyAsync(void* to, const void* from, size_t bytes, CudaStreamHandle s) override {
    return Code(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, Stream(s)));
  }
  int Memcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, CudaStreamHandle s) override {
    return Code(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, cudaMemcpyDefault, Stream(s)));
  }
  int MemsetAsync(void* p, int value, size_t bytes, CudaStreamHandle s) override { return Code(cudaMemsetAsync(p, value, bytes, Stream(s))); }

  int IpcGetHandle(void* allocation, CudaIpcHandle* out) override {
    cudaIpcMemHandle_t h;
    const int e = Code(cudaIpcGetMemHandle(&h, allocation));
    if (e == kCudaSuccess) std::memcpy(out, &h, sizeof(h));
    return e;
  }
  int IpcOpen(const CudaIpcHandle& handle, void** out) override {
    cudaIpcMemHandle_t h;
    std::memcpy(&h, &handle, sizeof(h));
    return Code(cudaIpcOpenMemHandle(out, h, cudaIpcMemLazyEnablePeerAccess));
  }
  int IpcClose(void* p) override { return Code(cudaIpcCloseMemHandle(p)); }

  int StreamWrite32(CudaStreamHandle s, void* word, uint32_t value) override {
    const DriverEntries& driver = Driver();
    if (driver.stream_write_32 == nullptr) return driver.problem;
    // The default flags put a memory barrier before the write. CUresult's numbers are cudaError_t's.
    return driver.stream_write_32(static_cast<CUstream>(s), reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WRITE_VALUE_DEFAULT);
  }
  int StreamWait32(CudaStreamHandle s, void* word, uint32_t value) override {
    const DriverEntries& driver = Driver();
    if (driver.stream_wait_32 == nullptr) return driver.problem;
    return driver.stream_wait_32(static_cast<CUstream>(s), reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WAIT_VALUE_EQ);
  }

  int BeginCapture(CudaStreamHandle s) override { return Code(cudaStreamBeginCapture(Stream(s), cudaStreamCaptureModeThreadLocal)); }
  int EndCapture(CudaStreamHandle s, CudaGraphHandle* out) override {
    return Code(cudaStreamEndCapture(Stream(s), reinterpret_cast<cudaGraph_t*>(out)));
  }
  int GraphInstantiate(CudaGraphHandle graph, CudaGraphExecHandle* out) override {
    return Code(cudaGraphInstantiate(reinterpret_cast<cudaGraphExec_t*>(out), static_cast<cudaGraph_t>(graph), 0));
  }
  int GraphUpload(CudaGraphExecHandle exec, CudaStreamHandle s) override {
    return Code(cudaGraphUpload(static_cast<cudaGraphExec_t>(exec), Stream(s)));
  }
  int GraphLaunch(CudaGraphExecHandle exec, CudaStreamHandle s) override {
    return Code(cudaGraphLaunch(static_cast<cudaGraphExec_t>(exec), Stream(s)));
  }
  int GraphDestroy(CudaGraphHandle graph) override { return Code(cudaGraphDestroy(static_cast<cudaGraph_t>(graph))); }
  int GraphExecDestroy(CudaGraphExecHandle exec) override { return Code(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(exec))); }

  void RangePush(const char* name) override { NvtxPush(name); }
  void RangePop() override { NvtxPop(); }
};

int RealCuda::GetDeviceInfo(int ordinal, CudaDeviceInfo* out) {
  cudaDeviceProp p;
  int e = Code(cudaGetDeviceProperties(&p, ordinal));
  if (e != kCudaSuccess) return e;
  *out = {};
  std::strncpy(out->name, p.name, sizeof(out->name) - 1);
  e = Code(cudaDeviceGetPCIBusId(out->pci_bus_id, sizeof(out->pci_bus_id), ordinal));
  if (e != kCudaSuccess) return e;
  static_assert(sizeof(p.uuid) == sizeof(out->uuid));
  std::memcpy(out->uuid, &p.uuid, sizeof(out->uuid));
  out->sm_count = p.multiProcessorCount;
  out->major = p.major;
  out->minor = p.minor;
  out->total_bytes = p.totalGlobalMem;
  out->l2_bytes = static_cast<uint64_t>(p.l2CacheSize);
  return kCudaSuccess;
}

int RealCuda::SetDevice(int ordinal) {
  const int e = Code(cudaSetDevice(ordinal));
  if (e != kCudaSuccess) return e;
  // What MallocAsync's pool once had it keeps, else every synchronisation gives it back to the system.
  cudaMemPool_t pool = nullptr;
  if (cudaDeviceGetDefaultMemPool(&pool, ordinal) == cudaSuccess) {
    uint64_t all = UINT64_MAX;
    (void)cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all);
  }
  (void)cudaGetLastError();
  return kCudaSuccess;
}

}  // namespace

CudaApi* RuntimeApi() {
  static CudaApi* const api = new RealCuda;
  return api;
}

}  // namespace weft::gpu
