#pragma once

// What weft calls of the CUDA runtime and driver, behind an interface without CUDA's headers: everything above it is compiled, and tested with
// a fake, on machines that have no toolkit; the real one lives in a library that is loaded at run time (plugin.h).
//
// Each method is one call of CUDA with the same meaning, order and thread rules, and returns its cudaError_t as a number (0: success). Handles
// are CUDA's own, as pointers without a type. Nothing here blocks but what is marked so.

#include <cstddef>
#include <cstdint>

namespace weft {

// Those of cudaError_t that weft tells apart; the numbers are CUDA's.
enum CudaCode : int {
  kCudaSuccess = 0,
  kCudaInvalidValue = 1,
  kCudaOutOfMemory = 2,
  kCudaNoDevice = 100,
  kCudaEccUncorrectable = 214,
  kCudaPeerAlreadyEnabled = 704,
  kCudaHostMemoryAlreadyRegistered = 712,
  kCudaNotReady = 600,
  kCudaIllegalAddress = 700,
  kCudaLaunchTimeout = 702,
  kCudaAssert = 710,
  kCudaHardwareStackError = 714,
  kCudaIllegalInstruction = 715,
  kCudaMisalignedAddress = 716,
  kCudaInvalidAddressSpace = 717,
  kCudaInvalidPc = 718,
  kCudaLaunchFailure = 719,
  kCudaUnknown = 999,
};

using CudaStreamHandle = void*;     // cudaStream_t
using CudaEventHandle = void*;      // cudaEvent_t
using CudaGraphHandle = void*;      // cudaGraph_t
using CudaGraphExecHandle = void*;  // cudaGraphExec_t

// cudaIpcMemHandle_t: opens an allocation of another process of this host.
struct CudaIpcHandle {
  char bytes[64];
};

struct CudaDeviceInfo {
  char name[256];
  char pci_bus_id[32];
  unsigned char uuid[16];
  int sm_count;
  int major, minor;  // compute capability
  uint64_t total_bytes;
  uint64_t l2_bytes;
};

class CudaApi {
 public:
  virtual ~CudaApi() = default;

  virtual const char* ErrorName(int code) = 0;
  virtual const char* ErrorText(int code) = 0;

  // Versions as CUDA writes them, 13000 for 13.0; the driver's is 0 where there is none.
  virtual int Versions(int* driver, int* runtime) = 0;
  virtual int DeviceCount(int* count) = 0;
  virtual int GetDeviceInfo(int ordinal, CudaDeviceInfo* out) = 0;
  virtual int MemInfo(uint64_t* free_bytes, uint64_t* total_bytes) = 0;
  virtual int CanAccessPeer(int device, int peer, int* can) = 0;
  // Makes `ordinal` the calling thread's device; the first call of a process makes the context (blocks for a while).
  virtual int SetDevice(int ordinal) = 0;

  virtual int StreamPriorityRange(int* least, int* greatest) = 0;
  virtual int StreamCreate(int priority, CudaStreamHandle* out) = 0;  // non-blocking against the default stream
  virtual int StreamDestroy(CudaStreamHandle s) = 0;                  // what is queued still runs
  virtual int StreamQuery(CudaStreamHandle s) = 0;
  virtual int StreamSynchronize(CudaStreamHandle s) = 0;  // blocks

  virtual int EventCreate(bool timing, CudaEventHandle* out) = 0;
  virtual int EventDestroy(CudaEventHandle e) = 0;
  virtual int EventRecord(CudaEventHandle e, CudaStreamHandle s) = 0;
  virtual int EventQuery(CudaEventHandle e) = 0;  // kCudaNotReady while the work before it is not done
  virtual int StreamWaitEvent(CudaStreamHandle s, CudaEventHandle e) = 0;
  virtual int EventElapsed(CudaEventHandle start, CudaEventHandle end, float* ms) = 0;

  virtual int Malloc(size_t bytes, void** out) = 0;  // 256-byte aligned, can be opened by other processes
  // Free, HostFree, HostUnregister and IpcClose may wait until the device is idle, and until then hold up every other call of the process:
  // where a kernel waits for a peer, and the peer for what this process would call next, nobody moves again. See CudaDevice::PutAside.
  virtual int Free(void* p) = 0;  // blocks until the device is idle
  // From the device's stream-ordered pool, which keeps what is freed.
  virtual int MallocAsync(size_t bytes, CudaStreamHandle s, void** out) = 0;
  virtual int FreeAsync(void* p, CudaStreamHandle s) = 0;
  virtual int HostAlloc(size_t bytes, void** out) = 0;  // page-locked, reachable by the device under the same address
  virtual int HostFree(void* p) = 0;                    // blocks until the device is idle
  virtual int HostRegister(void* p, size_t bytes) = 0;  // page-locks memory that is there, such as a mapped file
  virtual int HostUnregister(void* p) = 0;              // blocks until the device is idle

  // Between any two of host and device memory, found out by the addresses.
  virtual int MemcpyAsync(void* to, const void* from, size_t bytes, CudaStreamHandle s) = 0;
  // `height` rows of `width` bytes.
  virtual int Memcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                            CudaStreamHandle s) = 0;
  virtual int MemsetAsync(void* p, int value, size_t bytes, CudaStreamHandle s) = 0;

  virtual int IpcGetHandle(void* allocation, CudaIpcHandle* out) = 0;
  virtual int IpcOpen(const CudaIpcHandle& handle, void** out) = 0;
  virtual int IpcClose(void* p) = 0;  // may block until the device is idle

  // Stream memory operations on 32-bit words of device memory or registered host memory. The write comes after everything before it in the
  // stream, and whoever sees it sees that too. The wait holds the stream until the word equals `value`.
  virtual int StreamWrite32(CudaStreamHandle s, void* word, uint32_t value) = 0;
  virtual int StreamWait32(CudaStreamHandle s, void* word, uint32_t value) = 0;

  // Captures what this thread's calls put on `s`, and on streams that come to wait for events of it.
  virtual int BeginCapture(CudaStreamHandle s) = 0;
  virtual int EndCapture(CudaStreamHandle s, CudaGraphHandle* out) = 0;
  virtual int GraphInstantiate(CudaGraphHandle graph, CudaGraphExecHandle* out) = 0;
  virtual int GraphUpload(CudaGraphExecHandle exec, CudaStreamHandle s) = 0;
  virtual int GraphLaunch(CudaGraphExecHandle exec, CudaStreamHandle s) = 0;
  virtual int GraphDestroy(CudaGraphHandle graph) = 0;
  virtual int GraphExecDestroy(CudaGraphExecHandle exec) = 0;

  // Named ranges for Nsight Systems; nothing where NVTX is not there.
  virtual void RangePush(const char* name) = 0;
  virtual void RangePop() = 0;
};

}  // namespace weft
