#pragma once

// What a probe does: a process of `weft doctor` on one GPU, which carries out one request after another. All that CUDA or NCCL could hang
// or crash in happens in such a process, so that the command itself always ends with a report.
//
// A request is a JSON object with a field "do"; the answer is one too, with "error" (what was done, and what CUDA says) where it went
// wrong:
//
//   facts -> driver, runtime, nccl, nccl_problem, gpus [{name, pci, sm_count, major, minor, bytes}], peers [[0, 1], ...]
//
//   take {gpu} -> free, total, kernels_problem. Everything below is about that GPU.
//
//   stream_memory -> seconds
//
//   host_copy {bytes} -> to_device, from_device (bytes a second)
//
//   expose {bytes, seed} -> handle (hex) of memory filled with a pattern, flags (hex) of words for transfers. Frees an earlier one.
//
//   read {handle, bytes, seed} -> ok; compares another process's memory with the pattern
//
//   ipc_send {flags, sizes, rounds} -> ok; paces transfers out of what was exposed here to the process whose flags these are
//
//   ipc_receive {handle, flags, sizes, rounds} -> seconds [...], one for each size
//
//   nccl_id -> id (hex)
//
//   nccl {id, rank, sizes, rounds} -> seconds [...]; rank 0 sends to rank 1
//
// The two of ipc_send and ipc_receive, and the two ranks of nccl, run at the same time.

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/device/cuda/api/plugin.h"

namespace weft {

// Not thread-safe; each Answer may come on another thread.
class ProbeServer {
 public:
  // `plugin`: an error is the answer to every request. Both outlive the server. Waits on the device end after `patience`.
  ProbeServer(absl::StatusOr<const CudaPlugin*> plugin, const Clock* clock, Nanos patience = 15 * kNanosPerSecond);
  ~ProbeServer();
  ProbeServer(const ProbeServer&) = delete;
  ProbeServer& operator=(const ProbeServer&) = delete;

  std::string Answer(const std::string& request);

 private:
  using Json = nlohmann::json;

  absl::StatusOr<Json> Do(const Json& request);
  absl::StatusOr<Json> Facts();
  absl::StatusOr<Json> Take(const Json& request);
  absl::StatusOr<Json> StreamMemory();
  absl::StatusOr<Json> HostCopy(const Json& request);
  absl::StatusOr<Json> Expose(const Json& request);
  absl::StatusOr<Json> Read(const Json& request);
  absl::StatusOr<Json> IpcSend(const Json& request);
  absl::StatusOr<Json> IpcReceive(const Json& request);
  absl::StatusOr<Json> Nccl(const Json& request);

  absl::Status Check(int code, const std::string& what) const;
  absl::Status CheckNccl(int code, const std::string& what, NcclCommHandle comm) const;
  // Until everything on the stream is done.
  absl::Status Await(const std::string& what) const;
  // Until NCCL has done what it calls in progress.
  absl::Status AwaitNccl(int code, const std::string& what, NcclCommHandle comm) const;
  // Seconds of a round of `round` (work put on the stream for round i), after some that are not counted.
  template <typename Round>
  absl::StatusOr<double> Time(int rounds, const std::string& what, Round round);
  absl::StatusOr<void*> Open(const Json& request, const char* field);
  void FreeExposed();

  const absl::StatusOr<const CudaPlugin*> plugin_;
  const Clock* const clock_;
  const Nanos patience_;
  CudaApi* cuda_ = nullptr;
  int gpu_ = -1;
  CudaStreamHandle stream_ = nullptr;
  char* exposed_ = nullptr;
  char* flags_ = nullptr;
  uint64_t exposed_bytes_ = 0;
};

// The pattern of `seed` in n bytes.
void FillPattern(uint64_t seed, unsigned char* to, size_t n);

}  // namespace weft
