#include "tests/integration/daemons.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "common/base/clock.h"

namespace weft {
namespace {

constexpr Nanos kPatience = 20 * kNanosPerSecond;

std::string BinaryPath(const std::string& label) {
  const char* srcdir = getenv("TEST_SRCDIR");
  const std::filesystem::path root =
      srcdir != nullptr ? std::filesystem::path(srcdir) / "weft"
                        : std::filesystem::path(std::filesystem::read_symlink("/proc/self/exe").string() + ".runfiles") / "weft";
  return (root / label).string();
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }

}  // namespace

Daemons::Daemons(const std::vector<std::string>& hosts, const std::string& driver_host) : hosts_(hosts), driver_host_(driver_host) {
  char dir[] = "/tmp/weft-test-XXXXXX";
  if (mkdtemp(dir) == nullptr) throw std::runtime_error("no temporary directory");
  dir_ = dir;
  StartDriver();
  workers_.assign(hosts.size(), -1);
  for (size_t i = 0; i < hosts.size(); ++i) StartWorker(static_cast<int>(i));
  AwaitWorkers(static_cast<int>(hosts.size()));
}

Daemons::~Daemons() {
  for (size_t i = 0; i < workers_.size(); ++i) KillWorker(static_cast<int>(i));
  KillDriver();
  std::error_code ignored;
  std::filesystem::remove_all(dir_, ignored);
}

std::unique_ptr<Client> Daemons::Dial() const {
  absl::StatusOr<std::unique_ptr<Client>> c = Client::Connect(address_);
  if (!c.ok()) throw std::runtime_error(std::string(c.status().message()) + "\n" + Log("driver"));
  return *std::move(c);
}

pid_t Daemons::Spawn(const std::string& binary, const std::vector<std::string>& args, const std::string& log) const {
  std::vector<char*> argv = {const_cast<char*>(binary.c_str())};
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  const std::string log_path = dir_ + "/" + log + ".log";
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    const int fd = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    execv(binary.c_str(), argv.data());
    _exit(127);
  }
  if (pid < 0) throw std::runtime_error("cannot fork");
  return pid;
}

void Daemons::StartDriver() {
  const std::string file = dir_ + "/address";
  std::filesystem::remove(file);
  driver_ = Spawn(BinaryPath("driver/serve/weft-driver"),
                  {"--listen", address_, "--state-dir", dir_ + "/state", "--address-file", file, "--host-id", driver_host_}, "driver");
  const Nanos until = Clock::Real()->Now() + kPatience;
  while (!std::filesystem::exists(file)) {
    if (Clock::Real()->Now() > until) throw std::runtime_error("the driver did not come up:\n" + Log("driver"));
    Pause();
  }
  std::istringstream(ReadFile(file)) >> address_;
}

void Daemons::StartWorker(int i) {
  const std::string name = "w" + std::to_string(i);
  workers_[i] = Spawn(BinaryPath("worker/weft-worker"), {"--driver", address_, "--name", name, "--host-id", hosts_[i]}, name);
}

void Daemons::SignalWorker(int i, int signal) const {
  if (workers_[i] > 0) kill(workers_[i], signal);
}

void Daemons::KillWorker(int i) {
  if (workers_[i] <= 0) return;
  kill(workers_[i], SIGKILL);
  waitpid(workers_[i], nullptr, 0);
  workers_[i] = -1;
}

void Daemons::KillDriver() {
  if (driver_ <= 0) return;
  kill(driver_, SIGKILL);
  waitpid(driver_, nullptr, 0);
  driver_ = -1;
}

void Daemons::AwaitWorkers(int alive) const {
  const std::unique_ptr<Client> client = Dial();
  const Nanos until = Clock::Real()->Now() + kPatience;
  std::string seen;
  while (Clock::Real()->Now() < until) {
    const absl::StatusOr<v1::ListWorkersReply> reply = client->ListWorkers();
    if (reply.ok()) {
      seen = reply->DebugString();
      int n = 0;
      for (const v1::WorkerInfo& w : reply->worker()) n += w.state() == "alive";
      if (n >= alive) return;
    } else {
      seen = std::string(reply.status().message());
    }
    Pause();
  }
  throw std::runtime_error("not all workers came up: " + seen);
}

std::string Daemons::Log(const std::string& name) const { return ReadFile(dir_ + "/" + name + ".log"); }

}  // namespace weft
