#pragma once

#include "common/device/cuda/api/nccl_api.h"

namespace weft::gpu {

// NcclApi over this machine's libnccl.so.2, opened at the first call. nullptr when it cannot be used: *problem then says why and what to do.
// Both stay valid. Thread-safe.
NcclApi* OpenNccl(const char** problem);

}  // namespace weft::gpu
