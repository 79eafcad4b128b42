#include "tests/integration/daemons.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "common/base/clock.h"

namespace weft {
namespace {

constexpr Nanos kPatience = 20 * kNanosPerSecond;
constexpr Nanos kGpuPatience = 60 * kNanosPerSecond;

// Beside this program where it is installed; among the test's runfiles where it was built.
std::string BinaryPath(const std::string& label) {
  const std::filesystem::path path(label), self = std::filesystem::read_symlink("/proc/self/exe");
  if (const char* bin = getenv("WEFT_BIN_DIR"); bin != nullptr && *bin != '\0') return (bin / path.filename()).string();
  if (const char* srcdir = getenv("TEST_SRCDIR"); srcdir != nullptr) return (srcdir / ("weft" / path)).string();
  const std::filesystem::path beside = self.parent_path() / path.filename();
  if (std::filesystem::exists(beside)) return beside.string();
  return (self.string() + ".runfiles/weft/" + label);
}

// What worker i of a test is to run on.
std::string DeviceOf(int i) {
  const char* device = getenv("WEFT_TEST_DEVICE");
  if (device == nullptr || *device == '\0') return "cpu";
  if (std::string(device) != "cuda") return device;
  const char* gpus = getenv("WEFT_TEST_GPUS");
  const int n = gpus == nullptr ? 1 : std::max(1, atoi(gpus));
  return "cuda:" + std::to_string(i % n);
}

// Whether there is a GPU for each worker, and no two are told to use the same.
bool OwnGpus(size_t workers, const std::vector<std::string>& devices) {
  const char* gpus = getenv("WEFT_TEST_GPUS");
  if (gpus == nullptr || atoi(gpus) < static_cast<int>(workers)) return false;
  std::set<std::string> used;
  for (size_t i = 0; i < workers; ++i) {
    const std::string device = i < devices.size() ? devices[i].substr(0, devices[i].find(' ')) : DeviceOf(static_cast<int>(i));
    if (device.rfind("cuda:", 0) == 0 && !used.insert(device).second) return false;
  }
  return true;
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

// Every process started here carries this in its environment, and so do its own children.
std::string Mark() { return "WEFT_STARTED_BY_TEST=" + std::to_string(getpid()); }

// Ended and not yet reaped counts as not running, which kill(pid, 0) would not tell.
bool Runs(pid_t pid) {
  if (pid <= 0) return false;
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

void KillAndReap(pid_t* pid) {
  if (*pid <= 0) return;
  kill(*pid, SIGKILL);
  waitpid(*pid, nullptr, 0);
  *pid = -1;
}

std::atomic<Nanos> awaited{0};

void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }

}  // namespace

Daemons::Daemons(const std::vector<std::string>& hosts, const std::string& driver_host, std::vector<std::string> devices, Start start)
    : hosts_(hosts), driver_host_(driver_host), devices_(std::move(devices)) {
  char dir[] = "/tmp/weft-test-XXXXXX";
  if (mkdtemp(dir) == nullptr) throw std::runtime_error("no temporary directory");
  dir_ = dir;
  workers_.assign(hosts.size(), -1);
  try {
    StartDriver();
    for (size_t i = 0; i < hosts.size(); ++i) StartWorker(static_cast<int>(i));
    if (start == kUp) AwaitWorkers();
  } catch (...) {
    EndAll();
    throw;
  }
}

Daemons::~Daemons() { EndAll(); }

void Daemons::EndAll() {
  for (pid_t& pid : clis_) KillAndReap(&pid);
  for (pid_t& pid : workers_) KillAndReap(&pid);
  KillAndReap(&driver_);
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
  // All that allocates is done before the fork: this process may have threads.
  const std::string mark = Mark();
  std::vector<char*> env = {const_cast<char*>(mark.c_str())};
  for (char** e = environ; *e != nullptr; ++e) {
    if (std::string(*e).rfind("WEFT_", 0) != 0) env.push_back(*e);  // no setting of whoever runs the test reaches its cluster
  }
  env.push_back(nullptr);
  const std::string log_path = dir_ + "/" + log + ".log";
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    const int fd = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    execve(binary.c_str(), argv.data(), env.data());
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
  std::istringstream words(i < static_cast<int>(devices_.size()) ? devices_[i] : DeviceOf(i));
  std::string device;
  words >> device;
  const bool fake = device == "fake-cuda";
  std::string binary = fake ? "tests/fake_gpu/weft-worker-fake-gpu" : "worker/weft-worker";
  std::vector<std::string> args = {"--driver", address_, "--name", name, "--host-id", hosts_[i], "--device", fake ? "cuda" : device};
  // Where the CPU plays the GPU, threads outnumber the cores.
  if (fake) args.insert(args.end(), {"--spin", "0us"});
  bool own_gpu = device == "cpu" || OwnGpus(hosts_.size(), devices_);
  for (std::string more; words >> more;) {
    if (more == "--own-gpu") {
      own_gpu = true;
    } else if (more == "--with-faults" && !fake) {
      binary = "tests/faults/weft-worker-with-faults";
    } else {
      args.push_back(more);
    }
  }
  if (!own_gpu) args.push_back("--share-gpu");
  workers_[i] = Spawn(BinaryPath(binary), args, name);
}

void Daemons::SignalWorker(int i, int signal) const {
  if (workers_[i] > 0) kill(workers_[i], signal);
}

void Daemons::KillWorker(int i) { KillAndReap(&workers_[i]); }

void Daemons::KillDriver() { KillAndReap(&driver_); }

bool Daemons::WorkerRuns(int i) const { return Runs(workers_[i]); }

bool Daemons::DriverRuns() const { return Runs(driver_); }

std::string Daemons::HowWorkerEnded(int i) const {
  siginfo_t info = {};
  if (workers_[i] <= 0 || waitid(P_PID, static_cast<id_t>(workers_[i]), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return "";
  return (info.si_code == CLD_EXITED ? "exit code " : "signal ") + std::to_string(info.si_status);
}

pid_t Daemons::StartCli(const std::vector<std::string>& args) {
  std::vector<std::string> all = {"--address", address_};
  all.insert(all.end(), args.begin(), args.end());
  clis_.push_back(Spawn(BinaryPath("client/cli/weft"), all, "cli"));
  return clis_.back();
}

void Daemons::KillCli(pid_t pid) {
  for (pid_t& p : clis_) {
    if (p == pid) KillAndReap(&p);
  }
}

double Daemons::SecondsAwaited() { return ToSeconds(awaited.load()); }

void Daemons::AwaitWorkers(const std::vector<int>& which) const {
  const Nanos since = Clock::Real()->Now();
  const std::shared_ptr<void> count(nullptr, [since](void*) { awaited.fetch_add(Clock::Real()->Now() - since); });
  const std::unique_ptr<Client> client = Dial();
  const char* const device = getenv("WEFT_TEST_DEVICE");
  const Nanos until = since + (device != nullptr && std::string(device).rfind("cuda", 0) == 0 ? kGpuPatience : kPatience);
  std::string seen;
  while (Clock::Real()->Now() < until) {
    const absl::StatusOr<v1::ListWorkersReply> reply = client->ListWorkers();
    bool all = reply.ok();
    if (reply.ok()) {
      seen = reply->DebugString();
      std::map<std::string, int64_t> alive;
      for (const v1::WorkerInfo& w : reply->worker()) {
        if (w.state() == "alive") alive[w.name()] = w.pid();
      }
      for (size_t i = 0; i < workers_.size(); ++i) {
        if (!which.empty() && std::find(which.begin(), which.end(), static_cast<int>(i)) == which.end()) continue;
        const auto it = alive.find("w" + std::to_string(i));
        all &= workers_[i] <= 0 || (it != alive.end() && it->second == workers_[i]);
      }
    } else {
      seen = std::string(reply.status().message());
    }
    if (all) return;
    Pause();
  }
  std::string logs;
  for (size_t i = 0; i < workers_.size(); ++i) logs += Log("w" + std::to_string(i));
  throw std::runtime_error("not all workers came up: " + seen + "\n" + logs);
}

std::vector<pid_t> Daemons::Leftovers() {
  std::vector<pid_t> out;
  const std::string mark = Mark();
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment = '\0' + ReadFile(entry.path().string() + "/environ");
    bool left = environment.find('\0' + mark + '\0') != std::string::npos;
    // A zombie has no environment any more; but only this process's own can be left by it.
    std::istringstream status(ReadFile(entry.path().string() + "/status"));
    bool zombie = false, child = false;
    for (std::string line; std::getline(status, line);) {
      zombie |= line.rfind("State:\tZ", 0) == 0;
      child |= line == "PPid:\t" + std::to_string(getpid());
    }
    left |= zombie && child;
    if (left) out.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return out;
}

std::string Daemons::Log(const std::string& name) const { return ReadFile(dir_ + "/" + name + ".log"); }

bool Within(double seconds, const std::function<bool()>& holds) {
  const Nanos until = Clock::Real()->Now() + FromSeconds(seconds);
  while (!holds()) {
    if (Clock::Real()->Now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace weft
