#pragma once

namespace weft {

// What errors of std classes say that are found on the host or on a device.
constexpr char kFailMessage[] = "std.Fail fails as it was told to";
constexpr char kNotFiniteMessage[] = "an element is NaN or infinite; look at what made it";

}  // namespace weft
