#pragma once

#include "weft/v1/graph.pb.h"

namespace weft {

// How long each phase of a graph's bootstrap may take, in seconds: options.bootstrap_timeout_s, or where that is not set 30.
inline double BootstrapTimeoutS(const v1::Options& options) { return options.bootstrap_timeout_s() > 0 ? options.bootstrap_timeout_s() : 30.0; }

}  // namespace weft
