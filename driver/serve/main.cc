// weft-driver: compiles graphs, ships each worker its part, watches over them, and runs them for clients. One per cluster.

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/token_file.h"
#include "driver/cluster/graph_store.h"
#include "driver/serve/server.h"

namespace weft {
namespace {

constexpr int kUsage = 2;
constexpr int kFailed = 1;
// An orderly end takes less than a second; whatever hangs then is not waited for.
constexpr auto kHardStop = std::chrono::milliseconds(1800);

struct Flags {
  DriverOptions driver;
  std::string token_file;
  std::string address_file;
  std::string log_level = "info";
};

int Fail(const absl::Status& s) {
  std::fprintf(stderr, "weft-driver: %s\n", std::string(s.message()).c_str());
  return absl::IsInvalidArgument(s) ? kUsage : kFailed;
}

absl::Status ReadToken(Flags* f) {
  if (f->token_file.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(f->driver.token, ReadTokenFile("--token-file", f->token_file));
  return absl::OkStatus();
}

absl::Status PrintTimeouts(const DriverOptions& o) {
  const CoordinatorTimeouts& t = o.timeouts;
  spdlog::info("timeouts, inner < outer: heartbeat {} s < unresponsive {} s; cause settles {} s < inspect {} s < unload {} s < trace {} s; "
               "a worker's phase 2 {} x < bootstrap_timeout_s (of the graph); calls end 0.3 s < driver ends 1.8 s",
               o.heartbeat_interval_s, o.unresponsive_after_s, t.settle_s, t.inspect_s, t.unload_s, t.trace_s, t.worker_share);
  if (!(o.heartbeat_interval_s < o.unresponsive_after_s && t.settle_s < t.inspect_s && t.inspect_s < t.unload_s &&
        t.unload_s < t.trace_s && t.worker_share < 1)) {
    return absl::InternalError("these timeouts do not nest");
  }
  return absl::OkStatus();
}

int Main(Flags f) {
  if (absl::Status s = SetUpLogging("driver", f.log_level); !s.ok()) return Fail(s);
  if (absl::Status s = ReadToken(&f); !s.ok()) return Fail(s);
  if (absl::Status s = PrintTimeouts(f.driver); !s.ok()) return Fail(s);

  // Every thread inherits the mask; this one takes the signals when it waits for them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  absl::StatusOr<std::unique_ptr<DriverServer>> server = DriverServer::Start(f.driver);
  if (!server.ok()) return Fail(server.status());
  std::printf("listening on %s\n", (*server)->address().c_str());
  std::fflush(stdout);
  spdlog::info("listening on {}, incarnation {}", (*server)->address(), (*server)->incarnation());
  if (!f.address_file.empty()) {
    if (absl::Status s = WriteFileAtomically(f.address_file, (*server)->address() + "\n"); !s.ok()) return Fail(s);
  }

  int sig = 0;
  sigwait(&signals, &sig);
  spdlog::info("signal {}: the driver stops", sig);
  std::thread([] {
    std::this_thread::sleep_for(kHardStop);
    spdlog::error("the driver did not stop in time and ends now");
    _exit(kFailed);
  }).detach();
  (*server)->Stop(absl::UnavailableError("the driver was stopped"));
  server->reset();
  if (!f.address_file.empty()) unlink(f.address_file.c_str());
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Flags f;
  CLI::App app{"weft-driver: compiles graphs, ships each worker its part, watches over them, and runs them for clients"};
  app.add_option("--listen", f.driver.listen, "host:port, [ipv6]:port or unix:/path; port 0: any free one")->capture_default_str();
  app.add_option("--state-dir", f.driver.state_dir, "Directory in which graphs are kept over a restart; made if missing");
  app.add_option("--log-level", f.log_level, "trace, debug, info, warn, error, off")->capture_default_str();
  app.add_option("--address-file", f.address_file, "File to which the address is written once it listens");
  app.add_option("--host-id", f.driver.host_id, "Workers with the driver's host id share memory with it; default: a hash of the boot id");
  app.add_option("--token-file", f.token_file, "File whose first line is the join token; needed to listen beyond loopback")
      ->envname("WEFT_TOKEN_FILE");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int rc = app.exit(e);
    return rc == 0 ? 0 : weft::kUsage;
  }
  return weft::Main(f);
}
