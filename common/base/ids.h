#pragma once

#include <string>

#include "absl/status/status.h"

namespace weft {

// Letters, digits, '_', '-', '.', 1 to 63 characters. `what` is the kind of thing ("node"), for the message.
// InvalidArgument otherwise.
absl::Status CheckName(const std::string& what, const std::string& name);

// 16 random hex digits: one life of one process.
std::string NewIncarnation();

// Stands for this host: a hash of its boot id, so that it changes with a reboot and is equal for all processes.
std::string LocalHostId();

}  // namespace weft
