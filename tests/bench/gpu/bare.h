#pragma once

// Processes that do with bare calls of CUDA and NCCL what weft's workers do with graphs: the peers that edges are measured against. They
// run with the environment and the communicators' settings of weft's own workers, and every wait of theirs ends.

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/device/cuda/api/plugin.h"

namespace weft::bench {

// Of worker i of a cluster on GPUs, see GpuOf. GPUs there are, and whether so many workers must share them (as Daemons decides).
int GpuOrdinal(int i);
int Gpus();
bool SharesGpu(int workers);

// A zeroed T that forked processes have in common.
template <typename T>
class Common {
 public:
  Common() : memory_(Map(sizeof(T))), value_(new (memory_.get()) T()) {}
  T* operator->() const { return value_; }
  T* get() const { return value_; }
  // What HostRegister may be told.
  size_t bytes() const { return (sizeof(T) + 4095) / 4096 * 4096; }

 private:
  static std::shared_ptr<void> Map(size_t bytes);
  std::shared_ptr<void> memory_;
  T* value_;
};
std::shared_ptr<void> MapCommon(size_t bytes);
template <typename T>
std::shared_ptr<void> Common<T>::Map(size_t bytes) {
  return MapCommon(bytes);
}

// One of the processes. Errors are std::runtime_error with words, and end all of them.
class BareProcess {
 public:
  struct Board;

  // In the forked child, before it has made a call of CUDA.
  BareProcess(Board* board, int rank, int size, Nanos deadline);
  // Aborts its communicators.
  ~BareProcess();
  BareProcess(const BareProcess&) = delete;
  BareProcess& operator=(const BareProcess&) = delete;

  int rank() const { return rank_; }
  CudaApi* cuda() const { return plugin_->cuda; }
  KernelsApi* kernels() const { return plugin_->kernels; }
  NcclApi* nccl() const { return plugin_->nccl; }

  // cudaError_t.
  void Check(int code) const;
  // As a lane's of weft: transfers at the highest priority, computation at the normal one.
  CudaStreamHandle NewStream(bool transfers) const;
  CudaEventHandle NewEvent(bool timing = false) const;
  void* Allocate(size_t bytes) const;

  // A communicator of two ranks, number `link` of all (0 to 7); both ends name the same one and join in one order.
  NcclCommHandle Join(int link, int rank);
  // Whether the last call on it is over; between a call and that nothing else may be called on it.
  bool Settled(NcclCommHandle comm) const;
  // Takes what a call of NCCL gave, and waits until it is over.
  void Finish(NcclCommHandle comm, int code) const;
  void CheckNccl(NcclCommHandle comm, int code) const;

  // Waits on the host.
  void Await(CudaEventHandle event) const;
  void AwaitAll(CudaStreamHandle stream) const;
  // Until all processes are here.
  void Meet();
  // Throws when another process has failed or time is out. For loops that wait.
  void CheckOpen() const;

  // Elements 0 and n - 1 of n F32 on the device must be `want`.
  void CheckElements(const void* p, int64_t n, float want, const std::string& what) const;

 private:
  Board* const board_;
  const int rank_, size_;
  const Nanos deadline_;
  const CudaPlugin* plugin_ = nullptr;
  int rounds_ = 0;
  std::vector<NcclCommHandle> comms_;
  mutable std::vector<char> words_;
};

// Forks `processes` processes, which run `body`, each with its own BareProcess on GPU GpuOrdinal(rank). Returns when all have ended; throws
// what the first failure says, or that there was no end within `seconds`. Only while this process has one thread and has not called CUDA.
void RunBare(int processes, double seconds, const std::function<void(BareProcess&)>& body);

}  // namespace weft::bench
