#pragma once

// Where the ranks of a communicator find each other. In a worker it is the driver, reached over the control stream.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"

namespace weft {

// Thread-safe. Keys and values are arbitrary bytes; a key is set once.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual absl::Status Set(const std::string& key, const std::string& value) = 0;
  // The values of `keys`, in their order. Blocks until all are set, at most `timeout`: DeadlineExceeded names what is missing.
  // Aborted when the attempt that the store belongs to has ended.
  virtual absl::StatusOr<std::vector<std::string>> Get(const std::vector<std::string>& keys, Nanos timeout) = 0;
};

}  // namespace weft
