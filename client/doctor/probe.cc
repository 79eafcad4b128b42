#include "client/doctor/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// Each message is one of the socket; answers with the times of all sizes have some hundred bytes.
constexpr size_t kMessage = 64 * 1024;
constexpr int kSliceMs = 50;

class ProcessProbe : public Probe {
 public:
  ProcessProbe(pid_t pid, int fd, std::function<bool()> cancelled) : pid_(pid), fd_(fd), cancelled_(std::move(cancelled)) {}
  ~ProcessProbe() override {
    close(fd_);
    if (pid_ < 0) return;
    // It may hang in the driver; nothing that it has is worth waiting for.
    kill(pid_, SIGKILL);
    Reap();
  }

  absl::Status Send(const std::string& request) override {
    if (send(fd_, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) return absl::OkStatus();
    return Gone();
  }

  absl::StatusOr<std::string> Receive(Nanos deadline) override {
    for (;;) {
      if (cancelled_()) return absl::CancelledError("interrupted");
      const Nanos left = deadline - Clock::Real()->Now();
      if (left <= 0) return absl::DeadlineExceededError("it does not answer");
      pollfd p = {fd_, POLLIN, 0};
      if (poll(&p, 1, static_cast<int>(std::min<Nanos>(kSliceMs, left / 1'000'000 + 1))) <= 0) continue;
      std::string message(kMessage, '\0');
      const ssize_t n = recv(fd_, message.data(), message.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Gone();
      message.resize(static_cast<size_t>(n));
      return message;
    }
  }

 private:
  // Its end of the socket is closed, so it has ended or is about to.
  absl::Status Gone() {
    if (pid_ >= 0) how_ = Describe(Reap());
    return absl::UnavailableError(absl::StrCat("the process that tried it ", how_));
  }
  int Reap() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }
  static std::string Describe(int status) {
    if (WIFSIGNALED(status)) return absl::StrCat("was killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
    return absl::StrCat("exited with code ", WEXITSTATUS(status));
  }

  pid_t pid_;
  const int fd_;
  const std::function<bool()> cancelled_;
  std::string how_;
};

// After fork: only what a signal handler may do.
[[noreturn]] void RunChild(char* const* argv, pid_t parent, int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  setpgid(0, 0);  // Ctrl-C at the terminal is the command's to handle
  // What CUDA or NCCL print must not come between the report's lines: it goes to stderr.
  dup2(2, 1);
  if (socket == kProbeFd) {
    fcntl(socket, F_SETFD, 0);
  } else {
    dup2(socket, kProbeFd);
  }
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Probe>> StartProbeProcess(const std::vector<std::string>& argv, std::function<bool()> cancelled) {
  std::vector<char*> args;
  for (const std::string& a : argv) args.push_back(const_cast<char*>(a.c_str()));
  args.push_back(nullptr);
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot make a socket: ", strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) RunChild(args.data(), parent, fds[1]);
  const int error = errno;
  close(fds[1]);
  if (pid < 0) {
    close(fds[0]);
    return absl::ResourceExhaustedError(absl::StrCat("cannot start a process: ", strerror(error)));
  }
  return std::unique_ptr<Probe>(new ProcessProbe(pid, fds[0], std::move(cancelled)));
}

void ServeProbe(int fd, const std::function<std::string(const std::string&)>& answer) {
  for (;;) {
    std::string message(kMessage, '\0');
    const ssize_t n = recv(fd, message.data(), message.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    message.resize(static_cast<size_t>(n));
    const std::string reply = answer(message);
    if (send(fd, reply.data(), reply.size(), MSG_NOSIGNAL) < 0) return;
  }
}

}  // namespace weft
