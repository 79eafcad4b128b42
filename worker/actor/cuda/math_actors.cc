#include "common/base/status_macros.h"
#include "worker/actor/cuda/cuda_actors.h"
#include "worker/actor/cuda/math_methods.h"

namespace weft {
namespace {

void RegisterTable(ActorRegistry* registry, const std::string& cls, const std::vector<CudaMethod>& methods) {
  registry->Register(cls, [cls, methods](const v1::Config&, Device* device) -> absl::StatusOr<std::unique_ptr<Actor>> {
    WEFT_ASSIGN_OR_RETURN(CudaDevice* const cuda, AsCuda(device));
    return std::make_unique<CudaTableActor>(cuda, cls, methods);
  });
}

}  // namespace

void RegisterCudaMathActors(ActorRegistry* registry) {
  using namespace gpu_methods;
  RegisterTable(registry, "std.Identity", {IdentityMethod()});
  RegisterTable(registry, "std.Add", {AddMethod()});
  RegisterTable(registry, "std.Scale", {ScaleMethod()});
  RegisterTable(registry, "std.Split", {SplitMethod()});
  RegisterTable(registry, "std.Concat", {ConcatMethod()});
  RegisterTable(registry, "std.Reduce", {ReduceMethod()});
  RegisterTable(registry, "std.Gemm",
                {MatmulMethod(), SquareMethod(), AddMethod(), ScaleMethod(), IdentityMethod(), ReduceMethod(), PeekMethod()});
  RegisterTable(registry, "std.Math",
                {IdentityMethod(), AddMethod(), ScaleMethod(), SquareMethod(), MatmulMethod(), ReduceMethod(), SplitMethod(), ConcatMethod(),
                 PeekMethod()});
}

}  // namespace weft
