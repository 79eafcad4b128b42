#include "client/cli/cluster_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/token_file.h"

namespace weft {
namespace {

std::string Env(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status Errno(const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", strerror(errno)));
}

bool IsDirectory(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

// A directory that is ours alone. Not through symbolic links: the temporary directory is everybody's.
absl::Status CheckPrivate(const std::string& path) {
  struct stat st;
  if (lstat(path.c_str(), &st) != 0) {
    if (errno == ENOENT) return absl::NotFoundError(absl::StrCat(path, " does not exist"));
    return Errno(path);
  }
  if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not a directory of this user alone (mode 0700): remove it, or set XDG_RUNTIME_DIR to a directory of yours"));
  }
  return absl::OkStatus();
}

absl::Status MakePrivate(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Errno(absl::StrCat("cannot make directory ", path));
  return CheckPrivate(path);
}

absl::Status CheckClusterName(const std::string& name) {
  WEFT_RETURN_IF_ERROR(CheckName("cluster", name));
  if (name == "." || name == "..") return absl::InvalidArgumentError(absl::StrCat("cluster \"", name, "\": not a name"));
  return absl::OkStatus();
}

// Who holds the lock, or 0. The kernel knows; a pid in a file could be anybody's by now.
absl::StatusOr<pid_t> LockHolder(int fd) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(fd, F_GETLK, &lock) != 0) return Errno("cannot ask for the cluster's lock");
  return lock.l_type == F_UNLCK ? 0 : lock.l_pid;
}

void RemoveContents(const std::string& path) {
  std::error_code ec;
  // The lock goes last: while it stands, nobody takes the directory for a new cluster's.
  for (const auto& entry : std::filesystem::directory_iterator(path, ec)) {
    std::error_code ignored;
    if (entry.path().filename() != "lock") std::filesystem::remove_all(entry.path(), ignored);
  }
}

void RemoveDirectory(const std::string& path) {
  RemoveContents(path);
  unlink((path + "/lock").c_str());
  rmdir(path.c_str());
  // Only when no other cluster is in it.
  rmdir(std::filesystem::path(path).parent_path().c_str());
}

}  // namespace

absl::StatusOr<std::string> RuntimeRoot(bool create) {
  const std::string xdg = Env("XDG_RUNTIME_DIR");
  std::string root;
  if (!xdg.empty() && IsDirectory(xdg)) {
    root = absl::StrCat(xdg, "/weft");
  } else {
    const std::string tmp = Env("TMPDIR");
    root = absl::StrCat(!tmp.empty() && IsDirectory(tmp) ? tmp : "/tmp", "/weft-", geteuid());
  }
  WEFT_RETURN_IF_ERROR(create ? MakePrivate(root) : CheckPrivate(root));
  return root;
}

absl::StatusOr<ClusterState> LookUpCluster(const std::string& name) {
  WEFT_RETURN_IF_ERROR(CheckClusterName(name));
  ClusterState state;
  auto root = RuntimeRoot(false);
  if (absl::IsNotFound(root.status())) return state;
  WEFT_RETURN_IF_ERROR(root.status());
  const std::string path = absl::StrCat(*root, "/", name);
  if (!IsDirectory(path)) return state;
  state.exists = true;
  const int fd = open((path + "/lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return state;
  const auto holder = LockHolder(fd);
  close(fd);
  WEFT_RETURN_IF_ERROR(holder.status());
  state.running = *holder != 0;
  state.pid = *holder;
  if (state.running) state.address = ReadFirstLine(path + "/address");
  return state;
}

absl::Status RemoveStaleCluster(const std::string& name) {
  // Whoever holds the lock may remove; a cluster that starts meanwhile is left alone.
  auto dir = ClusterDir::Claim(name);
  return absl::IsAlreadyExists(dir.status()) ? absl::FailedPreconditionError(std::string(dir.status().message())) : dir.status();
}

absl::StatusOr<ClusterDir> ClusterDir::Claim(const std::string& name) {
  WEFT_RETURN_IF_ERROR(CheckClusterName(name));
  // Again when another process removed the directory between two of these steps.
  for (int attempt = 0; attempt < 100; ++attempt) {
    WEFT_ASSIGN_OR_RETURN(const std::string root, RuntimeRoot(true));
    const std::string path = absl::StrCat(root, "/", name);
    const absl::Status made = MakePrivate(path);
    if (absl::IsNotFound(made)) continue;
    WEFT_RETURN_IF_ERROR(made);
    const std::string lock_path = path + "/lock";
    const int fd = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
      if (errno == ENOENT) continue;
      return Errno(absl::StrCat("cannot open ", lock_path));
    }
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    if (fcntl(fd, F_SETLK, &lock) != 0) {
      const auto holder = LockHolder(fd);
      close(fd);
      if (holder.ok() && *holder == 0) continue;  // it ended just now
      const std::string address = ReadFirstLine(path + "/address");
      return absl::AlreadyExistsError(absl::StrCat("cluster \"", name, "\" is running already (pid ", holder.ok() ? *holder : -1,
                                                   address.empty() ? "" : ", address ", address,
                                                   "): end it with `weft down --name ", name, "`, or choose another --name"));
    }
    struct stat ours, there;
    if (fstat(fd, &ours) != 0 || lstat(lock_path.c_str(), &there) != 0 || ours.st_ino != there.st_ino || ours.st_dev != there.st_dev) {
      close(fd);
      continue;
    }
    RemoveContents(path);
    return ClusterDir(path, fd);
  }
  return absl::UnavailableError(absl::StrCat("the directory of cluster \"", name, "\" keeps being removed by another process"));
}

ClusterDir::ClusterDir(ClusterDir&& o) noexcept : path_(std::move(o.path_)), lock_fd_(std::exchange(o.lock_fd_, -1)) {}

ClusterDir::~ClusterDir() {
  if (lock_fd_ < 0) return;
  RemoveDirectory(path_);
  close(lock_fd_);
}

std::string ReadFirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return std::string(absl::StripAsciiWhitespace(line));
}

std::string ClusterName(const std::string& cluster) {
  if (!cluster.empty()) return cluster;
  const std::string env = Env("WEFT_CLUSTER");
  return env.empty() ? "default" : env;
}

absl::StatusOr<std::string> ResolveAddress(const std::string& address, const std::string& cluster) {
  if (!address.empty()) return address;
  // A cluster that is named outright is meant, whatever the environment says.
  if (cluster.empty()) {
    const std::string env = Env("WEFT_ADDRESS");
    if (!env.empty()) return env;
  }
  const std::string name = ClusterName(cluster);
  WEFT_ASSIGN_OR_RETURN(const ClusterState state, LookUpCluster(name));
  if (!state.running) {
    return absl::UnavailableError(absl::StrCat("no cluster \"", name, "\" is running on this machine",
                                               state.exists ? " (what is there was left by one that was killed)" : "",
                                               ": start one with `weft up`, or name a driver with --address or WEFT_ADDRESS"));
  }
  if (state.address.empty()) {
    return absl::UnavailableError(absl::StrCat("cluster \"", name, "\" (pid ", state.pid, ") is starting and has no address yet: try again"));
  }
  return state.address;
}

std::string TokenFile(const std::string& token_file) {
  const std::string named = token_file.empty() ? Env("WEFT_TOKEN_FILE") : token_file;
  return named.empty() ? named : std::filesystem::absolute(named).string();
}

absl::StatusOr<std::string> ResolveToken(const std::string& token_file) {
  const std::string path = TokenFile(token_file);
  if (path.empty()) return std::string();
  return ReadTokenFile(token_file.empty() ? "WEFT_TOKEN_FILE" : "--token-file", path);
}

}  // namespace weft
