#include "worker/actor/std/std_actors.h"

#include <cstring>

#include "worker/actor/std/bucket_class.h"

namespace weft {

void RegisterStdActors(ActorRegistry* registry) {
  RegisterMathActors(registry);
  RegisterSourceActors(registry);
  RegisterLinearActor(registry);
  RegisterMlpActor(registry);
  RegisterTestingActors(registry);
  RegisterBucketClass(registry, [](Device*) -> absl::StatusOr<BucketCopyFn> {
    return BucketCopyFn([](CallContext&, void* to, const void* from, size_t bytes) {
      std::memcpy(to, from, bytes);
      return absl::OkStatus();
    });
  });
}

}  // namespace weft
