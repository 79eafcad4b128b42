#include "client/cli/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/process.h"
#include "client/cpp/client.h"
#include "common/device/cuda/library.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

constexpr Nanos kMillisecond = 1'000'000;
// Children that do not end by themselves in this time are killed.
constexpr Nanos kGrace = 3 * kNanosPerSecond;
// A child that cannot even start so many times in a row makes `weft up` fail.
constexpr int kMaxStartDeaths = 3;

}  // namespace

Nanos Backoff::Next(Nanos lived) {
  if (lived >= kLived) quick_ = 0;
  const Nanos delay = std::min(kMost, kFirst << std::min(quick_, 10));
  ++quick_;
  return delay;
}

void Supervisor::Say(const std::string& text) const {
  char time_text[32];
  const time_t now = time(nullptr);
  struct tm local;
  localtime_r(&now, &local);
  strftime(time_text, sizeof(time_text), "%Y-%m-%d %H:%M:%S", &local);
  fprintf(stderr, "%s weft up: %s\n", time_text, text.c_str());
}

absl::StatusOr<int> Supervisor::CountGpus() const {
  if (config_.device != "cuda") return 0;
  WEFT_ASSIGN_OR_RETURN(const CudaPlugin* const plugin, LoadCudaPlugin(""));
  int count = 0;
  const int code = plugin->cuda->DeviceCount(&count);
  if (code != kCudaSuccess || count == 0) {
    return absl::FailedPreconditionError(absl::StrCat("--device cuda: ", code != kCudaSuccess ? plugin->cuda->ErrorText(code) : "there is no GPU",
                                                      "; run `weft doctor`, or leave the option out"));
  }
  return count;
}

absl::Status Supervisor::Prepare() {
  WEFT_ASSIGN_OR_RETURN(const std::string driver, FindDaemon("weft-driver"));
  WEFT_ASSIGN_OR_RETURN(const std::string worker, FindDaemon("weft-worker"));
  sigset_t signals;
  sigemptyset(&signals);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals, s);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd_ < 0) return absl::InternalError(absl::StrCat("signalfd: ", strerror(errno)));

  Child d;
  d.name = "driver";
  d.argv = {driver, "--listen", config_.listen, "--state-dir",
            config_.state_dir.empty() ? dir_.File("state") : config_.state_dir, "--address-file", dir_.File("address"), "--log-level",
            config_.log_level};
  if (!config_.token_file.empty()) d.argv.insert(d.argv.end(), {"--token-file", config_.token_file});
  d.log = dir_.File("driver.log");
  d.wanted = true;
  children_.push_back(d);
  WEFT_ASSIGN_OR_RETURN(const int gpus, CountGpus());
  for (int i = 0; i < config_.workers; ++i) {
    Child w;
    w.name = absl::StrCat("w", i);
    // Its driver's address follows when it is known.
    w.argv = {worker, "--name", w.name, "--device", config_.device, "--log-level", config_.log_level};
    if (gpus > 0) {
      w.argv[4] = absl::StrCat("cuda:", i % gpus);
      if (config_.workers > gpus) w.argv.push_back("--share-gpu");
    }
    if (!config_.token_file.empty()) w.argv.insert(w.argv.end(), {"--token-file", config_.token_file});
    w.log = dir_.File(absl::StrCat(w.name, ".log"));
    children_.push_back(w);
  }
  return absl::OkStatus();
}

absl::Status Supervisor::Start(Child* child) {
  SpawnOptions options;
  options.argv = child->argv;
  options.death_signal = SIGKILL;
  int log_fd = -1;
  if (!config_.verbose) {
    log_fd = open(child->log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0) return absl::FailedPreconditionError(absl::StrCat("cannot write ", child->log, ": ", strerror(errno)));
  }
  options.stdout_fd = config_.verbose ? 2 : log_fd;
  options.stderr_fd = config_.verbose ? 2 : log_fd;
  auto pid = Spawn(options);
  if (log_fd >= 0) close(log_fd);
  WEFT_RETURN_IF_ERROR(pid.status());
  child->pid = *pid;
  child->started = Clock::Real()->Now();
  return absl::OkStatus();
}

absl::Status Supervisor::StartDue() {
  const Nanos now = Clock::Real()->Now();
  for (Child& child : children_) {
    if (!child.wanted || child.pid >= 0 || child.start_at > now) continue;
    const absl::Status status = Start(&child);
    if (status.ok()) continue;
    if (!ready_) return status;
    // Out of processes or disk, say: tried again later.
    Say(std::string(status.message()));
    child.start_at = now + child.backoff.Next(0);
  }
  return absl::OkStatus();
}

absl::Status Supervisor::Reap() {
  for (Child& child : children_) {
    int wait_status = 0;
    if (child.pid < 0 || waitpid(child.pid, &wait_status, WNOHANG) != child.pid) continue;
    const Nanos now = Clock::Real()->Now();
    const Nanos delay = child.backoff.Next(now - child.started);
    const std::string what = absl::StrCat(child.name, " (pid ", child.pid, ") ", DescribeExit(wait_status));
    child.pid = -1;
    child.start_at = now + delay;
    if (!ready_ && child.backoff.quick_deaths() >= kMaxStartDeaths) {
      return absl::FailedPreconditionError(absl::StrCat("the cluster does not start: ", what,
                                                        config_.verbose ? "" : absl::StrCat(". The end of its log:", TailOf(child.log, 8))));
    }
    Say(absl::StrCat(what, "; starting it again in ", FormatSeconds(ToSeconds(delay))));
  }
  return absl::OkStatus();
}

void Supervisor::PublishAddress() {
  if (!address_.empty()) return;
  address_ = ReadFirstLine(dir_.File("address"));
  if (address_.empty()) return;
  for (Child& child : children_) {
    if (child.name == "driver") {
      // Workers and clients find a restarted driver where the first one was.
      child.argv[2] = address_;
    } else {
      child.argv.insert(child.argv.begin() + 1, {"--driver", address_});
      child.wanted = true;
    }
  }
}

std::string Supervisor::Missing() {
  if (address_.empty()) return "the driver's address";
  std::vector<std::string> missing;
  auto client = Client::Connect(address_, 1, config_.token);
  if (!client.ok()) return std::string(client.status().message());
  auto list = (*client)->ListWorkers(1);
  if (!list.ok()) return std::string(list.status().message());
  for (const Child& child : children_) {
    const bool there = std::any_of(list->worker().begin(), list->worker().end(), [&](const v1::WorkerInfo& w) {
      return w.name() == child.name && w.state() == "alive";
    });
    if (child.name != "driver" && !there) missing.push_back(child.name);
  }
  return absl::StrJoin(missing, ", ");
}

bool Supervisor::AllRegistered() { return !address_.empty() && Missing().empty(); }

Nanos Supervisor::NextStart() const {
  Nanos next = std::numeric_limits<Nanos>::max();
  for (const Child& child : children_) {
    if (child.wanted && child.pid < 0) next = std::min(next, child.start_at);
  }
  return next;
}

int Supervisor::WaitForSignal(Nanos until) {
  const Nanos left = until == std::numeric_limits<Nanos>::max() ? -1 : std::max<Nanos>(until - Clock::Real()->Now(), 0);
  struct pollfd p = {signal_fd_, POLLIN, 0};
  // Rounded up, so that what is due then is due.
  poll(&p, 1, left < 0 ? -1 : static_cast<int>(std::min<Nanos>((left + kMillisecond - 1) / kMillisecond, 1'000'000)));
  int end = 0;
  struct signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) end = static_cast<int>(info.ssi_signo);
  }
  return end;
}

void Supervisor::StopAll() {
  const Nanos until = Clock::Real()->Now() + kGrace;
  for (Child& child : children_) {
    child.wanted = false;
    if (child.pid >= 0) kill(child.pid, SIGTERM);
  }
  bool killed = false;
  for (;;) {
    bool any = false;
    for (Child& child : children_) {
      if (child.pid >= 0 && waitpid(child.pid, nullptr, killed ? 0 : WNOHANG) == child.pid) child.pid = -1;
      any = any || child.pid >= 0;
    }
    if (!any) return;
    // A second signal means: at once.
    const bool hurry = WaitForSignal(until) != 0;
    if (hurry || Clock::Real()->Now() >= until) {
      for (const Child& child : children_) {
        if (child.pid >= 0) kill(child.pid, SIGKILL);
      }
      killed = true;
    }
  }
}

absl::Status Supervisor::Run(const std::function<void(const std::string& address)>& on_ready) {
  absl::Status status = Prepare();
  const Nanos deadline = Clock::Real()->Now() + FromSeconds(config_.start_timeout_s);
  while (status.ok()) {
    status = StartDue();
    if (!status.ok()) break;
    Nanos until = NextStart();
    if (!ready_) until = std::min(until, Clock::Real()->Now() + 20 * kMillisecond);
    if (WaitForSignal(until) != 0) break;
    status = Reap();
    if (!status.ok() || ready_) continue;
    PublishAddress();
    if (AllRegistered()) {
      ready_ = true;
      on_ready(address_);
    } else if (Clock::Real()->Now() > deadline) {
      status = absl::DeadlineExceededError(absl::StrCat("the cluster is not complete after ", FormatSeconds(config_.start_timeout_s),
                                                        "; missing: ", Missing(), config_.verbose ? "" : ". The end of the driver's log:",
                                                        config_.verbose ? "" : TailOf(children_[0].log, 8)));
    }
  }
  StopAll();
  if (signal_fd_ >= 0) close(signal_fd_);
  return status;
}

}  // namespace weft
