#include "client/doctor/host_facts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream in(path);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

std::string Why() { return strerror(errno); }

void ReadSystemCalls(HostFacts* f) {
  utsname name;
  if (uname(&name) == 0) f->kernel = name.release;
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  if (pidfd >= 0) {
    close(pidfd);
  } else {
    f->pidfd_error = Why();
  }
  const int memfd = memfd_create("weft-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memfd < 0 || ftruncate(memfd, 4096) != 0 || fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    f->memfd_error = Why();
  } else {
    void* p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    if (p == MAP_FAILED) {
      f->memfd_error = Why();
    } else {
      munmap(p, 4096);
    }
  }
  if (memfd >= 0) close(memfd);
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) f->cpus = CPU_COUNT(&cpus);
}

uint64_t Limit(rlim_t v) { return v == RLIM_INFINITY ? HostFacts::kUnlimited : static_cast<uint64_t>(v); }

void ReadLimits(const std::string& root, HostFacts* f) {
  rlimit l;
  if (getrlimit(RLIMIT_MEMLOCK, &l) == 0) {
    f->memlock = Limit(l.rlim_cur);
    f->memlock_hard = Limit(l.rlim_max);
  }
  if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
    f->open_files = Limit(l.rlim_cur);
    f->open_files_hard = Limit(l.rlim_max);
  }
  struct statvfs shm;
  const std::string dir = root + "/dev/shm";
  if (statvfs(dir.c_str(), &shm) != 0) {
    f->shm_error = Why();
  } else {
    f->shm_bytes = uint64_t{shm.f_blocks} * shm.f_frsize;
    f->shm_free = uint64_t{shm.f_bavail} * shm.f_frsize;
    if (access(dir.c_str(), W_OK) != 0) f->shm_error = Why();
  }
  for (const auto& line : absl::StrSplit(ReadText(root + "/proc/meminfo"), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t kib = 0;
    if (words.size() >= 2 && words[0] == "MemAvailable:" && absl::SimpleAtoi(words[1], &kib)) f->memory_available = kib * 1024;
  }
}

void ReadInterfaces(HostFacts* f) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  for (const ifaddrs* a = list; a != nullptr; a = a->ifa_next) {
    auto it = std::find_if(f->interfaces.begin(), f->interfaces.end(), [a](const NetInterface& i) { return i.name == a->ifa_name; });
    if (it == f->interfaces.end()) it = f->interfaces.insert(it, NetInterface{a->ifa_name, false, false, {}});
    it->up = (a->ifa_flags & IFF_UP) != 0;
    it->loopback = (a->ifa_flags & IFF_LOOPBACK) != 0;
    if (a->ifa_addr == nullptr) continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (a->ifa_addr->sa_family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(a->ifa_addr)->sin_addr, text, sizeof(text));
      it->addresses.insert(it->addresses.begin(), text);
    } else if (a->ifa_addr->sa_family == AF_INET6) {
      inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(a->ifa_addr)->sin6_addr, text, sizeof(text));
      it->addresses.push_back(text);
    }
  }
  freeifaddrs(list);
}

void ReadNvidia(const std::string& root, HostFacts* f) {
  const std::string device = root + "/dev/nvidiactl";
  f->nvidia_device = access(device.c_str(), F_OK) == 0;
  if (f->nvidia_device && access(device.c_str(), R_OK | W_OK) != 0) f->nvidia_access = Why();
  f->nvidia_driver = NvidiaDriverOf(ReadText(root + "/proc/driver/nvidia/version"));
  const auto pipes = f->env.find("CUDA_MPS_PIPE_DIRECTORY");
  const std::string control = pipes == f->env.end() || pipes->second.empty() ? root + "/tmp/nvidia-mps" : pipes->second;
  // The file alone may be what a daemon that was killed has left.
  int pid = 0;
  const std::string text = ReadText(control + "/nvidia-cuda-mps-control.pid");
  f->mps = absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &pid) && pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

}  // namespace

std::string DefaultRouteOf(const std::string& proc_net_route) {
  // Interface, destination, gateway, flags, ..., metric, mask; numbers in hex but for the metric.
  std::string best;
  int best_metric = 0;
  for (const auto& line : absl::StrSplit(proc_net_route, '\n')) {
    const std::vector<std::string> c = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    int metric = 0;
    if (c.size() < 8 || c[1] != "00000000" || c[7] != "00000000" || !absl::SimpleAtoi(c[6], &metric)) continue;
    if (best.empty() || metric < best_metric) {
      best = c[0];
      best_metric = metric;
    }
  }
  return best;
}

std::string NvidiaDriverOf(const std::string& proc_version) {
  // "NVRM version: NVIDIA UNIX ... Kernel Module  580.159.04  ...": the first word that is numbers with dots.
  for (const auto& line : absl::StrSplit(proc_version, '\n')) {
    if (line.find("NVRM") == absl::string_view::npos) continue;
    for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      if (word.find('.') != absl::string_view::npos && word.find_first_not_of("0123456789.") == absl::string_view::npos)
        return std::string(word);
    }
  }
  return "";
}

HostFacts ReadHostFacts(const std::string& root) {
  HostFacts f;
  for (char** e = environ; *e != nullptr; ++e) {
    const std::pair<std::string, std::string> kv = absl::StrSplit(*e, absl::MaxSplits('=', 1));
    f.env[kv.first] = kv.second;
  }
  ReadSystemCalls(&f);
  ReadLimits(root, &f);
  ReadInterfaces(&f);
  f.default_route = DefaultRouteOf(ReadText(root + "/proc/net/route"));
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/sys/class/infiniband", ignored)) {
    f.infiniband.push_back(entry.path().filename().string());
  }
  std::sort(f.infiniband.begin(), f.infiniband.end());
  ReadNvidia(root, &f);
  return f;
}

}  // namespace weft
