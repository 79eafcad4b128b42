// std.Source, std.Constant.

#include "worker/actor/std/source_classes.h"

#include "common/base/status_macros.h"
#include "worker/actor/cuda/cuda_actors.h"
#include "worker/actor/cuda/cuda_call.h"

namespace weft {

void RegisterCudaSourceActors(ActorRegistry* registry) {
  RegisterSourceClasses(registry, [](Device* device) -> absl::StatusOr<FillFn> {
    WEFT_ASSIGN_OR_RETURN(CudaDevice* const cuda, AsCuda(device));
    return FillFn([cuda](CallContext& ctx, const Fill& fill, uint64_t seed, ExecutionNumber execution, const Tensor& out) {
      static_assert(static_cast<int>(DeviceFill::kExecution) == Fill::kExecution && static_cast<int>(DeviceFill::kNumber) == Fill::kNumber);
      static_assert(static_cast<int>(DeviceFill::kIota) == Fill::kIota && static_cast<int>(DeviceFill::kRandom) == Fill::kRandom);
      return cuda->Check(cuda->kernels()->Fill(static_cast<DeviceFill>(fill.kind), fill.number, seed, execution, out.dtype(), out.data(),
                                               out.elements(), ctx.stream()->native()),
                         "launching fill");
    });
  });
}

}  // namespace weft
