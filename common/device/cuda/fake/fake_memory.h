#pragma once

// The memory of FakeCuda, and its books of host memory. Each allocation is a piece of one memfd, at a distance of 256 bytes from a page's
// beginning and followed by a page that cannot be touched. Freed memory cannot be touched for a long while: its addresses are kept.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/device/cuda/api/cuda_api.h"

namespace weft {

// Thread-safe. Codes are cudaError_t's, kCudaSuccess or as said.
class FakeMemory {
 public:
  FakeMemory(int devices, uint64_t bytes_of_each);
  ~FakeMemory();

  // kCudaOutOfMemory beyond the device's bytes. Its first 64 KiB are filled with 0xA5.
  int Allocate(int device, size_t bytes, bool pooled, void** out);
  // Which device `p` begins an allocation of; -1: none, or one whose release is under way.
  int DeviceOf(const void* p) const;
  // From now on DeviceOf says -1 and Release alone may follow. kCudaInvalidValue: no allocation.
  int BeginRelease(void* p);
  void Release(void* p);
  uint64_t used_bytes(int device) const;

  int AllocateHost(size_t bytes, void** out);
  int FreeHost(void* p);  // kCudaInvalidValue
  // kCudaHostMemoryAlreadyRegistered when a byte of it is; kCudaInvalidValue when one is of another kind.
  int Register(void* p, size_t bytes);
  int Unregister(void* p);  // cudaErrorHostMemoryNotRegistered (713)

  int Export(const void* p, CudaIpcHandle* out) const;  // kCudaInvalidValue: no allocation, or a pooled one
  int Open(const CudaIpcHandle& handle, void** out);    // cudaErrorInvalidResourceHandle (400): gone, or no handle at all
  int Close(void* p);                                   // kCudaInvalidValue

  // All of it in one live range of any of the four kinds.
  bool Reachable(const void* p, size_t bytes) const;
  // No byte of it was freed or closed, and it does not run over the end of a range it begins in.
  bool Usable(const void* p, size_t bytes) const;

  struct Counts {
    int allocations, host_allocations, registrations, opened;
  };
  Counts counts() const;

 private:
  enum class Kind { kDevice, kPooled, kHost, kRegistered, kOpened };
  struct Range {
    Kind kind;
    uint64_t size;           // as asked for
    int device = -1;
    bool releasing = false;
    int opens = 0;           // kOpened
    std::string key;         // kOpened: the handle's bytes
    uint64_t offset = 0;     // in the memfd
    uint64_t nonce = 0;
    char* mapping = nullptr;  // with the page behind
    uint64_t mapped = 0;
  };
  using Ranges = std::map<uintptr_t, Range>;

  // Maps `bytes` after kLead bytes, from `fd` or of no file (-1), with the page behind. False: the host has no room.
  static bool Map(int fd, uint64_t offset, uint64_t bytes, Range* range);
  const Range* Containing(uintptr_t p) const WEFT_REQUIRES(mu_);
  Ranges::const_iterator Find(const void* p, Kind a, Kind b) const WEFT_REQUIRES(mu_);
  void Forget(Ranges::const_iterator it) WEFT_REQUIRES(mu_);

  const uint64_t limit_;
  int fd_ = -1;
  mutable Mutex mu_;
  uint64_t end_ WEFT_GUARDED_BY(mu_) = 0;  // of the memfd; no place in it is used twice
  std::vector<uint64_t> used_ WEFT_GUARDED_BY(mu_);
  Ranges ranges_ WEFT_GUARDED_BY(mu_);
  std::map<uintptr_t, uint64_t> gone_ WEFT_GUARDED_BY(mu_);  // mappings that may not be touched -> bytes
  std::deque<uintptr_t> gone_order_ WEFT_GUARDED_BY(mu_);
  uint64_t gone_bytes_ WEFT_GUARDED_BY(mu_) = 0;
};

}  // namespace weft
