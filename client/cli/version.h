#pragma once

#include "common/plan/plan.h"

namespace weft {

inline constexpr char kVersion[] = "0.1.0";
inline constexpr unsigned kPlanFormat = kPlanVersion;

}  // namespace weft
