#include "worker/actor/cuda/cuda_actors.h"

namespace weft {

void RegisterCudaActors(ActorRegistry* registry) {
  RegisterCudaMathActors(registry);
  RegisterCudaSourceActors(registry);
  RegisterCudaLinearActor(registry);
  RegisterCudaMlpActor(registry);
  RegisterCudaTestingActors(registry);
  RegisterCudaBucketActor(registry);
}

}  // namespace weft
