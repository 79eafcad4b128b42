#include "client/cli/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

// What failed in the child before its program ran.
struct ChildError {
  int step;
  int error;
};

// After fork in a process with threads: only what a signal handler may do.
[[noreturn]] void RunChild(const SpawnOptions& options, char* const* argv, pid_t parent, int null_fd, int error_fd) {
  const auto fail = [error_fd](int step) {
    const ChildError e{step, errno};
    ssize_t ignored = write(error_fd, &e, sizeof(e));
    (void)ignored;
    _exit(127);
  };
  if (prctl(PR_SET_PDEATHSIG, options.death_signal) != 0) fail(0);
  // The parent may have ended before that took effect.
  if (getppid() != parent) _exit(127);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) signal(s, SIG_DFL);
  // A group of its own: Ctrl-C at the terminal is the supervisor's to handle.
  setpgid(0, 0);
  if (dup2(null_fd, 0) < 0) fail(1);
  if (options.stdout_fd >= 0 && dup2(options.stdout_fd, 1) < 0) fail(1);
  if (options.stderr_fd >= 0 && dup2(options.stderr_fd, 2) < 0) fail(1);
  syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
  execv(argv[0], argv);
  fail(2);
  _exit(127);
}

}  // namespace

absl::StatusOr<pid_t> Spawn(const SpawnOptions& options) {
  std::vector<char*> argv;
  for (const std::string& a : options.argv) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  const int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  int pipe_fds[2];
  if (null_fd < 0 || pipe2(pipe_fds, O_CLOEXEC) != 0) {
    if (null_fd >= 0) close(null_fd);
    return absl::ResourceExhaustedError(absl::StrCat("cannot start ", options.argv[0], ": ", strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) RunChild(options, argv.data(), parent, null_fd, pipe_fds[1]);
  const int fork_error = errno;
  close(null_fd);
  close(pipe_fds[1]);
  if (pid < 0) {
    close(pipe_fds[0]);
    return absl::ResourceExhaustedError(absl::StrCat("cannot start ", options.argv[0], ": ", strerror(fork_error)));
  }
  // Ends without a byte when the program runs.
  ChildError e{};
  ssize_t n;
  do {
    n = read(pipe_fds[0], &e, sizeof(e));
  } while (n < 0 && errno == EINTR);
  close(pipe_fds[0]);
  if (n == sizeof(e)) {
    waitpid(pid, nullptr, 0);
    return absl::FailedPreconditionError(absl::StrCat("cannot execute ", options.argv[0], ": ", strerror(e.error)));
  }
  return pid;
}

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return absl::StrCat("was killed by signal ", WTERMSIG(wait_status), " (", strsignal(WTERMSIG(wait_status)), ")");
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(wait_status));
}

std::string SelfPath() {
  char buffer[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", buffer, sizeof(buffer));
  return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : "";
}

absl::StatusOr<std::string> FindDaemon(const std::string& name) {
  std::vector<std::string> places;
  const char* bin = getenv("WEFT_BIN_DIR");
  if (bin != nullptr && *bin != '\0') {
    places.push_back(absl::StrCat(bin, "/", name));
  } else {
    const std::filesystem::path self = std::filesystem::path(SelfPath()).parent_path();
    places.push_back((self / name).string());
    const char* built = name == "weft-driver" ? "driver/serve" : "worker";
    places.push_back((self.parent_path().parent_path() / built / name).string());
  }
  for (const std::string& place : places) {
    if (access(place.c_str(), X_OK) == 0) return std::filesystem::absolute(place).string();
  }
  return absl::NotFoundError(absl::StrCat(name, " was not found; looked at ", absl::StrJoin(places, ", "),
                                          ". Build it, or set WEFT_BIN_DIR to where it is"));
}

std::string TailOf(const std::string& path, int lines) {
  std::ifstream in(path);
  std::deque<std::string> last;
  std::string line;
  while (std::getline(in, line)) {
    last.push_back(line);
    if (static_cast<int>(last.size()) > lines) last.pop_front();
  }
  std::string out;
  for (const std::string& l : last) absl::StrAppend(&out, "\n    ", l);
  return out;
}

}  // namespace weft
