#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace weft {

struct NetInterface {
  std::string name;
  bool up = false;
  bool loopback = false;
  std::vector<std::string> addresses;  // as text; IPv4 first
};

// What was seen of this host without touching a GPU: plain data, so that checks are tested with made-up hosts. An error text that is empty
// means that the thing works.
struct HostFacts {
  static constexpr uint64_t kUnlimited = ~uint64_t{0};

  std::string kernel;       // "6.1.0-18-amd64"
  std::string pidfd_error;  // of pidfd_open
  std::string memfd_error;  // of a sealed memory file that is mapped
  int cpus = 0;             // that this process may run on
  uint64_t memory_available = 0;

  std::string shm_error;  // of /dev/shm
  uint64_t shm_bytes = 0;
  uint64_t shm_free = 0;

  uint64_t memlock = 0;  // RLIMIT_MEMLOCK, soft, in bytes
  uint64_t memlock_hard = 0;
  uint64_t open_files = 0;  // RLIMIT_NOFILE, soft
  uint64_t open_files_hard = 0;

  std::vector<NetInterface> interfaces;
  std::string default_route;            // interface of the default route; empty: none
  std::vector<std::string> infiniband;  // devices below /sys/class/infiniband

  std::map<std::string, std::string> env;  // of this process

  bool nvidia_device = false;  // /dev/nvidiactl is there
  std::string nvidia_driver;   // "580.159.04"; empty: /proc/driver/nvidia/version is not there
  std::string nvidia_access;   // why /dev/nvidiactl cannot be opened; empty: it can, or is not there
  bool mps = false;            // a control daemon of CUDA MPS answers where this process would look for it

  std::string driver_path;  // of weft-driver and weft-worker, or why they are not found
  std::string driver_error;
  std::string worker_path;
  std::string worker_error;
  std::string runtime_dir;  // where local clusters keep their files
  std::string runtime_error;
};

// Reads all of that but what concerns weft's own programs (driver_path and below), which the command knows. `root` is put before every path
// of /proc, /sys and /dev that is read as a file, for tests; limits, system calls and interfaces are this process's. Never fails: what
// cannot be seen stays empty.
HostFacts ReadHostFacts(const std::string& root = "");

// The interface of the default route in the text of /proc/net/route; empty: none.
std::string DefaultRouteOf(const std::string& proc_net_route);

// The number in the text of /proc/driver/nvidia/version; empty: none.
std::string NvidiaDriverOf(const std::string& proc_version);

}  // namespace weft
