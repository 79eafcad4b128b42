// weft.Bucket.

#include "worker/actor/std/bucket_class.h"

#include "common/base/status_macros.h"
#include "worker/actor/cuda/cuda_actors.h"
#include "worker/actor/cuda/cuda_call.h"

namespace weft {

void RegisterCudaBucketActor(ActorRegistry* registry) {
  RegisterBucketClass(registry, [](Device* device) -> absl::StatusOr<BucketCopyFn> {
    WEFT_ASSIGN_OR_RETURN(CudaDevice* const cuda, AsCuda(device));
    return BucketCopyFn([cuda](CallContext& ctx, void* to, const void* from, size_t bytes) {
      return CopyOnDevice(*cuda, ctx, to, from, bytes);
    });
  });
}

}  // namespace weft
