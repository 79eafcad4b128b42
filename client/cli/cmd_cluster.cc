#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/cli/cluster_dir.h"
#include "client/cli/commands.h"
#include "client/cli/console.h"
#include "client/cli/supervisor.h"
#include "common/base/parse.h"

namespace weft {
namespace {

// How the detached supervisor tells its parent how the start went: the first byte is '+' (ready) or an exit code, text follows.
void Tell(int fd, char first, const std::string& text) {
  const std::string message = std::string(1, first) + text;
  size_t at = 0;
  while (at < message.size()) {
    const ssize_t n = write(fd, message.data() + at, message.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // the parent is gone; the cluster stays
    at += static_cast<size_t>(n);
  }
  close(fd);
}

void PrintReady(bool json, const std::string& cluster, int workers, const std::string& address, bool detached) {
  if (json) {
    // One line, so that who started this can read it while the cluster runs.
    Print(nlohmann::ordered_json({{"cluster", cluster}, {"address", address}, {"workers", workers}}).dump() + "\n");
  } else {
    Print(absl::StrCat("cluster \"", cluster, "\" is ready: ", workers, workers == 1 ? " worker" : " workers", ", driver at ", address,
                       detached ? absl::StrCat("\nend it with: weft down", cluster == "default" ? "" : " --name ",
                                               cluster == "default" ? "" : cluster)
                                : "\nCtrl-C ends it",
                       "\n"));
  }
  fflush(stdout);
}

Outcome OfStart(const absl::Status& status) {
  const std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kOk: return Outcome();
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kNotFound: return Outcome(ExitCode::kUsage, message);
    case absl::StatusCode::kDeadlineExceeded: return Outcome(ExitCode::kDeadline, message);
    default: return Outcome(ExitCode::kUnreachable, message);
  }
}

// `log`: what the supervisor says goes to a file of the cluster instead of stderr.
Outcome Supervise(const ClusterConfig& config, bool log, const std::function<void(const std::string&)>& on_ready) {
  auto dir = ClusterDir::Claim(config.name);
  if (!dir.ok()) return OfStart(dir.status());
  if (log) {
    const int fd = open(dir->File("up.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
      dup2(fd, 2);
      close(fd);
    }
  }
  bool ready = false;
  const absl::Status status = Supervisor(config, *dir).Run([&](const std::string& address) {
    ready = true;
    on_ready(address);
  });
  if (status.ok() && !ready) return Outcome(ExitCode::kInterrupted, "interrupted before the cluster was ready");
  return OfStart(status);
}

// Parent's side: waits for the word of the child.
Outcome AwaitDetached(int fd, bool json, const ClusterConfig& config) {
  std::string message;
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    message.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  if (message.empty()) return Outcome(ExitCode::kUnreachable, "the cluster's supervisor ended without a word");
  if (message[0] != '+') return Outcome(static_cast<ExitCode>(static_cast<unsigned char>(message[0])), message.substr(1));
  PrintReady(json, config.name, config.workers, message.substr(1), true);
  return Outcome();
}

// The detached child: no terminal, no directory held.
void Detach() {
  setsid();
  const int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null_fd, 0);
  dup2(null_fd, 1);
  dup2(null_fd, 2);
  close(null_fd);
  if (chdir("/") != 0) Complain(strerror(errno));
}

}  // namespace

Outcome RunUp(const CommonArgs& common, const UpArgs& args) {
  if (!common.address.empty()) return Outcome(ExitCode::kUsage, "--address: `weft up` starts a driver of its own; say where it listens with --listen");
  if (args.detach && args.verbose) return Outcome(ExitCode::kUsage, "--verbose needs a terminal to write to: leave out --detach");
  ClusterConfig config;
  config.name = ClusterName(common.cluster);
  config.workers = args.workers;
  config.device = args.device;
  config.listen = args.listen;
  config.log_level = args.log_level;
  config.verbose = args.verbose;
  config.start_timeout_s = args.timeout_s;
  auto token = ResolveToken(common.token_file);
  if (!token.ok()) return Outcome::OfArgument(token.status());
  config.token = *std::move(token);
  config.token_file = TokenFile(common.token_file);
  if (!args.state_dir.empty()) config.state_dir = std::filesystem::absolute(args.state_dir).string();

  sigset_t signals;
  sigemptyset(&signals);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals, s);
  sigprocmask(SIG_BLOCK, &signals, nullptr);

  if (!args.detach) {
    return Supervise(config, false, [&](const std::string& address) { PrintReady(common.json, config.name, config.workers, address, false); });
  }

  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return Outcome(ExitCode::kExecutionFailed, strerror(errno));
  fflush(stdout);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Outcome(ExitCode::kExecutionFailed, absl::StrCat("cannot start the supervisor: ", strerror(errno)));
  if (pid > 0) {
    close(fds[1]);
    sigprocmask(SIG_UNBLOCK, &signals, nullptr);
    return AwaitDetached(fds[0], common.json, config);
  }
  close(fds[0]);
  Detach();
  // Until the cluster is ready it ends with the command that wanted it, by Ctrl-C say.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(static_cast<int>(ExitCode::kInterrupted));
  bool told = false;
  const Outcome outcome = Supervise(config, true, [&](const std::string& address) {
    told = true;
    prctl(PR_SET_PDEATHSIG, 0);
    Tell(fds[1], '+', address);
  });
  if (!told) Tell(fds[1], static_cast<char>(outcome.code()), outcome.message());
  _exit(static_cast<int>(outcome.code()));
}

Outcome RunDown(const CommonArgs& common, const DownArgs& args) {
  const std::string name = ClusterName(common.cluster);
  auto state = LookUpCluster(name);
  if (!state.ok()) return OfStart(state.status());
  const bool was_running = state->running;
  std::string how = was_running ? "ended" : state->exists ? "was not running; what it left is removed" : "is not running";
  if (was_running) {
    const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, state->pid, 0));
    // With the descriptor held, ask again: the pid is the supervisor's, or the supervisor is gone.
    auto again = LookUpCluster(name);
    if (pidfd >= 0 && again.ok() && again->running && again->pid == state->pid) {
      syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, nullptr, 0);
      struct pollfd p = {pidfd, POLLIN, 0};
      if (poll(&p, 1, static_cast<int>(args.timeout_s * 1000)) == 0) {
        // Its children die with it.
        syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0);
        poll(&p, 1, 5000);
        how = absl::StrCat("did not end within ", FormatSeconds(args.timeout_s), " and was killed");
      }
    }
    if (pidfd >= 0) close(pidfd);
  }
  if (state->exists) {
    const absl::Status removed = RemoveStaleCluster(name);
    if (!removed.ok()) return Outcome(ExitCode::kExecutionFailed, std::string(removed.message()));
  }
  if (common.json) {
    PrintJson({{"cluster", name}, {"was_running", was_running}});
  } else {
    Print(absl::StrCat("cluster \"", name, "\" ", how, "\n"));
  }
  return Outcome();
}

}  // namespace weft
