#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

// What was seen of the GPUs, and what was tried on them: plain data, so that checks are tested with made-up machines. A problem that is
// empty means that the thing works.
struct GpuInfo {
  int ordinal = 0;
  std::string name;
  std::string pci;
  int sm_count = 0;
  int major = 0, minor = 0;  // compute capability
  uint64_t total_bytes = 0;

  std::string problem;  // it cannot be used; nothing below was tried
  uint64_t free_bytes = 0;
  std::string kernels_problem;  // of loading weft's own device code and cuBLAS

  std::string stream_memory_problem;
  double stream_memory_s = 0;  // from a word written by the host to the device's answer seen by the host
  std::string host_copy_problem;
  double to_device = 0, from_device = 0;  // bytes a second, from and to a registered memory file
};

// A process on GPU `to` opened and read memory of a process on GPU `from`.
struct IpcTrial {
  int from = 0, to = 0;
  std::string problem;
};

// One transfer after another of each size, from a process on GPU `from` to one on GPU `to`, with two places for values in flight.
struct TransferTimes {
  std::string problem;  // why there are none
  int from = 0, to = 0;
  std::vector<uint64_t> sizes;  // ascending, bytes
  std::vector<double> ipc_s;    // seconds a transfer, of the same length
  std::vector<double> nccl_s;
};

struct GpuFacts {
  std::string problem;          // no GPU can be used; nothing else is known then, but for the versions
  bool died = false;            // because the process that looked hung or crashed
  std::string library;          // the file of the CUDA parts
  int driver = 0, runtime = 0;  // of CUDA, as 13000 for 13.0; 0: not there
  int nccl = 0;                 // as 22809 for 2.28.9
  std::string nccl_problem;
  std::vector<GpuInfo> gpus;
  std::vector<std::vector<int>> peers;  // [a][b]: whether GPU a can read b's memory
  std::vector<IpcTrial> ipc;
  TransferTimes times;
};

}  // namespace weft
