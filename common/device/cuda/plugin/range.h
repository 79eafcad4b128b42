#pragma once

// NVTX is headers only: without a profiler that asks for ranges they cost a branch.

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define WEFT_HAS_NVTX 1
#else
#define WEFT_HAS_NVTX 0
#endif

namespace weft::gpu {

inline void NvtxPush(const char* name) {
#if WEFT_HAS_NVTX
  nvtxRangePushA(name);
#else
  (void)name;
#endif
}

inline void NvtxPop() {
#if WEFT_HAS_NVTX
  nvtxRangePop();
#endif
}

}  // namespace weft::gpu
