#include "common/base/parse.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {
namespace {

// Splits "12.5ms" into number and unit.
void SplitUnit(const std::string& text, std::string* number, std::string* unit) {
  size_t i = text.size();
  while (i > 0 && absl::ascii_isalpha(text[i - 1])) --i;
  // "inf" and "nan" are all letters: they stay in the unit and are refused there.
  *number = std::string(absl::StripAsciiWhitespace(text.substr(0, i)));
  *unit = text.substr(i);
}

}  // namespace

absl::StatusOr<bool> ParseBool(const std::string& what, const std::string& text) {
  const std::string t = absl::AsciiStrToLower(text);
  if (t == "true" || t == "1" || t == "yes" || t == "on") return true;
  if (t == "false" || t == "0" || t == "no" || t == "off") return false;
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": \"", text, "\" is not one of true/false/1/0/yes/no/on/off"));
}

absl::StatusOr<double> ParseSeconds(const std::string& what, const std::string& text) {
  std::string number, unit;
  SplitUnit(text, &number, &unit);
  double factor = 0;
  if (unit.empty() || unit == "s") factor = 1;
  if (unit == "ns") factor = 1e-9;
  if (unit == "us") factor = 1e-6;
  if (unit == "ms") factor = 1e-3;
  if (unit == "m") factor = 60;
  if (unit == "h") factor = 3600;
  double v = 0;
  if (factor == 0 || !absl::SimpleAtod(number, &v) || !std::isfinite(v) || v < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": \"", text, "\" is not a time: a finite number >= 0, with an optional unit ns, us, ms, s, m, h"));
  }
  return v * factor;
}

absl::StatusOr<uint64_t> ParseBytes(const std::string& what, const std::string& text) {
  std::string number, unit;
  SplitUnit(text, &number, &unit);
  int shift = -1;
  if (unit.empty() || unit == "B") shift = 0;
  if (unit == "KiB" || unit == "K") shift = 10;
  if (unit == "MiB" || unit == "M") shift = 20;
  if (unit == "GiB" || unit == "G") shift = 30;
  if (unit == "TiB" || unit == "T") shift = 40;
  uint64_t v = 0;
  if (shift < 0 || !absl::SimpleAtoi(number, &v) || (shift > 0 && v >> (63 - shift) != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": \"", text, "\" is not a size: a whole number of bytes, with an optional unit KiB, MiB, GiB, TiB"));
  }
  return v << shift;
}

absl::StatusOr<int64_t> ParseInt(const std::string& what, const std::string& text, int64_t lo, int64_t hi) {
  int64_t v = 0;
  if (!absl::SimpleAtoi(text, &v) || v < lo || v > hi) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": \"", text, "\" is not a whole number from ", lo, " to ", hi));
  }
  return v;
}

std::string FormatBytes(uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double v = static_cast<double>(bytes);
  int u = 0;
  while (v >= 1024 && u < 6) {
    v /= 1024;
    ++u;
  }
  return u == 0 ? absl::StrFormat("%d B", bytes) : absl::StrFormat("%.1f %s", v, units[u]);
}

std::string FormatSeconds(double s) {
  const double a = std::fabs(s);
  if (a >= 1 || a == 0) return absl::StrFormat("%.3f s", s);
  if (a >= 1e-3) return absl::StrFormat("%.3f ms", s * 1e3);
  if (a >= 1e-6) return absl::StrFormat("%.3f us", s * 1e6);
  return absl::StrFormat("%.0f ns", s * 1e9);
}

}  // namespace weft
