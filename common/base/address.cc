#include "common/base/address.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/parse.h"

namespace weft {

absl::StatusOr<Address> ParseAddress(const std::string& what, const std::string& text, int least_port) {
  constexpr size_t kShown = 80;
  Address a;
  if (absl::StartsWith(text, "unix:") && text.size() > 5) {
    a.is_unix = a.loopback = true;
    a.host = text.substr(5);
    return a;
  }
  const absl::Status wrong =
      absl::InvalidArgumentError(absl::StrCat(what, " \"", text.substr(0, kShown), "\" is not host:port, [ipv6]:port or unix:/path"));
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return wrong;
  const std::string digits = text.substr(colon + 1);
  if (digits.find_first_not_of("0123456789") != std::string::npos) return wrong;
  const absl::StatusOr<int64_t> port = ParseInt("port", digits, least_port, 65535);
  if (!port.ok()) return wrong;
  a.port = static_cast<int>(*port);
  a.host = text.substr(0, colon);
  if (a.host.front() == '[' && a.host.back() == ']') {
    a.host = a.host.substr(1, a.host.size() - 2);
    if (a.host.find(':') == std::string::npos) return wrong;
  } else if (a.host.find_first_of(":/[] \t") != std::string::npos) {
    return wrong;
  }
  a.loopback = a.host == "localhost" || a.host == "::1" ||
               (absl::StartsWith(a.host, "127.") && a.host.find_first_not_of("0123456789.") == std::string::npos);
  return a;
}

}  // namespace weft
