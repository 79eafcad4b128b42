#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace weft {

// digits / 10^places, as written: times and bytes of pipelines are computed in whole numbers.
struct Decimal {
  int64_t digits = 0;
  int32_t places = 0;  // >= 0
};

// "12", "18.522", "-3e4". At most 18 digits are kept, the rest is rounded. InvalidArgument for anything else, NaN, infinities and
// numbers of 4e18 and more too; `what` names the option in the message.
absl::StatusOr<Decimal> ParseDecimal(const std::string& what, const std::string& text);

// The same with an optional unit ns, us, ms, s, m, h (in seconds), and refused below 0. `with_unit` says whether there was one.
absl::StatusOr<Decimal> ParseDuration(const std::string& what, const std::string& text, bool* with_unit);

// The same with an optional unit KiB, MiB, GiB, TiB (or K, M, G, T); any sign.
absl::StatusOr<Decimal> ParseDecimalBytes(const std::string& what, const std::string& text);

double ToDouble(const Decimal& d);

// round(d * multiplier * 10^places), by whole numbers; false when it does not fit into 62 bits. Pre: multiplier > 0.
bool Scale(const Decimal& d, int32_t places, int64_t multiplier, int64_t* out);

}  // namespace weft
