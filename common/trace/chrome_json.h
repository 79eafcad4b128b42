#pragma once

#include <string>

#include "common/trace/timeline.h"

namespace weft {

// Trace Event Format, as read by Perfetto and chrome://tracing: one process per worker (measured ones first, then predicted), one thread
// per lane, one complete event per op with its execution and op id as arguments, and an arrow from each send to its receive.
// Times are microseconds with three decimals.
std::string ToChromeJson(const Timeline& timeline, const std::string& graph);

}  // namespace weft
