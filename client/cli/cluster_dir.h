#pragma once

// Where a local cluster keeps its files, and who may say that it runs. ROOT/NAME/ holds `lock` (held by the supervisor while it
// lives), `address`, logs and, unless told otherwise, the driver's state. ROOT is $XDG_RUNTIME_DIR/weft, else a private directory
// below the temporary one.

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// Makes it when `create`. FailedPrecondition: it belongs to somebody else or others may write to it; NotFound: not there.
absl::StatusOr<std::string> RuntimeRoot(bool create);

struct ClusterState {
  bool exists = false;   // its directory is there
  bool running = false;  // its supervisor lives
  pid_t pid = -1;        // of the supervisor, when running
  std::string address;   // empty: not published yet
};

// Of cluster `name`; never an error that there is none. InvalidArgument for a name that is none.
absl::StatusOr<ClusterState> LookUpCluster(const std::string& name);

// Removes what a cluster left whose supervisor is gone; FailedPrecondition while it runs.
absl::Status RemoveStaleCluster(const std::string& name);

// The supervisor's hold on its cluster's directory. The lock is the process's (not inherited by children) and goes with it.
class ClusterDir {
 public:
  // Takes the name; what a dead supervisor left is removed. AlreadyExists: the cluster runs (says its pid and address).
  static absl::StatusOr<ClusterDir> Claim(const std::string& name);
  ClusterDir(ClusterDir&& o) noexcept;
  ClusterDir& operator=(ClusterDir&&) = delete;
  // Removes the directory with everything in it.
  ~ClusterDir();

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  ClusterDir(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}

  std::string path_;
  int lock_fd_;
};

// First line of a file without white space around it; empty when it cannot be read.
std::string ReadFirstLine(const std::string& path);

// --address, then WEFT_ADDRESS, then the address file of `cluster` (empty: WEFT_CLUSTER, then "default").
// Unavailable says what was tried and what to do.
absl::StatusOr<std::string> ResolveAddress(const std::string& address, const std::string& cluster);

// The file with the join token, absolute: `token_file`, else WEFT_TOKEN_FILE, else empty.
std::string TokenFile(const std::string& token_file);

// The token in TokenFile(`token_file`); empty without such a file. InvalidArgument names the option and the file.
absl::StatusOr<std::string> ResolveToken(const std::string& token_file);

// `cluster`, else WEFT_CLUSTER, else "default".
std::string ClusterName(const std::string& cluster);

}  // namespace weft
