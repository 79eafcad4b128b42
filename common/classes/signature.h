#pragma once

// What the compiler must know of an actor class without having it: methods, numbers of arguments and outputs, and the dtypes and
// shapes of outputs given those of arguments. The implementation of the class lives in worker/actor.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tensor/shape.h"
#include "weft/v1/graph.pb.h"

namespace weft {

struct MethodSignature {
  std::string name;
  int min_args = 0;
  int max_args = 0;  // -1: any number
  // Those of the class's config fields that this method reads; a node's config may set no other. Unset: any of the class's.
  std::optional<std::vector<std::string>> config_fields;
  // Specs of the outputs. `config` is the actor's with the node's fields over it. InvalidArgument names the argument or config
  // field that does not fit and says what would.
  std::function<absl::StatusOr<std::vector<Spec>>(const v1::Config& config, const std::vector<Spec>& args)> infer;
  // Whether a call with this config may find on a CUDA device, while it runs, that it fails: then a status word must stand behind its outputs.
  // Empty: never.
  std::function<bool(const v1::Config& config)> fails_on_device = {};
  // What such an error says, where the config has no message of its own.
  std::string device_error = {};
};

struct ClassSignature {
  std::string name;
  std::string summary;
  // Names of Config's fields that the class reads; any other that is set is an error.
  std::vector<std::string> config_fields;
  // Those among them that only the actor's own config may set, since its state is made from them. Such a class's check_config
  // also demands what it cannot do without.
  std::vector<std::string> actor_only_fields;
  // Checks the values of the fields that are set: of the actor's config, and of the merged config of each node that has one of its
  // own. May be empty.
  std::function<absl::Status(const v1::Config& config)> check_config;
  std::vector<MethodSignature> methods;

  const MethodSignature* Find(const std::string& method) const;  // "" finds the only method
};

// All classes that a compiler knows, by name.
class ClassTable {
 public:
  // weft's own ("std.…"). Thread-safe to read.
  static const ClassTable& Std();

  void Add(ClassSignature signature);
  const ClassSignature* Find(const std::string& name) const;
  std::vector<std::string> Names() const;

 private:
  std::map<std::string, ClassSignature> classes_;
};

// `actor` with every field that `node` sets put over it. Repeated and map fields replace as a whole.
v1::Config MergeConfig(const v1::Config& actor, const v1::Config& node);

}  // namespace weft
