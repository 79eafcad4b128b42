#include "common/device/cuda/plugin/driver_entry.h"

namespace weft::gpu {
namespace {

// Functions are asked for as of this version, whose signatures are those of DriverEntries.
constexpr unsigned int kVersion = 12040;

cudaError_t Find(const char* name, void** out) {
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t e = cudaGetDriverEntryPointByVersion(name, out, kVersion, cudaEnableDefault, &found);
  if (e == cudaSuccess && found == cudaDriverEntryPointSuccess) return cudaSuccess;
  *out = nullptr;
  if (e == cudaSuccess) return cudaErrorSymbolNotFound;
  (void)cudaGetLastError();
  return e;
}

}  // namespace

const DriverEntries& Driver() {
  static const DriverEntries entries = [] {
    DriverEntries d;
    d.problem = Find("cuStreamWriteValue32", reinterpret_cast<void**>(&d.stream_write_32));
    const cudaError_t wait = Find("cuStreamWaitValue32", reinterpret_cast<void**>(&d.stream_wait_32));
    if (d.problem == cudaSuccess) d.problem = wait;
    (void)Find("cuFuncLoad", reinterpret_cast<void**>(&d.func_load));
    return d;
  }();
  return entries;
}

}  // namespace weft::gpu
