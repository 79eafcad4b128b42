#include "client/cli/temporary_cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/cli/interrupt.h"
#include "client/cli/process.h"
#include "common/base/status_macros.h"

namespace weft {

absl::StatusOr<std::unique_ptr<TemporaryCluster>> TemporaryCluster::Start(int workers, const std::string& token_file) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return absl::ResourceExhaustedError(absl::StrCat("cannot make a pipe: ", strerror(errno)));
  SpawnOptions options;
  options.argv = {SelfPath(), "up", "--json", "--workers", absl::StrCat(workers), "--name", absl::StrCat("temporary-", getpid())};
  if (!token_file.empty()) options.argv.insert(options.argv.end(), {"--token-file", token_file});
  options.stdout_fd = fds[1];
  // Not SIGKILL: it is to end its own children and remove its files.
  options.death_signal = SIGTERM;
  auto pid = Spawn(options);
  close(fds[1]);
  if (!pid.ok()) {
    close(fds[0]);
    return pid.status();
  }
  std::unique_ptr<TemporaryCluster> cluster(new TemporaryCluster(*pid));
  std::string line;
  {
    const pid_t child = *pid;
    const Interrupt::Scope scope([child] { kill(child, SIGTERM); });
    char c;
    for (;;) {
      const ssize_t n = read(fds[0], &c, 1);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0 || c == '\n') break;
      line += c;
    }
  }
  close(fds[0]);
  if (Interrupt::Requested()) return absl::CancelledError("interrupted");
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("address")) return absl::UnavailableError("the temporary cluster did not start");
  cluster->address_ = json["address"];
  return cluster;
}

TemporaryCluster::~TemporaryCluster() {
  kill(pid_, SIGTERM);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace weft
