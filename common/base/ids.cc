#include "common/base/ids.h"

#include <sys/random.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {

absl::Status CheckName(const std::string& what, const std::string& name) {
  if (name.empty()) return absl::InvalidArgumentError(absl::StrCat(what, " has no name: give it one"));
  if (name.size() > 63) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " name \"", name.substr(0, 24), "...\" has ", name.size(), " characters: at most 63"));
  }
  for (const char c : name) {
    const bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                    c == '-' || c == '.';
    if (!ok) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s name \"%s\" holds a character other than letters, digits, '_', '-', '.' (code 0x%02x)", what,
          name, static_cast<unsigned char>(c)));
    }
  }
  return absl::OkStatus();
}

std::string NewIncarnation() {
  uint64_t r = 0;
  if (getrandom(&r, sizeof r, 0) != sizeof r) r = static_cast<uint64_t>(getpid()) << 32 ^ reinterpret_cast<uintptr_t>(&r);
  return absl::StrFormat("%016x", r);
}

std::string LocalHostId() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  uint64_t h = 1469598103934665603ull;  // FNV-1a
  for (const unsigned char c : id) h = (h ^ c) * 1099511628211ull;
  return absl::StrFormat("%016x", h);
}

}  // namespace weft
