#include "driver/schedules/decimal.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

constexpr int kMaxDigits = 18;
constexpr int64_t kLimit = int64_t{1} << 62;

absl::Status NotANumber(const std::string& what, const std::string& text, const char* kind) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": \"", text, "\" is not ", kind));
}

bool Multiply(int64_t factor, Decimal* d) {
  return !__builtin_mul_overflow(d->digits, factor, &d->digits) && d->digits < kLimit && d->digits > -kLimit;
}

// Drops zeros at the end, so that as few places as possible are asked for.
void Trim(Decimal* d) {
  while (d->places > 0 && d->digits % 10 == 0) {
    d->digits /= 10;
    --d->places;
  }
}

bool Read(absl::string_view s, Decimal* out) {
  bool negative = false;
  if (!s.empty() && (s[0] == '-' || s[0] == '+')) {
    negative = s[0] == '-';
    s.remove_prefix(1);
  }
  int64_t digits = 0, places = 0;
  int kept = 0;
  bool any = false, point = false, rounded = false;
  size_t i = 0;
  for (; i < s.size() && (absl::ascii_isdigit(s[i]) || (s[i] == '.' && !point)); ++i) {
    if (s[i] == '.') {
      point = true;
      continue;
    }
    any = true;
    if (kept < kMaxDigits) {
      digits = digits * 10 + (s[i] - '0');
      if (digits > 0) ++kept;
      if (point) ++places;
      continue;
    }
    // Beyond what is kept: the first such digit rounds, all before the point count as zeros.
    if (!rounded && s[i] >= '5') ++digits;
    rounded = true;
    if (!point) --places;
  }
  if (!any) return false;
  if (i < s.size()) {
    if (s[i] != 'e' && s[i] != 'E') return false;
    int32_t exponent = 0;
    if (!absl::SimpleAtoi(s.substr(i + 1), &exponent) || exponent > 40 || exponent < -60) return false;
    places -= exponent;
  }
  Decimal d{digits, 0};
  for (; places < 0; ++places) {
    if (!Multiply(10, &d)) return false;
  }
  d.places = static_cast<int32_t>(places);
  if (negative) d.digits = -d.digits;
  Trim(&d);
  *out = d;
  return true;
}

void SplitUnit(const std::string& text, std::string* number, std::string* unit) {
  size_t i = text.size();
  while (i > 0 && absl::ascii_isalpha(text[i - 1])) --i;
  *number = std::string(absl::StripAsciiWhitespace(absl::string_view(text).substr(0, i)));
  *unit = text.substr(i);
}

}  // namespace

absl::StatusOr<Decimal> ParseDecimal(const std::string& what, const std::string& text) {
  Decimal d;
  if (!Read(text, &d)) return NotANumber(what, text, "a finite number below 4e18, such as 1.25");
  return d;
}

absl::StatusOr<Decimal> ParseDuration(const std::string& what, const std::string& text, bool* with_unit) {
  constexpr char kKind[] = "a time: a finite number >= 0, with an optional unit ns, us, ms, s, m, h";
  std::string number, unit;
  SplitUnit(text, &number, &unit);
  Decimal d;
  if (!Read(number, &d)) return NotANumber(what, text, kKind);
  *with_unit = !unit.empty();
  if (unit == "ns") {
    d.places += 9;
  } else if (unit == "us") {
    d.places += 6;
  } else if (unit == "ms") {
    d.places += 3;
  } else if (unit == "m" || unit == "h") {
    if (!Multiply(unit == "m" ? 60 : 3600, &d)) return NotANumber(what, text, kKind);
  } else if (!unit.empty() && unit != "s") {
    return NotANumber(what, text, kKind);
  }
  if (d.digits < 0) return NotANumber(what, text, "a time: it is negative, and the smallest that works is 0");
  Trim(&d);
  return d;
}

absl::StatusOr<Decimal> ParseDecimalBytes(const std::string& what, const std::string& text) {
  constexpr char kKind[] = "a number of bytes, with an optional unit KiB, MiB, GiB, TiB";
  std::string number, unit;
  SplitUnit(text, &number, &unit);
  Decimal d;
  if (!Read(number, &d)) return NotANumber(what, text, kKind);
  int shift = 0;
  if (unit == "KiB" || unit == "K") {
    shift = 10;
  } else if (unit == "MiB" || unit == "M") {
    shift = 20;
  } else if (unit == "GiB" || unit == "G") {
    shift = 30;
  } else if (unit == "TiB" || unit == "T") {
    shift = 40;
  } else if (!unit.empty() && unit != "B") {
    return NotANumber(what, text, kKind);
  }
  if (!Multiply(int64_t{1} << shift, &d)) return NotANumber(what, text, kKind);
  Trim(&d);
  return d;
}

double ToDouble(const Decimal& d) { return static_cast<double>(d.digits) / std::pow(10.0, d.places); }

bool Scale(const Decimal& d, int32_t places, int64_t multiplier, int64_t* out) {
  __int128 v = static_cast<__int128>(d.digits) * multiplier;
  constexpr __int128 kLarge = static_cast<__int128>(1) << 122;
  for (int32_t i = d.places; i < places; ++i) {
    v *= 10;
    if (v > kLarge || v < -kLarge) return false;
  }
  __int128 divisor = 1;
  for (int32_t i = places; i < d.places; ++i) {
    divisor *= 10;
    if (divisor > kLarge / 10) {
      v = 0;
      break;
    }
  }
  const __int128 half = divisor / 2;
  v = v >= 0 ? (v + half) / divisor : -((-v + half) / divisor);
  if (v >= kLimit || v <= -kLimit) return false;
  *out = static_cast<int64_t>(v);
  return true;
}

}  // namespace weft
