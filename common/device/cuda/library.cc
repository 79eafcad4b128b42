#include "common/device/cuda/library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

constexpr char kBuild[] = "build //common/device/cuda/plugin:libweft_cuda.so on a machine with a CUDA toolkit";

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::string BesideExecutable() {
  char self[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", self, sizeof(self));
  if (n <= 0 || n == static_cast<ssize_t>(sizeof(self))) return kCudaLibraryName;
  const std::string path(self, static_cast<size_t>(n));
  return absl::StrCat(path.substr(0, path.rfind('/') + 1), kCudaLibraryName);
}

absl::StatusOr<std::string> Find(const std::string& path) {
  if (!path.empty()) {
    if (Exists(path)) return path;
    return absl::NotFoundError(absl::StrCat("weft's CUDA library ", path, " does not exist; give the right path, or ", kBuild));
  }
  const std::string beside = BesideExecutable();
  if (Exists(beside)) return beside;
  const char* const variable = std::getenv(kCudaLibraryVariable);
  const bool set = variable != nullptr && *variable != '\0';
  if (set && Exists(variable)) return std::string(variable);
  return absl::NotFoundError(absl::StrCat("weft's CUDA library is neither at ", beside, " nor where ", kCudaLibraryVariable, " says (",
                                          set ? absl::StrCat(variable, ", which does not exist") : "which is not set", "); ", kBuild,
                                          " and put it beside this program, or run with --device cpu"));
}

}  // namespace

absl::StatusOr<const CudaPlugin*> LoadCudaPlugin(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string file, Find(path));
  // A name without a slash would be looked for elsewhere.
  const std::string exact = file.find('/') == std::string::npos ? absl::StrCat("./", file) : file;
  void* const library = ::dlopen(exact.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return absl::FailedPreconditionError(absl::StrCat("weft's CUDA library ", file, " cannot be loaded (", why == nullptr ? "no reason given" : why,
                                                      "); install what is missing, or ", kBuild));
  }
  const auto refuse = [&](const std::string& why) {
    ::dlclose(library);
    return absl::FailedPreconditionError(absl::StrCat(file, " ", why, "; take the one that was built with this program, or ", kBuild));
  };
  const auto entry = reinterpret_cast<CudaPluginEntry>(::dlsym(library, kCudaPluginSymbol));
  if (entry == nullptr) return refuse(absl::StrCat("is not weft's CUDA library: it has no ", kCudaPluginSymbol));
  const CudaPlugin* const plugin = entry(kCudaPluginVersion);
  if (plugin == nullptr || plugin->version != kCudaPluginVersion || plugin->cuda == nullptr || plugin->kernels == nullptr) {
    return refuse(absl::StrCat("is from another version of weft: this program needs interface ", kCudaPluginVersion));
  }
  return plugin;
}

}  // namespace weft
