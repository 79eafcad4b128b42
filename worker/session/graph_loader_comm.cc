// The parts of bootstrap that go beyond one host.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/session/graph_loader.h"
#include "worker/session/links.h"

namespace weft {

absl::Status GraphLoader::MakeGlooPorts(LoadedGraph* loaded, Nanos deadline) { return absl::OkStatus(); }
absl::Status GraphLoader::MakeGroups(LoadedGraph* loaded, Nanos deadline) { return absl::OkStatus(); }
absl::Status GraphLoader::MakeRemotePorts(LoadedGraph* loaded, Nanos deadline) { return absl::OkStatus(); }

}  // namespace weft
