#include "worker/actor/std/std_actors.h"

namespace weft {

void RegisterStdActors(ActorRegistry* registry) {
  RegisterMathActors(registry);
  RegisterSourceActors(registry);
  RegisterLinearActor(registry);
  RegisterMlpActor(registry);
  RegisterTestingActors(registry);
  RegisterBucketActor(registry);
}

}  // namespace weft
