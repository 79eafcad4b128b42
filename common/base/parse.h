#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace weft {

// Accepts true/false/1/0/yes/no/on/off in any case, and refuses anything else. `what` names the option in the message.
absl::StatusOr<bool> ParseBool(const std::string& what, const std::string& text);

// A finite number >= 0 in seconds, with an optional unit ns, us, ms, s, m, h.
absl::StatusOr<double> ParseSeconds(const std::string& what, const std::string& text);

// A whole number of bytes with an optional unit KiB, MiB, GiB, TiB (or K, M, G, T, the same).
absl::StatusOr<uint64_t> ParseBytes(const std::string& what, const std::string& text);

// A whole number within [lo, hi].
absl::StatusOr<int64_t> ParseInt(const std::string& what, const std::string& text, int64_t lo, int64_t hi);

// "1.5 MiB", "12 B".
std::string FormatBytes(uint64_t bytes);
// "1.25 ms", "3.0 s".
std::string FormatSeconds(double s);

}  // namespace weft
