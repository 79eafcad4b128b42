#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace weft {

// A local cluster for one command: a `weft up` of its own name as a child process, gone with this object or with the process.
class TemporaryCluster {
 public:
  // Returns when all workers are registered. Main thread only (the child dies with the thread that started it). Errors: what `weft up`
  // said on stderr is the cause; Cancelled when interrupted.
  // `token_file`: as --token-file.
  static absl::StatusOr<std::unique_ptr<TemporaryCluster>> Start(int workers, const std::string& token_file);
  ~TemporaryCluster();
  TemporaryCluster(const TemporaryCluster&) = delete;
  TemporaryCluster& operator=(const TemporaryCluster&) = delete;

  const std::string& address() const { return address_; }

 private:
  explicit TemporaryCluster(pid_t pid) : pid_(pid) {}

  const pid_t pid_;
  std::string address_;
};

}  // namespace weft
