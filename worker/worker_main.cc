#include "worker/worker_main.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/address.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/base/token_file.h"
#include "common/channel/shm/hub.h"
#include "common/device/cpu/cpu_device.h"
#include "common/device/cuda/cuda_device.h"
#include "common/device/cuda/environment.h"
#include "worker/session/agent.h"
#include "worker/session/deferred_free.h"
#include "worker/session/quiet_time.h"

namespace weft {
namespace {

struct Flags {
  std::string driver;
  std::string name;
  std::string device = "cpu";
  std::string host_id;
  std::string data_address = "127.0.0.1";
  std::string token_file;
  std::string log_level = "info";
  std::string spin;
  std::string cuda_library;
  bool share_gpu = false;
  int nccl_max_ctas = WorkerEnv().nccl_max_ctas;
};

constexpr int kUsage = 2;
constexpr int kUnreachable = 4;
// For telling the driver why the worker ends.
constexpr Nanos kLastWords = kNanosPerSecond;
constexpr auto kHardStop = std::chrono::seconds(5);

int signal_pipe[2];
void PassOnSignal(int signal) {
  const int saved = errno;
  const char number = static_cast<char>(signal);
  if (write(signal_pipe[1], &number, 1) < 0) {
  }
  errno = saved;
}

int Fail(int code, const absl::Status& s) {
  std::fprintf(stderr, "weft-worker: %s\n", std::string(s.message()).c_str());
  return code;
}

// Polling costs nothing that a worker with a GPU of its own would miss, and a GPU's work is mostly over sooner.
constexpr Nanos kCudaSpin = 20'000'000;

// "cpu", "cuda" or "cuda:1". -1: the CPU.
absl::StatusOr<int> ParseDevice(const std::string& device) {
  if (device == "cpu") return -1;
  if (device == "cuda") return 0;
  int ordinal = 0;
  if (device.rfind("cuda:", 0) == 0 && absl::SimpleAtoi(device.substr(5), &ordinal) && ordinal >= 0) return ordinal;
  return absl::InvalidArgumentError(absl::StrCat("--device \"", device.substr(0, 40), "\" is not cpu, cuda, or cuda:INDEX"));
}

int Main(const Flags& f, const CudaLoader& load_cuda) {
  if (absl::Status s = SetUpLogging(f.name.empty() ? "worker" : f.name, f.log_level); !s.ok()) return Fail(kUsage, s);
  if (!f.name.empty()) {
    if (absl::Status s = CheckName("worker", f.name); !s.ok()) return Fail(kUsage, s);
  }
  if (const auto driver = ParseAddress("--driver", f.driver, 1); !driver.ok()) return Fail(kUsage, driver.status());
  const absl::StatusOr<int> ordinal = ParseDevice(f.device);
  if (!ordinal.ok()) return Fail(kUsage, ordinal.status());
  const bool gpu = *ordinal >= 0;
  Nanos spin = gpu ? kCudaSpin : 0;
  if (!f.spin.empty()) {
    const absl::StatusOr<double> parsed = ParseSeconds("--spin", f.spin);
    if (!parsed.ok()) return Fail(kUsage, parsed.status());
    spin = FromSeconds(*parsed);
  }
  std::string token;
  if (!f.token_file.empty()) {
    const absl::StatusOr<std::string> read = ReadTokenFile("--token-file", f.token_file);
    if (!read.ok()) return Fail(kUsage, read.status());
    token = *read;
  }

  // Timed lanes (std.Delay, emulated links) end when they should, not the kernel's default 50 us later. Inherited by all threads.
  prctl(PR_SET_TIMERSLACK, 1);

  // Signals are taken by one thread, at its leisure. Threads of libraries that are older than this line (OpenBLAS has some) block none: what the
  // kernel hands to one of them must not end the process either, so each goes through the pipe.
  if (pipe2(signal_pipe, O_CLOEXEC) != 0) return Fail(1, absl::InternalError(absl::StrCat("no pipe for signals: ", strerror(errno))));
  struct sigaction action = {};
  action.sa_handler = PassOnSignal;
  action.sa_flags = SA_RESTART;
  sigset_t signals;
  sigemptyset(&signals);
  for (const int s : {SIGINT, SIGTERM}) {
    sigaddset(&signals, s);
    sigaction(s, &action, nullptr);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  absl::StatusOr<std::unique_ptr<Doorbell>> doorbell = Doorbell::Create();
  if (!doorbell.ok()) return Fail(1, doorbell.status());
  absl::StatusOr<std::unique_ptr<ShmHub>> hub = ShmHub::Create(doorbell->get());
  if (!hub.ok()) return Fail(1, hub.status());
  CpuDevice cpu(Clock::Real(), doorbell->get());
  std::unique_ptr<CudaDevice> cuda;
  if (gpu) {
    SetCudaEnvironment({f.share_gpu, f.name, f.data_address == "127.0.0.1" || f.data_address == "::1"});
    const absl::StatusOr<const CudaPlugin*> plugin = load_cuda(f.cuda_library);
    if (!plugin.ok()) return Fail(kUsage, absl::Status(plugin.status().code(), absl::StrCat("--device ", f.device, ": ", std::string(plugin.status().message()))));
    absl::StatusOr<std::unique_ptr<CudaDevice>> made = CudaDevice::Create(**plugin, Clock::Real(), *ordinal);
    if (!made.ok()) return Fail(kUsage, absl::Status(made.status().code(), absl::StrCat("--device ", f.device, ": ", std::string(made.status().message()))));
    cuda = *std::move(made);
  }
  DeferredFree deferred(Clock::Real());  // holds memory of the device, and is outlived by it

  std::unique_ptr<QuietTime> quiet;
  std::function<void(const absl::Status&)> on_device_lost;  // set below, before the loop begins
  if (gpu) {
    quiet = std::make_unique<QuietTime>(cuda.get(), &deferred, doorbell->get(), Clock::Real(), [&](const absl::Status& s) { on_device_lost(s); });
  }

  WorkerEnv env;
  env.clock = Clock::Real();
  env.device = gpu ? static_cast<Device*>(cuda.get()) : &cpu;
  env.cuda = cuda.get();
  env.nccl_max_ctas = f.nccl_max_ctas;
  env.shares_gpu = f.share_gpu;
  env.under_mps = gpu && UnderMps();
  if (const char* connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"); gpu && connections != nullptr) {
    (void)absl::SimpleAtoi(connections, &env.cuda_connections);  // what is no number CUDA ignores too
  }
  env.deferred = &deferred;
  env.quiet = quiet.get();
  env.doorbell = doorbell->get();
  env.hub = hub->get();
  env.registry = &ActorRegistry::Std(env.device->kind());
  env.data_address = f.data_address;
  env.host_id = f.host_id.empty() ? LocalHostId() : f.host_id;

  Agent* agent_pointer = nullptr;
  Executor::Options eo;
  eo.clock = env.clock;
  eo.doorbell = env.doorbell;
  eo.spin = spin;
  eo.device = env.device;
  if (quiet != nullptr) {
    eo.holds_device = [&quiet](bool at_rest) { return quiet->Holds(at_rest); };
    eo.pauses = [&quiet] { return quiet->Pauses(); };
    eo.why_held = [&quiet] { return quiet->WaitText(); };
  }
  std::atomic<bool> device_failed{false};
  std::atomic<bool> device_failing{false};
  absl::Status device_cause;  // before device_failed
  eo.on_device_failed = [&](const absl::Status& cause) {
    if (device_failing.exchange(true)) return;
    spdlog::error("{}; this worker ends, so that its supervisor starts it anew", std::string(cause.message()));
    device_cause = cause;
    device_failed.store(true);
    kill(getpid(), SIGTERM);  // the watcher's thread stops the agent
  };
  env.on_device_lost = on_device_lost = eo.on_device_failed;
  eo.on_failed = [&](const GraphRun& run, const absl::Status& cause) { agent_pointer->OnGraphFailed(run.name(), run.attempt(), cause); };
  eo.on_completed = [&](const GraphRun& run, int64_t n) { agent_pointer->OnGraphCompleted(run.name(), run.attempt(), n); };
  auto executor = std::make_unique<Executor>(eo);
  env.executor = executor.get();

  Agent::Options ao;
  ao.driver = f.driver;
  ao.name = f.name;
  ao.host_id = env.host_id;
  ao.device = env.device->kind();
  ao.data_address = f.data_address;
  ao.token = token;
  env.token = token;
  absl::Status status;
  {
    Agent agent(ao, &env);
    agent_pointer = &agent;
    executor->Start();
    std::thread watcher([&] {
      pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
      char sig = 0;
      while (read(signal_pipe[0], &sig, 1) < 0 && errno == EINTR) {
      }
      // A call of an actor that never returns cannot be ended by anyone else.
      std::thread([] {
        std::this_thread::sleep_for(kHardStop);
        spdlog::error("the worker did not stop in time, since a call of an actor or of a library does not return; it ends now");
        _exit(1);
      }).detach();
      agent.Stop(device_failed.load() ? kLastWords : 0);
    });
    status = agent.Run();
    if (device_failed.load()) {
      // Crash-only: of a device that has failed nothing can be given back.
      std::fprintf(stderr, "weft-worker: %s\n", std::string(device_cause.message()).c_str());
      std::fflush(nullptr);
      watcher.join();  // it was woken, and stops the agent
      _exit(1);
    }
    // Wakes the watcher when Run ended by itself; harmless otherwise.
    pthread_kill(watcher.native_handle(), SIGTERM);
    watcher.join();
    // The loop calls back into the agent, so it ends first; by now the agent has taken its graphs out of it.
    executor.reset();
  }
  if (!status.ok()) {
    return Fail(absl::IsAlreadyExists(status) || absl::IsInvalidArgument(status) ? kUsage : kUnreachable, status);
  }
  return 0;
}

}  // namespace

int WorkerMain(int argc, char** argv, const CudaLoader& load_cuda) {
  Flags f;
  CLI::App app{"weft-worker: hosts actors and runs its part of every plan"};
  app.add_option("--driver", f.driver, "Address of the driver, host:port")->required();
  app.add_option("--name", f.name, "Name of this worker; empty: the driver picks the first free of w0, w1, ...");
  app.add_option("--device", f.device, "cpu, or cuda[:index]")->capture_default_str();
  app.add_option("--host-id", f.host_id, "Workers with equal host ids share memory; default: a hash of the boot id");
  app.add_option("--data-address", f.data_address, "Address on which this worker's communicators listen")->capture_default_str();
  app.add_option("--token-file", f.token_file, "File whose first line is the join token of the driver")
      ->envname("WEFT_TOKEN_FILE");
  app.add_option("--log-level", f.log_level, "trace, debug, info, warn, error, off")->capture_default_str();
  app.add_option("--spin", f.spin,
                 "How long the loop polls before it sleeps while something is in flight, such as 20us; 0 where processes outnumber cores; "
                 "default: 0us on CPUs, 20ms on GPUs");
  app.add_option("--cuda-library", f.cuda_library, "File of weft's CUDA library; default: libweft_cuda.so beside this program, else $WEFT_CUDA_LIBRARY");
  app.add_flag("--share-gpu", f.share_gpu, "Other workers use this GPU too: gives NCCL a host id of this worker's own (NCCL_HOSTID)");
  app.add_option("--nccl-max-ctas", f.nccl_max_ctas,
                 "Most SMs that a kernel of NCCL takes; a GPU's graphs together get half of its SMs for NCCL (lanes x this number)")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int rc = app.exit(e);
    return rc == 0 ? 0 : kUsage;
  }
  return Main(f, load_cuda);
}

}  // namespace weft
