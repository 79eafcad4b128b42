#include "common/base/token_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

constexpr size_t kMaxTokenBytes = 4096;

}  // namespace

absl::Status CheckTokenText(const std::string& what, const std::string& token) {
  if (token.size() > kMaxTokenBytes) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": the join token is longer than ", kMaxTokenBytes, " characters"));
  }
  for (size_t i = 0; i < token.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(token[i]);
    if (c > 0x20 && c < 0x7f) continue;
    return absl::InvalidArgumentError(absl::StrCat(what, ": character ", i + 1, " of the join token (code ", static_cast<int>(c),
                                                   ") is not a printable ASCII character other than a space; a line of hex digits is fine"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadTokenFile(const std::string& what, const std::string& path) {
  const std::string where = absl::StrCat(what, " ", path);
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return absl::InvalidArgumentError(absl::StrCat(where, ": ", strerror(errno)));
  if (S_ISDIR(st.st_mode)) return absl::InvalidArgumentError(absl::StrCat(where, ": is a directory; name a file with the token in its first line"));
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::InvalidArgumentError(absl::StrCat(where, ": ", strerror(errno)));
  // No more than a token needs: the file may be endless.
  std::string token;
  char c;
  while (token.size() <= kMaxTokenBytes && in.get(c) && c != '\n') token += c;
  if (!token.empty() && token.back() == '\r') token.pop_back();
  if (token.empty()) return absl::InvalidArgumentError(absl::StrCat(where, ": no token in its first line"));
  WEFT_RETURN_IF_ERROR(CheckTokenText(where, token));
  return token;
}

}  // namespace weft
