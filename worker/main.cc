// weft-worker: hosts actors and runs its part of every plan. One per GPU, or per CPU slot.

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/base/token_file.h"
#include "common/channel/shm/hub.h"
#include "common/device/cpu/cpu_device.h"
#include "worker/session/agent.h"

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
  std::string spin = "0us";
};

constexpr int kUsage = 2;
constexpr int kUnreachable = 4;
constexpr auto kHardStop = std::chrono::seconds(5);

int Fail(int code, const absl::Status& s) {
  std::fprintf(stderr, "weft-worker: %s\n", std::string(s.message()).c_str());
  return code;
}

int Main(const Flags& f) {
  if (absl::Status s = SetUpLogging(f.name.empty() ? "worker" : f.name, f.log_level); !s.ok()) return Fail(kUsage, s);
  if (!f.name.empty()) {
    if (absl::Status s = CheckName("worker", f.name); !s.ok()) return Fail(kUsage, s);
  }
  const absl::StatusOr<double> spin = ParseSeconds("--spin", f.spin);
  if (!spin.ok()) return Fail(kUsage, spin.status());
  if (f.device != "cpu") {
    return Fail(kUsage, absl::InvalidArgumentError(absl::StrCat("--device ", f.device, ": this build drives \"cpu\" only")));
  }
  std::string token;
  if (!f.token_file.empty()) {
    const absl::StatusOr<std::string> read = ReadTokenFile("--token-file", f.token_file);
    if (!read.ok()) return Fail(kUsage, read.status());
    token = *read;
  }

  // Timed lanes (std.Delay, emulated links) end when they should, not the kernel's default 50 us later. Inherited by all threads.
  prctl(PR_SET_TIMERSLACK, 1);

  // Signals are taken by one thread, at its leisure.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  absl::StatusOr<std::unique_ptr<Doorbell>> doorbell = Doorbell::Create();
  if (!doorbell.ok()) return Fail(1, doorbell.status());
  absl::StatusOr<std::unique_ptr<ShmHub>> hub = ShmHub::Create(doorbell->get());
  if (!hub.ok()) return Fail(1, hub.status());
  CpuDevice device(Clock::Real(), doorbell->get());

  WorkerEnv env;
  env.clock = Clock::Real();
  env.device = &device;
  env.doorbell = doorbell->get();
  env.hub = hub->get();
  env.registry = &ActorRegistry::Std("cpu");
  env.data_address = f.data_address;
  env.host_id = f.host_id.empty() ? LocalHostId() : f.host_id;

  Agent* agent_pointer = nullptr;
  Executor::Options eo;
  eo.clock = env.clock;
  eo.doorbell = env.doorbell;
  eo.spin = FromSeconds(*spin);
  eo.on_failed = [&](const std::string& graph, const absl::Status& cause) { agent_pointer->OnGraphFailed(graph, cause); };
  eo.on_completed = [&](const std::string& graph, int64_t n) { agent_pointer->OnGraphCompleted(graph, n); };
  auto executor = std::make_unique<Executor>(eo);
  env.executor = executor.get();

  Agent::Options ao;
  ao.driver = f.driver;
  ao.name = f.name;
  ao.host_id = env.host_id;
  ao.device = "cpu";
  ao.data_address = f.data_address;
  ao.token = token;
  env.token = token;
  absl::Status status;
  {
    Agent agent(ao, &env);
    agent_pointer = &agent;
    executor->Start();
    std::thread watcher([&] {
      int sig = 0;
      sigwait(&signals, &sig);
      // A call of an actor that never returns cannot be ended by anyone else.
      std::thread([] {
        std::this_thread::sleep_for(kHardStop);
        spdlog::error("the worker did not stop in time, since a call of an actor does not return; it ends now");
        _exit(1);
      }).detach();
      agent.Stop();
    });
    status = agent.Run();
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
}  // namespace weft

int main(int argc, char** argv) {
  weft::Flags f;
  CLI::App app{"weft-worker: hosts actors and runs its part of every plan"};
  app.add_option("--driver", f.driver, "Address of the driver, host:port")->required();
  app.add_option("--name", f.name, "Name of this worker; empty: the driver picks the first free of w0, w1, ...");
  app.add_option("--device", f.device, "cpu, or cuda[:index]")->capture_default_str();
  app.add_option("--host-id", f.host_id, "Workers with equal host ids share memory; default: a hash of the boot id");
  app.add_option("--data-address", f.data_address, "Address on which this worker's communicators listen")->capture_default_str();
  app.add_option("--token-file", f.token_file, "File whose first line is the join token of the driver")
      ->envname("WEFT_TOKEN_FILE");
  app.add_option("--log-level", f.log_level, "trace, debug, info, warn, error, off")->capture_default_str();
  app.add_option("--spin", f.spin, "How long the loop polls before it sleeps while something is in flight, such as 20us; 0 where processes outnumber cores")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int rc = app.exit(e);
    return rc == 0 ? 0 : weft::kUsage;
  }
  return weft::Main(f);
}
