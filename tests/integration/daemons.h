#pragma once

// A driver and workers as real processes on loopback, for tests. Workers may claim different hosts, so that edges between them go through
// Gloo and client edges through data streams. Ends and reaps everything; children also die with the test.
//
// The programs are those in $WEFT_BIN_DIR, else the test's runfiles, else those beside the test. Workers run on $WEFT_TEST_DEVICE (default
// cpu); with "cuda" worker i runs on GPU i modulo $WEFT_TEST_GPUS (default 1), with "fake-cuda" on a GPU that the CPU plays.

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/cpp/client.h"

namespace weft {

class Daemons {
 public:
  // One worker per host id, named w0, w1, ...; the driver is on `driver_host`. Returns when all have registered; throws with words when
  // that takes more than 20 s (60 s on GPUs, where each process has CUDA and its kernels to load).
  // `devices`: what worker i runs on, beyond its end as said above; further words are arguments of the worker ("cpu --spin 1ms");
  // with --with-faults it is one whose kernels are faulty (tests/faults/faulty_kernels.h); with --own-gpu no other uses its GPU, which otherwise holds
  // where $WEFT_TEST_GPUS says that there is one for each worker and no two have the same.
  // kComingUp: returns while the workers still come up; AwaitWorkers before they are used. So clusters that are used one after the other start together.
  enum Start { kUp, kComingUp };
  explicit Daemons(const std::vector<std::string>& hosts, const std::string& driver_host = "h0", std::vector<std::string> devices = {},
                   Start start = kUp);
  // Kills and reaps every process it started.
  ~Daemons();
  Daemons(const Daemons&) = delete;
  Daemons& operator=(const Daemons&) = delete;

  const std::string& address() const { return address_; }
  std::unique_ptr<Client> Dial() const;
  pid_t worker_pid(int i) const { return workers_[i]; }

  void SignalWorker(int i, int signal) const;
  // kill -9 and reap.
  void KillWorker(int i);
  void KillDriver();
  void StartWorker(int i);
  // On the former port.
  void StartDriver();
  // Until every worker process that this object runs, or of `which` if any are named, is alive to the driver under its own pid (not as an earlier
  // process of its name), for at most 20 s (60 s on GPUs); then throws with what the driver says.
  void AwaitWorkers(const std::vector<int>& which = {}) const;
  // What all objects of this process have spent in that.
  static double SecondsAwaited();
  // Whether the worker's process runs: not ended, nor a zombie.
  bool WorkerRuns(int i) const;
  bool DriverRuns() const;
  // "exit code 1", "signal 9"; empty while it runs.
  std::string HowWorkerEnded(int i) const;
  // The command line as a process of its own, connected to this driver. Ends with the cluster at the latest.
  pid_t StartCli(const std::vector<std::string>& args);
  void KillCli(pid_t pid);
  // What a process has written: "driver", "w0", ..., "cli".
  std::string Log(const std::string& name) const;
  // Removed at the end, with all that is in it.
  const std::string& dir() const { return dir_; }

  // Processes started by any such object of this test process, or by their children, that are still there; zombies too.
  static std::vector<pid_t> Leftovers();

 private:
  void EndAll();
  pid_t Spawn(const std::string& binary, const std::vector<std::string>& args, const std::string& log) const;

  const std::vector<std::string> hosts_;
  const std::string driver_host_;
  const std::vector<std::string> devices_;
  std::string dir_;
  std::string address_ = "127.0.0.1:0";
  pid_t driver_ = -1;
  std::vector<pid_t> workers_;
  std::vector<pid_t> clis_;
};

// Whether it comes to hold within so many seconds.
bool Within(double seconds, const std::function<bool()>& holds);

}  // namespace weft
