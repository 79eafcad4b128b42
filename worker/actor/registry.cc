#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/actor/actor.h"
#include "worker/actor/cuda/cuda_actors.h"
#include "worker/actor/std/std_actors.h"

namespace weft {

const ActorRegistry& ActorRegistry::Std(const std::string& device_kind) {
  // Never destroyed: actors may be made until the process ends.
  static const ActorRegistry* const cpu = [] {
    auto* r = new ActorRegistry;
    RegisterStdActors(r);
    return r;
  }();
  static const ActorRegistry* const cuda = [] {
    auto* r = new ActorRegistry;
    RegisterCudaActors(r);
    return r;
  }();
  static const ActorRegistry* const none = new ActorRegistry;
  return device_kind == "cpu" ? *cpu : device_kind == "cuda" ? *cuda : *none;
}

void ActorRegistry::Register(const std::string& cls, Factory factory) {
  for (auto& [name, f] : factories_) {
    if (name != cls) continue;
    f = std::move(factory);
    return;
  }
  factories_.emplace_back(cls, std::move(factory));
}

absl::StatusOr<std::unique_ptr<Actor>> ActorRegistry::Make(const std::string& cls, const v1::Config& config, Device* device) const {
  for (const auto& [name, factory] : factories_) {
    if (name == cls) return factory(config, device);
  }
  return absl::NotFoundError(absl::StrCat("actor class \"", cls.substr(0, 80), "\" is not known to this worker; it has ",
                                          factories_.empty() ? "none" : absl::StrJoin(Classes(), ", ")));
}

std::vector<std::string> ActorRegistry::Classes() const {
  std::vector<std::string> names;
  for (const auto& [name, factory] : factories_) names.push_back(name);
  return names;
}

}  // namespace weft
