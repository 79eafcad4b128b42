#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is the path of the executable
  // Descriptors of the child's standard streams; -1: /dev/null for input, the parent's for the others.
  int stdout_fd = -1;
  int stderr_fd = -1;
  // Sent to the child when the *thread* that spawned it ends: spawn from the main thread.
  int death_signal = 9;
};

// Starts a child that dies with its parent, with no signal blocked and no descriptor but the standard ones. Returns its pid, or why
// it could not be executed. The caller reaps it.
absl::StatusOr<pid_t> Spawn(const SpawnOptions& options);

// "exited with code 2", "was killed by signal 9 (Killed)".
std::string DescribeExit(int wait_status);

// Path of `weft-driver` or `weft-worker`: in $WEFT_BIN_DIR, else beside this executable, else where the build puts it.
// NotFound lists where it was looked for.
absl::StatusOr<std::string> FindDaemon(const std::string& name);

// Path of this executable.
std::string SelfPath();

// Last `lines` lines of a file, each indented; empty when there is none.
std::string TailOf(const std::string& path, int lines);

}  // namespace weft
