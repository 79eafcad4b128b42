#pragma once

// JSON to a protobuf message, with the place of every error. The library's own converter loses positions and stops at
// the first.

#include <google/protobuf/message.h>

#include <string>

#include "driver/graph/error_list.h"

namespace weft {

// Fills `message` from `text` by protobuf's JSON mapping: fields by their proto name or in lowerCamelCase, enums by
// name or number, 64-bit integers as numbers or strings, non-finite numbers as "NaN", "Infinity", "-Infinity", null for
// an unset field. Unknown and repeated keys are errors. Adds "NAME:LINE:COLUMN: what" to `errors` for each problem;
// after a syntax error the rest is not looked at. Lines and columns (in bytes) count from 1. Nesting is limited to 100.
void ParseJsonMessage(const std::string& name, const std::string& text, google::protobuf::Message* message,
                      ErrorList* errors);

}  // namespace weft
