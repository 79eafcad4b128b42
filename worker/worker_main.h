#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/device/cuda/api/plugin.h"

namespace weft {

// Gives the CUDA library of this machine, for `--device cuda`; `path` is --cuda-library, "" without. What it returns lives as long as the process.
using CudaLoader = std::function<absl::StatusOr<const CudaPlugin*>(const std::string& path)>;

// weft-worker: parses its command line, registers with the driver and runs graphs until a signal. Returns the exit code (2: usage or a device
// that cannot be had; 4: no driver; 1: something of this process failed).
int WorkerMain(int argc, char** argv, const CudaLoader& load_cuda);

}  // namespace weft
