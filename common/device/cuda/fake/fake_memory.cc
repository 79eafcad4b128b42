#include "common/device/cuda/fake/fake_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace weft {
namespace {

constexpr char kFileName[] = "weft-fake-cuda";
constexpr uint64_t kMagic = 0x776566742d697063;  // "weft-ipc"
constexpr uint64_t kPage = 4096;
constexpr uint64_t kLead = 256;  // before the memory: what tells an importer that the allocation still lives
constexpr uint64_t kGoneBytes = uint64_t{4} << 30;
constexpr size_t kFilledBytes = size_t{64} << 10;
constexpr int kInvalidHandle = 400;
constexpr int kHostMemoryNotRegistered = 713;

struct Lead {
  uint64_t magic, nonce, size;
};
struct Handle {
  uint64_t magic;
  int32_t pid, fd;
  uint64_t offset, size, nonce;
};
static_assert(sizeof(Handle) <= sizeof(CudaIpcHandle) && sizeof(Lead) <= kLead);

uint64_t PageUp(uint64_t n) { return (n + kPage - 1) / kPage * kPage; }

uint64_t Random() {
  std::random_device source;
  return uint64_t{source()} << 32 | source();
}

}  // namespace

FakeMemory::FakeMemory(int devices, uint64_t bytes_of_each) : limit_(bytes_of_each), used_(std::max(devices, 0), 0) {
  fd_ = memfd_create(kFileName, MFD_CLOEXEC);
}

FakeMemory::~FakeMemory() {
  for (const auto& [p, range] : ranges_) {
    if (range.mapping != nullptr) munmap(range.mapping, range.mapped);
  }
  for (const auto& [p, bytes] : gone_) munmap(reinterpret_cast<void*>(p), bytes);
  if (fd_ >= 0) close(fd_);
}

bool FakeMemory::Map(int fd, uint64_t offset, uint64_t bytes, Range* range) {
  const uint64_t usable = PageUp(kLead + bytes);
  void* const p = mmap(nullptr, usable + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return false;
  const int flags = MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  if (mmap(p, usable, PROT_READ | PROT_WRITE, flags, fd, fd < 0 ? 0 : static_cast<off_t>(offset)) == MAP_FAILED) {
    munmap(p, usable + kPage);
    return false;
  }
  range->mapping = static_cast<char*>(p);
  range->mapped = usable + kPage;
  range->offset = offset;
  return true;
}

int FakeMemory::Allocate(int device, size_t bytes, bool pooled, void** out) {
  if (out == nullptr || bytes == 0) return kCudaInvalidValue;
  MutexLock lock(&mu_);
  const uint64_t charge = (bytes + 255) / 256 * 256;
  if (charge < bytes || charge > limit_ - used_[device]) return kCudaOutOfMemory;
  Range r{pooled ? Kind::kPooled : Kind::kDevice, bytes};
  const uint64_t offset = end_;
  const uint64_t end = offset + PageUp(kLead + bytes);
  if (ftruncate(fd_, static_cast<off_t>(end)) != 0 || !Map(fd_, offset, bytes, &r)) return kCudaOutOfMemory;
  end_ = end;
  r.device = device;
  r.nonce = Random();
  const Lead lead{kMagic, r.nonce, bytes};
  std::memcpy(r.mapping, &lead, sizeof(lead));
  char* const p = r.mapping + kLead;
  std::memset(p, 0xA5, std::min(bytes, kFilledBytes));
  used_[device] += charge;
  ranges_[reinterpret_cast<uintptr_t>(p)] = r;
  *out = p;
  return kCudaSuccess;
}

FakeMemory::Ranges::const_iterator FakeMemory::Find(const void* p, Kind a, Kind b) const {
  const auto it = ranges_.find(reinterpret_cast<uintptr_t>(p));
  if (it == ranges_.end() || (it->second.kind != a && it->second.kind != b) || it->second.releasing) return ranges_.end();
  return it;
}

void FakeMemory::Forget(Ranges::const_iterator it) {
  const Range& r = it->second;
  if (r.mapping != nullptr) {
    // Another mapping at the same addresses: what the old one held is given back, and touching it is a fault.
    mmap(r.mapping, r.mapped, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    gone_[reinterpret_cast<uintptr_t>(r.mapping)] = r.mapped;
    gone_order_.push_back(reinterpret_cast<uintptr_t>(r.mapping));
    gone_bytes_ += r.mapped;
  }
  ranges_.erase(it);
  while (gone_bytes_ > kGoneBytes) {
    const auto oldest = gone_.find(gone_order_.front());
    gone_order_.pop_front();
    munmap(reinterpret_cast<void*>(oldest->first), oldest->second);
    gone_bytes_ -= oldest->second;
    gone_.erase(oldest);
  }
}

int FakeMemory::DeviceOf(const void* p) const {
  MutexLock lock(&mu_);
  const auto it = Find(p, Kind::kDevice, Kind::kPooled);
  return it == ranges_.end() ? -1 : it->second.device;
}

int FakeMemory::BeginRelease(void* p) {
  MutexLock lock(&mu_);
  if (Find(p, Kind::kDevice, Kind::kPooled) == ranges_.end()) return kCudaInvalidValue;
  ranges_[reinterpret_cast<uintptr_t>(p)].releasing = true;
  return kCudaSuccess;
}

void FakeMemory::Release(void* p) {
  MutexLock lock(&mu_);
  const auto it = ranges_.find(reinterpret_cast<uintptr_t>(p));
  if (it == ranges_.end()) return;
  const Range& r = it->second;
  used_[r.device] -= (r.size + 255) / 256 * 256;
  // Whoever still has it open reads zeros from now on, and its handle opens nothing.
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(r.offset), static_cast<off_t>(PageUp(kLead + r.size)));
  Forget(it);
}

uint64_t FakeMemory::used_bytes(int device) const {
  MutexLock lock(&mu_);
  return used_[device];
}

int FakeMemory::AllocateHost(size_t bytes, void** out) {
  if (out == nullptr || bytes == 0) return kCudaInvalidValue;
  MutexLock lock(&mu_);
  Range r{Kind::kHost, bytes};
  if (bytes > (uint64_t{1} << 46) || !Map(-1, 0, bytes, &r)) return kCudaOutOfMemory;
  std::memset(r.mapping + kLead, 0xA5, std::min(bytes, kFilledBytes));
  *out = r.mapping + kLead;
  ranges_[reinterpret_cast<uintptr_t>(*out)] = r;
  return kCudaSuccess;
}

int FakeMemory::FreeHost(void* p) {
  MutexLock lock(&mu_);
  const auto it = Find(p, Kind::kHost, Kind::kHost);
  if (it == ranges_.end()) return kCudaInvalidValue;
  Forget(it);
  return kCudaSuccess;
}

int FakeMemory::Register(void* p, size_t bytes) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(p);
  if (p == nullptr || bytes == 0 || at + bytes < at) return kCudaInvalidValue;
  MutexLock lock(&mu_);
  const auto next = ranges_.upper_bound(at);
  const Range* const other = next != ranges_.end() && next->first < at + bytes ? &next->second : Containing(at);
  if (other != nullptr) return other->kind == Kind::kRegistered ? kCudaHostMemoryAlreadyRegistered : kCudaInvalidValue;
  ranges_[at] = Range{Kind::kRegistered, bytes};
  return kCudaSuccess;
}

int FakeMemory::Unregister(void* p) {
  MutexLock lock(&mu_);
  const auto it = Find(p, Kind::kRegistered, Kind::kRegistered);
  if (it == ranges_.end()) return kHostMemoryNotRegistered;
  Forget(it);
  return kCudaSuccess;
}

int FakeMemory::Export(const void* p, CudaIpcHandle* out) const {
  if (out == nullptr) return kCudaInvalidValue;
  MutexLock lock(&mu_);
  const auto it = Find(p, Kind::kDevice, Kind::kDevice);
  if (it == ranges_.end()) return kCudaInvalidValue;
  const Handle handle{kMagic, getpid(), fd_, it->second.offset, it->second.size, it->second.nonce};
  *out = CudaIpcHandle{};
  std::memcpy(out->bytes, &handle, sizeof(handle));
  return kCudaSuccess;
}

int FakeMemory::Open(const CudaIpcHandle& bytes, void** out) {
  if (out == nullptr) return kCudaInvalidValue;
  Handle handle;
  std::memcpy(&handle, bytes.bytes, sizeof(handle));
  if (handle.magic != kMagic || handle.offset % kPage != 0 || handle.size == 0 || handle.size > (uint64_t{1} << 46)) return kInvalidHandle;
  const std::string key(bytes.bytes, sizeof(bytes.bytes));
  MutexLock lock(&mu_);
  for (auto& [p, range] : ranges_) {
    if (range.kind == Kind::kOpened && range.key == key) {
      ++range.opens;
      *out = reinterpret_cast<void*>(p);
      return kCudaSuccess;
    }
  }
  const std::string path = "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.fd);
  char target[64] = {};
  if (readlink(path.c_str(), target, sizeof(target) - 1) < 0) return kInvalidHandle;
  // Other kinds of file could block, or do something, when opened.
  if (std::string(target).rfind(std::string("/memfd:") + kFileName, 0) != 0) return kInvalidHandle;
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return kInvalidHandle;
  Lead lead{};
  const bool there = pread(fd, &lead, sizeof(lead), static_cast<off_t>(handle.offset)) == sizeof(lead);
  const bool same = there && lead.magic == kMagic && lead.nonce == handle.nonce && lead.size == handle.size;
  Range r{Kind::kOpened, handle.size};
  const bool mapped = same && Map(fd, handle.offset, handle.size, &r);
  close(fd);
  if (!same) return kInvalidHandle;
  if (!mapped) return kCudaOutOfMemory;
  r.opens = 1;
  r.key = key;
  *out = r.mapping + kLead;
  ranges_[reinterpret_cast<uintptr_t>(*out)] = r;
  return kCudaSuccess;
}

int FakeMemory::Close(void* p) {
  MutexLock lock(&mu_);
  const auto it = Find(p, Kind::kOpened, Kind::kOpened);
  if (it == ranges_.end()) return kCudaInvalidValue;
  if (--ranges_[it->first].opens == 0) Forget(it);
  return kCudaSuccess;
}

const FakeMemory::Range* FakeMemory::Containing(uintptr_t p) const {
  auto it = ranges_.upper_bound(p);
  if (it == ranges_.begin()) return nullptr;
  --it;
  return p - it->first < it->second.size ? &it->second : nullptr;
}

bool FakeMemory::Reachable(const void* p, size_t bytes) const {
  const uintptr_t at = reinterpret_cast<uintptr_t>(p);
  MutexLock lock(&mu_);
  auto it = ranges_.upper_bound(at);
  if (it == ranges_.begin()) return false;
  --it;
  return at - it->first < it->second.size && bytes <= it->second.size - (at - it->first);
}

bool FakeMemory::Usable(const void* p, size_t bytes) const {
  if (bytes == 0) return true;
  const uintptr_t at = reinterpret_cast<uintptr_t>(p);
  if (at < kPage || at + bytes < at) return false;
  MutexLock lock(&mu_);
  auto it = ranges_.upper_bound(at);
  if (it != ranges_.begin()) {
    --it;
    const Range& r = it->second;
    const bool begins_in = at - it->first < r.size;
    // Host memory that is registered in pieces may be used as one.
    if (begins_in && r.kind != Kind::kRegistered) return bytes <= r.size - (at - it->first);
  }
  auto gone = gone_.upper_bound(at + bytes - 1);
  if (gone == gone_.begin()) return true;
  --gone;
  return gone->first + gone->second <= at;
}

FakeMemory::Counts FakeMemory::counts() const {
  MutexLock lock(&mu_);
  Counts c{};
  for (const auto& [p, range] : ranges_) {
    switch (range.kind) {
      case Kind::kDevice:
      case Kind::kPooled: ++c.allocations; break;
      case Kind::kHost: ++c.host_allocations; break;
      case Kind::kRegistered: ++c.registrations; break;
      case Kind::kOpened: ++c.opened; break;
    }
  }
  return c;
}

}  // namespace weft
