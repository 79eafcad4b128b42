#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/device/cuda/api/plugin.h"

namespace weft {

constexpr char kCudaLibraryName[] = "libweft_cuda.so";
constexpr char kCudaLibraryVariable[] = "WEFT_CUDA_LIBRARY";

// Loads weft's CUDA library, for the life of the process; what it returns stays valid as long. `path` names the file; empty: kCudaLibraryName beside
// the executable where there is one, else what $WEFT_CUDA_LIBRARY names. Runs on a machine without GPU or driver too: CudaApi's calls then say so.
//
// NotFound when there is no such file; FailedPrecondition when it cannot be loaded, is no such library, or comes from another build of weft. Each
// says which file and what to do.
absl::StatusOr<const CudaPlugin*> LoadCudaPlugin(const std::string& path);

}  // namespace weft
