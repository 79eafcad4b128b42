#include "driver/simulate/cost_checks.h"

#include <cctype>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// Why the number is none that can be used at all; empty when it can.
std::string NotFinite(double v) {
  if (std::isnan(v)) return "is not a number";
  return std::isinf(v) ? "is infinite" : "";
}

}  // namespace

bool IsName(const std::string& text) {
  if (text.empty() || text.size() > 63) return false;
  for (const char c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-' && c != '.') return false;
  }
  return true;
}

void CheckSeconds(const std::string& at, double s, ErrorList* problems) {
  const std::string odd = NotFinite(s);
  if (!odd.empty() || s < 0 || s > kMaxCostSeconds) {
    problems->Add(absl::StrCat(at, ": ", s, " ", !odd.empty() ? odd : s < 0 ? "is negative" : "is too long",
                               ": seconds from 0 to ", kMaxCostSeconds, " work"));
  }
}

void CheckBandwidth(const std::string& at, double v, const std::string& otherwise, ErrorList* problems) {
  const std::string odd = NotFinite(v);
  constexpr double kLeast = 1e-3, kMost = 1e18;
  if (!odd.empty() || v < kLeast || v > kMost) {
    problems->Add(absl::StrCat(at, ": ", v, " ", !odd.empty() ? odd : v < 0 ? "is negative" : v < kLeast ? "is too small" : "is too large",
                               ": bytes per second from ", kLeast, " to ", kMost, " work; ", otherwise));
  }
}

void CheckFactor(const std::string& at, double v, ErrorList* problems) {
  const std::string odd = NotFinite(v);
  if (!odd.empty() || v < 1 || v > 1000) {
    problems->Add(absl::StrCat(at, ": ", v, " ", !odd.empty() ? odd : v < 1 ? "is less than 1, which would be a gain" : "is too large",
                               ": factors from 1 to 1000 work"));
  }
}

}  // namespace weft
