#include "client/doctor/probe_server.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

// Places for values in flight between two processes: as a prefetch depth of one gives an edge.
constexpr int kSlots = 2;
constexpr int kWarmUp = 4;
constexpr size_t kFlagBytes = 4096;
// Word of a slot among the flags: "the value is there", set by the sender in the receiver's memory, and "it is read", the other way round.
constexpr size_t kReady = 0;
constexpr size_t kRead = kSlots;
constexpr int kMaxCtas = 16;
// Few enough to be queued on a stream that stands still.
constexpr int kPingPongs = 64;
// CUDA packs small allocations into blocks of this size, and a block is what other processes open.
constexpr uint64_t kBlock = uint64_t{2} << 20;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;

std::atomic_ref<uint32_t> Word(void* p, size_t i) { return std::atomic_ref<uint32_t>(static_cast<uint32_t*>(p)[i]); }

// Memory as weft shares it between processes of a host.
class MemoryFile {
 public:
  static absl::StatusOr<std::unique_ptr<MemoryFile>> Make(size_t bytes) {
    const int fd = memfd_create("weft-doctor", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
      const std::string why = strerror(errno);
      if (fd >= 0) close(fd);
      return absl::ResourceExhaustedError(absl::StrCat("making a memory file of ", FormatBytes(bytes), ": ", why));
    }
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const std::string why = strerror(errno);
    close(fd);
    if (p == MAP_FAILED) return absl::ResourceExhaustedError(absl::StrCat("mapping a memory file of ", FormatBytes(bytes), ": ", why));
    return std::unique_ptr<MemoryFile>(new MemoryFile(p, bytes));
  }
  ~MemoryFile() { munmap(data_, bytes_); }

  unsigned char* data() const { return static_cast<unsigned char*>(data_); }

 private:
  MemoryFile(void* p, size_t bytes) : data_(p), bytes_(bytes) {}
  void* const data_;
  const size_t bytes_;
};

template <typename F>
class Cleanup {
 public:
  explicit Cleanup(F f) : f_(std::move(f)) {}
  ~Cleanup() { f_(); }
  Cleanup(const Cleanup&) = delete;
  Cleanup& operator=(const Cleanup&) = delete;

 private:
  F f_;
};

template <typename T>
std::string Hex(const T& bytes) {
  return absl::BytesToHexString(absl::string_view(bytes.bytes, sizeof(bytes.bytes)));
}

template <typename T>
absl::StatusOr<T> FromHex(const std::string& text) {
  T out;
  const std::string bytes = text.size() == 2 * sizeof(out.bytes) ? absl::HexStringToBytes(text) : "";
  if (bytes.size() != sizeof(out.bytes)) return absl::InvalidArgumentError("a handle of another length came");
  memcpy(out.bytes, bytes.data(), bytes.size());
  return out;
}

absl::StatusOr<uint64_t> Bytes(const nlohmann::json& request) {
  const uint64_t bytes = request.at("bytes");
  if (bytes == 0 || bytes > kMostBytes) return absl::InvalidArgumentError(absl::StrCat(bytes, " bytes were asked for"));
  return bytes;
}

}  // namespace

void FillPattern(uint64_t seed, unsigned char* to, size_t n) {
  uint64_t x = seed * 2 + 1;
  for (size_t i = 0; i < n; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    to[i] = static_cast<unsigned char>(x >> 56);
  }
}

ProbeServer::ProbeServer(absl::StatusOr<const CudaPlugin*> plugin, const Clock* clock, Nanos patience)
    : plugin_(std::move(plugin)), clock_(clock), patience_(patience) {
  if (plugin_.ok()) cuda_ = (*plugin_)->cuda;
}

ProbeServer::~ProbeServer() {
  if (stream_ == nullptr) return;
  (void)cuda_->SetDevice(gpu_);
  FreeExposed();
  (void)cuda_->StreamDestroy(stream_);
}

void ProbeServer::FreeExposed() {
  if (exposed_ != nullptr) (void)cuda_->Free(exposed_);
  if (flags_ != nullptr) (void)cuda_->Free(flags_);
  exposed_ = flags_ = nullptr;
}

absl::Status ProbeServer::Check(int code, const std::string& what) const {
  if (code == kCudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", cuda_->ErrorText(code), " (", cuda_->ErrorName(code), ")"));
}

absl::Status ProbeServer::Await(const std::string& what) const {
  const Nanos until = clock_->Now() + patience_;
  for (;;) {
    const int code = cuda_->StreamQuery(stream_);
    if (code != kCudaNotReady) return Check(code, what);
    if (clock_->Now() > until) {
      return absl::DeadlineExceededError(absl::StrCat(what, ": not done within ", FormatSeconds(ToSeconds(patience_))));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

absl::Status ProbeServer::CheckNccl(int code, const std::string& what, NcclCommHandle comm) const {
  if (code == kNcclSuccess) return absl::OkStatus();
  NcclApi* const nccl = (*plugin_)->nccl;
  const char* const last = nccl->LastError(comm);
  return absl::InternalError(
      absl::StrCat(what, ": ", nccl->ErrorText(code), last == nullptr || *last == '\0' ? "" : ", ", last == nullptr ? "" : last));
}

absl::Status ProbeServer::AwaitNccl(int code, const std::string& what, NcclCommHandle comm) const {
  const Nanos until = clock_->Now() + patience_;
  while (code == kNcclInProgress) {
    const int asked = (*plugin_)->nccl->GetAsyncError(comm, &code);
    if (asked != kNcclSuccess) return CheckNccl(asked, what, comm);
    if (code != kNcclInProgress) break;
    if (clock_->Now() > until) {
      return absl::DeadlineExceededError(absl::StrCat(what, ": not done within ", FormatSeconds(ToSeconds(patience_))));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return CheckNccl(code, what, comm);
}

std::string ProbeServer::Answer(const std::string& request) {
  absl::StatusOr<Json> reply = absl::InternalError("");
  try {
    reply = Do(Json::parse(request));
  } catch (const Json::exception& e) {
    reply = absl::InvalidArgumentError(e.what());
  }
  if (!reply.ok()) reply = Json{{"error", std::string(reply.status().message())}};
  return reply->dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<ProbeServer::Json> ProbeServer::Do(const Json& request) {
  WEFT_RETURN_IF_ERROR(plugin_.status());
  const std::string what = request.at("do");
  if (what == "facts") return Facts();
  if (what == "take") return Take(request);
  if (what == "nccl_id") {
    if ((*plugin_)->nccl == nullptr) return absl::UnavailableError("NCCL is not there");
    NcclId id;
    WEFT_RETURN_IF_ERROR(CheckNccl((*plugin_)->nccl->GetUniqueId(&id), "making NCCL's id", nullptr));
    return Json{{"id", Hex(id)}};
  }
  if (stream_ == nullptr) return absl::FailedPreconditionError(absl::StrCat(what, ": no GPU was taken"));
  WEFT_RETURN_IF_ERROR(Check(cuda_->SetDevice(gpu_), absl::StrCat("taking GPU ", gpu_)));
  if (what == "stream_memory") return StreamMemory();
  if (what == "host_copy") return HostCopy(request);
  if (what == "expose") return Expose(request);
  if (what == "read") return Read(request);
  if (what == "ipc_send") return IpcSend(request);
  if (what == "ipc_receive") return IpcReceive(request);
  if (what == "nccl") return Nccl(request);
  return absl::InvalidArgumentError(absl::StrCat("no request \"", what, "\""));
}

absl::StatusOr<ProbeServer::Json> ProbeServer::Facts() {
  Json out;
  int driver = 0, runtime = 0, count = 0;
  WEFT_RETURN_IF_ERROR(Check(cuda_->Versions(&driver, &runtime), "asking for CUDA's versions"));
  out["driver"] = driver;
  out["runtime"] = runtime;
  if ((*plugin_)->nccl == nullptr) {
    out["nccl_problem"] = (*plugin_)->nccl_problem == nullptr ? "NCCL is not there" : (*plugin_)->nccl_problem;
  } else {
    int version = 0;
    const absl::Status asked = CheckNccl((*plugin_)->nccl->Version(&version), "asking for NCCL's version", nullptr);
    out["nccl"] = version;
    if (!asked.ok()) out["nccl_problem"] = std::string(asked.message());
  }
  const int code = cuda_->DeviceCount(&count);
  if (code != kCudaSuccess || count == 0) {
    // With the versions, which may say why.
    out["error"] = code == kCudaSuccess ? "CUDA shows no GPU" : std::string(Check(code, "looking for GPUs").message());
    return out;
  }
  out["gpus"] = Json::array();
  out["peers"] = Json::array();
  for (int i = 0; i < count; ++i) {
    CudaDeviceInfo info{};
    WEFT_RETURN_IF_ERROR(Check(cuda_->GetDeviceInfo(i, &info), absl::StrCat("asking for GPU ", i)));
    out["gpus"].push_back({{"name", info.name},
                           {"pci", info.pci_bus_id},
                           {"sm_count", info.sm_count},
                           {"major", info.major},
                           {"minor", info.minor},
                           {"bytes", info.total_bytes}});
    Json row = Json::array();
    for (int j = 0; j < count; ++j) {
      int can = 0;
      if (i != j)
        WEFT_RETURN_IF_ERROR(Check(cuda_->CanAccessPeer(i, j, &can), absl::StrCat("asking for access from GPU ", i, " to GPU ", j)));
      row.push_back(can);
    }
    out["peers"].push_back(row);
  }
  return out;
}

absl::StatusOr<ProbeServer::Json> ProbeServer::Take(const Json& request) {
  if (stream_ != nullptr) return absl::FailedPreconditionError(absl::StrCat("GPU ", gpu_, " is taken already"));
  const int gpu = request.at("gpu");
  WEFT_RETURN_IF_ERROR(Check(cuda_->SetDevice(gpu), absl::StrCat("taking GPU ", gpu)));
  uint64_t free_bytes = 0, total = 0;
  WEFT_RETURN_IF_ERROR(Check(cuda_->MemInfo(&free_bytes, &total), "asking for its memory"));
  CudaStreamHandle stream = nullptr;
  WEFT_RETURN_IF_ERROR(Check(cuda_->StreamCreate(0, &stream), "making a stream"));
  stream_ = stream;
  gpu_ = gpu;
  Json out{{"free", free_bytes}, {"total", total}};
  const char* problem = nullptr;
  const int code = (*plugin_)->kernels == nullptr ? kCudaSuccess : (*plugin_)->kernels->Load(&problem);
  if (code != kCudaSuccess) {
    out["kernels_problem"] = problem != nullptr ? problem : std::string(Check(code, "loading weft's device code").message());
  }
  return out;
}

absl::StatusOr<ProbeServer::Json> ProbeServer::StreamMemory() {
  WEFT_ASSIGN_OR_RETURN(const auto file, MemoryFile::Make(4096));
  WEFT_RETURN_IF_ERROR(Check(cuda_->HostRegister(file->data(), 4096), "registering a memory file"));
  const Cleanup unregister([&] { (void)cuda_->HostUnregister(file->data()); });
  auto ask = Word(file->data(), 0);
  auto answer = Word(file->data(), 32);  // another cache line
  // Whatever happens below, the stream is let go: a wait that is left would hold the device until the process ends.
  const Cleanup release([&] {
    for (uint32_t i = answer.load() + 1; i <= kPingPongs && cuda_->StreamQuery(stream_) == kCudaNotReady; ++i) {
      ask.store(i);
      const Nanos until = clock_->Now() + patience_ / kPingPongs;
      while (answer.load() != i && cuda_->StreamQuery(stream_) == kCudaNotReady && clock_->Now() < until) {
      }
    }
  });
  for (uint32_t i = 1; i <= kPingPongs; ++i) {
    WEFT_RETURN_IF_ERROR(Check(cuda_->StreamWait32(stream_, file->data(), i), "having a stream wait for a word of registered memory"));
    WEFT_RETURN_IF_ERROR(Check(cuda_->StreamWrite32(stream_, file->data() + 128, i), "having a stream write a word of registered memory"));
  }
  if (cuda_->StreamQuery(stream_) != kCudaNotReady || answer.load() != 0) {
    return absl::InternalError("a stream did not wait for a word of registered memory");
  }
  const Nanos begin = clock_->Now();
  const Nanos until = begin + patience_;
  for (uint32_t i = 1; i <= kPingPongs; ++i) {
    ask.store(i);
    while (answer.load() != i) {
      if (clock_->Now() > until)
        return absl::DeadlineExceededError(
            "a stream did not see a word that the host wrote into registered memory, or the host not its answer");
    }
  }
  const Nanos end = clock_->Now();
  WEFT_RETURN_IF_ERROR(Await("stream memory operations"));
  return Json{{"seconds", ToSeconds(end - begin) / kPingPongs}};
}

template <typename Round>
absl::StatusOr<double> ProbeServer::Time(int rounds, const std::string& what, Round round) {
  CudaEventHandle begin = nullptr, end = nullptr;
  WEFT_RETURN_IF_ERROR(Check(cuda_->EventCreate(true, &begin), "making an event"));
  const Cleanup destroy_begin([&] { (void)cuda_->EventDestroy(begin); });
  WEFT_RETURN_IF_ERROR(Check(cuda_->EventCreate(true, &end), "making an event"));
  const Cleanup destroy_end([&] { (void)cuda_->EventDestroy(end); });
  for (int i = 0; i < kWarmUp + rounds; ++i) {
    if (i == kWarmUp) WEFT_RETURN_IF_ERROR(Check(cuda_->EventRecord(begin, stream_), what));
    WEFT_RETURN_IF_ERROR(round(i));
  }
  WEFT_RETURN_IF_ERROR(Check(cuda_->EventRecord(end, stream_), what));
  WEFT_RETURN_IF_ERROR(Await(what));
  float ms = 0;
  WEFT_RETURN_IF_ERROR(Check(cuda_->EventElapsed(begin, end, &ms), what));
  return static_cast<double>(ms) * 1e-3 / rounds;
}

absl::StatusOr<ProbeServer::Json> ProbeServer::HostCopy(const Json& request) {
  WEFT_ASSIGN_OR_RETURN(const uint64_t bytes, Bytes(request));
  WEFT_ASSIGN_OR_RETURN(const auto from, MemoryFile::Make(bytes));
  WEFT_ASSIGN_OR_RETURN(const auto to, MemoryFile::Make(bytes));
  FillPattern(1, from->data(), bytes);
  void* device = nullptr;
  WEFT_RETURN_IF_ERROR(Check(cuda_->HostRegister(from->data(), bytes), absl::StrCat("registering a memory file of ", FormatBytes(bytes))));
  const Cleanup unregister_from([&] { (void)cuda_->HostUnregister(from->data()); });
  WEFT_RETURN_IF_ERROR(Check(cuda_->HostRegister(to->data(), bytes), absl::StrCat("registering a memory file of ", FormatBytes(bytes))));
  const Cleanup unregister_to([&] { (void)cuda_->HostUnregister(to->data()); });
  WEFT_RETURN_IF_ERROR(Check(cuda_->Malloc(bytes, &device), absl::StrCat("allocating ", FormatBytes(bytes))));
  const Cleanup free_device([&] { (void)cuda_->Free(device); });
  constexpr int kRounds = 4;
  WEFT_ASSIGN_OR_RETURN(const double there, Time(kRounds, "copying from registered memory to the device", [&](int) {
                          return Check(cuda_->MemcpyAsync(device, from->data(), bytes, stream_),
                                       "copying from registered memory to the device");
                        }));
  WEFT_ASSIGN_OR_RETURN(const double back, Time(kRounds, "copying from the device to registered memory", [&](int) {
                          return Check(cuda_->MemcpyAsync(to->data(), device, bytes, stream_),
                                       "copying from the device to registered memory");
                        }));
  if (memcmp(from->data(), to->data(), bytes) != 0) return absl::DataLossError("bytes that went to the device and back are not the same");
  const auto speed = [bytes](double s) { return static_cast<double>(bytes) / std::max(s, 1e-12); };
  return Json{{"to_device", speed(there)}, {"from_device", speed(back)}};
}

absl::StatusOr<ProbeServer::Json> ProbeServer::Expose(const Json& request) {
  WEFT_ASSIGN_OR_RETURN(const uint64_t bytes, Bytes(request));
  FreeExposed();
  void* p = nullptr;
  WEFT_RETURN_IF_ERROR(Check(cuda_->Malloc(std::max(bytes, kBlock), &p), absl::StrCat("allocating ", FormatBytes(bytes))));
  exposed_ = static_cast<char*>(p);
  exposed_bytes_ = bytes;
  WEFT_RETURN_IF_ERROR(Check(cuda_->Malloc(kBlock, &p), "allocating flags"));
  flags_ = static_cast<char*>(p);
  void* host = nullptr;
  WEFT_RETURN_IF_ERROR(Check(cuda_->HostAlloc(bytes, &host), absl::StrCat("allocating ", FormatBytes(bytes), " of page-locked memory")));
  const Cleanup free_host([&] { (void)cuda_->HostFree(host); });
  FillPattern(request.at("seed"), static_cast<unsigned char*>(host), bytes);
  WEFT_RETURN_IF_ERROR(Check(cuda_->MemcpyAsync(exposed_, host, bytes, stream_), "filling memory"));
  WEFT_RETURN_IF_ERROR(Check(cuda_->MemsetAsync(flags_, 0, kFlagBytes, stream_), "clearing flags"));
  WEFT_RETURN_IF_ERROR(Await("filling memory"));
  CudaIpcHandle memory{}, flags{};
  WEFT_RETURN_IF_ERROR(Check(cuda_->IpcGetHandle(exposed_, &memory), "getting an IPC handle"));
  WEFT_RETURN_IF_ERROR(Check(cuda_->IpcGetHandle(flags_, &flags), "getting an IPC handle"));
  return Json{{"handle", Hex(memory)}, {"flags", Hex(flags)}};
}

absl::StatusOr<void*> ProbeServer::Open(const Json& request, const char* field) {
  WEFT_ASSIGN_OR_RETURN(const CudaIpcHandle handle, FromHex<CudaIpcHandle>(request.at(field)));
  void* p = nullptr;
  WEFT_RETURN_IF_ERROR(Check(cuda_->IpcOpen(handle, &p), "opening another process's memory"));
  return p;
}

absl::StatusOr<ProbeServer::Json> ProbeServer::Read(const Json& request) {
  WEFT_ASSIGN_OR_RETURN(const uint64_t bytes, Bytes(request));
  WEFT_ASSIGN_OR_RETURN(void* const peer, Open(request, "handle"));
  const Cleanup close([&] { (void)cuda_->IpcClose(peer); });
  // First into this GPU's memory, as a receive does.
  void* device = nullptr;
  void* host = nullptr;
  WEFT_RETURN_IF_ERROR(Check(cuda_->Malloc(bytes, &device), absl::StrCat("allocating ", FormatBytes(bytes))));
  const Cleanup free_device([&] { (void)cuda_->Free(device); });
  WEFT_RETURN_IF_ERROR(Check(cuda_->HostAlloc(bytes, &host), absl::StrCat("allocating ", FormatBytes(bytes), " of page-locked memory")));
  const Cleanup free_host([&] { (void)cuda_->HostFree(host); });
  WEFT_RETURN_IF_ERROR(Check(cuda_->MemcpyAsync(device, peer, bytes, stream_), "copying from another process's memory"));
  WEFT_RETURN_IF_ERROR(Check(cuda_->MemcpyAsync(host, device, bytes, stream_), "copying from the device"));
  WEFT_RETURN_IF_ERROR(Await("copying from another process's memory"));
  std::vector<unsigned char> want(bytes);
  FillPattern(request.at("seed"), want.data(), bytes);
  if (memcmp(want.data(), host, bytes) != 0)
    return absl::DataLossError("another process's memory, read through IPC, has other bytes than it wrote");
  return Json{{"ok", true}};
}

absl::StatusOr<ProbeServer::Json> ProbeServer::IpcSend(const Json& request) {
  if (exposed_ == nullptr) return absl::FailedPreconditionError("nothing is exposed");
  const int rounds = request.at("rounds");
  WEFT_ASSIGN_OR_RETURN(void* const peer, Open(request, "flags"));
  const Cleanup close([&] { (void)cuda_->IpcClose(peer); });
  uint32_t sequence = 0;
  for (size_t n = 0; n < request.at("sizes").size(); ++n) {
    for (int i = 0; i < kWarmUp + rounds; ++i) {
      const size_t slot = sequence % kSlots;
      ++sequence;
      // The value before in this place is read.
      if (sequence > kSlots) {
        WEFT_RETURN_IF_ERROR(Check(cuda_->StreamWait32(stream_, flags_ + 4 * (kRead + slot), sequence - kSlots), "waiting for a reader"));
      }
      WEFT_RETURN_IF_ERROR(
          Check(cuda_->StreamWrite32(stream_, static_cast<char*>(peer) + 4 * (kReady + slot), sequence), "telling a reader"));
    }
    WEFT_RETURN_IF_ERROR(Await("pacing transfers through IPC"));
  }
  // The reader may still be writing here.
  for (uint32_t s = sequence > kSlots ? sequence - kSlots : 0; s < sequence; ++s) {
    WEFT_RETURN_IF_ERROR(Check(cuda_->StreamWait32(stream_, flags_ + 4 * (kRead + s % kSlots), s + 1), "waiting for a reader"));
  }
  WEFT_RETURN_IF_ERROR(Await("pacing transfers through IPC"));
  return Json{{"ok", true}};
}

absl::StatusOr<ProbeServer::Json> ProbeServer::IpcReceive(const Json& request) {
  if (exposed_ == nullptr) return absl::FailedPreconditionError("nothing is exposed");
  WEFT_ASSIGN_OR_RETURN(void* const memory, Open(request, "handle"));
  const Cleanup close_memory([&] { (void)cuda_->IpcClose(memory); });
  WEFT_ASSIGN_OR_RETURN(void* const peer, Open(request, "flags"));
  const Cleanup close_flags([&] { (void)cuda_->IpcClose(peer); });
  Json seconds = Json::array();
  uint32_t sequence = 0;
  for (const uint64_t size : request.at("sizes")) {
    if (size > exposed_bytes_)
      return absl::InvalidArgumentError(absl::StrCat("a transfer of ", size, " bytes, but ", exposed_bytes_, " are exposed"));
    WEFT_ASSIGN_OR_RETURN(
        const double s, Time(request.at("rounds"), "copying through IPC", [&](int) -> absl::Status {
          const size_t slot = sequence % kSlots;
          ++sequence;
          WEFT_RETURN_IF_ERROR(Check(cuda_->StreamWait32(stream_, flags_ + 4 * (kReady + slot), sequence), "waiting for a sender"));
          WEFT_RETURN_IF_ERROR(Check(cuda_->MemcpyAsync(exposed_, memory, size, stream_), "copying through IPC"));
          return Check(cuda_->StreamWrite32(stream_, static_cast<char*>(peer) + 4 * (kRead + slot), sequence), "telling a sender");
        }));
    seconds.push_back(s);
  }
  return Json{{"seconds", seconds}};
}

absl::StatusOr<ProbeServer::Json> ProbeServer::Nccl(const Json& request) {
  NcclApi* const nccl = (*plugin_)->nccl;
  if (nccl == nullptr) return absl::UnavailableError("NCCL is not there");
  if (exposed_ == nullptr) return absl::FailedPreconditionError("nothing is exposed");
  WEFT_ASSIGN_OR_RETURN(const NcclId id, FromHex<NcclId>(request.at("id")));
  const int rank = request.at("rank");
  NcclCommHandle comm = nullptr;
  const int code = nccl->CommInit(&comm, 2, id, rank, kMaxCtas);
  const Cleanup abort([&] {
    if (comm != nullptr) (void)nccl->CommAbort(comm);
  });
  WEFT_RETURN_IF_ERROR(AwaitNccl(code, "joining a communicator", comm));
  Json seconds = Json::array();
  const std::string what = rank == 0 ? "sending by NCCL" : "receiving by NCCL";
  for (const uint64_t size : request.at("sizes")) {
    if (size > exposed_bytes_)
      return absl::InvalidArgumentError(absl::StrCat("a transfer of ", size, " bytes, but ", exposed_bytes_, " are exposed"));
    WEFT_ASSIGN_OR_RETURN(const double s, Time(request.at("rounds"), what, [&](int) {
                            return AwaitNccl(rank == 0 ? nccl->Send(exposed_, size, kNcclUint8, 1, comm, stream_)
                                                       : nccl->Recv(exposed_, size, kNcclUint8, 0, comm, stream_),
                                             what, comm);
                          }));
    seconds.push_back(s);
  }
  return Json{{"seconds", seconds}};
}

}  // namespace weft
