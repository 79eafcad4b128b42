#pragma once

// What numbers of cost and cluster files may be. Each adds a message that begins with `at`, the field's place, and ends with what would do.

#include <string>

#include "driver/graph/error_list.h"

namespace weft {

constexpr double kMaxCostSeconds = 1e8;
constexpr char kNameRule[] = "letters, digits, '_', '-', '.', at most 63";

bool IsName(const std::string& text);

void CheckSeconds(const std::string& at, double seconds, ErrorList* problems);
// `otherwise` says what else can be written.
void CheckBandwidth(const std::string& at, double bytes_per_s, const std::string& otherwise, ErrorList* problems);
void CheckFactor(const std::string& at, double factor, ErrorList* problems);

}  // namespace weft
