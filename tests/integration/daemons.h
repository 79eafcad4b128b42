#pragma once

// A driver and workers as real processes on loopback, for tests. Workers may claim different hosts, so that edges between them go through
// Gloo and client edges through data streams. Ends and reaps everything; children also die with the test.

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "client/cpp/client.h"

namespace weft {

class Daemons {
 public:
  // One worker per host id, named w0, w1, ...; the driver is on `driver_host`. Returns when all have registered; throws with words when
  // that takes more than 20 s.
  explicit Daemons(const std::vector<std::string>& hosts, const std::string& driver_host = "h0");
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
  // Until as many workers as this are alive, for at most 20 s; then throws with what the driver says.
  void AwaitWorkers(int alive) const;
  // What a daemon has logged: "driver", "w0", ...
  std::string Log(const std::string& name) const;

 private:
  pid_t Spawn(const std::string& binary, const std::vector<std::string>& args, const std::string& log) const;

  const std::vector<std::string> hosts_;
  const std::string driver_host_;
  std::string dir_;
  std::string address_ = "127.0.0.1:0";
  pid_t driver_ = -1;
  std::vector<pid_t> workers_;
};

}  // namespace weft
