#pragma once

// For the tests of this directory: conditions with a deadline, gates that hold a stream, and children that run one case of the same binary.

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/device/cuda/fake/fake_cuda.h"

extern char** environ;

namespace weft {

// False after 30 s.
inline bool Eventually(const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

// Work on a stream that waits until the gate is opened.
class Gate {
 public:
  int Hold(FakeCuda* cuda, CudaStreamHandle s) {
    return cuda->Enqueue(s, [cuda, open = open_] { cuda->WaitUntil([&] { return open->load(); }); }, "a gate");
  }
  void Open() { open_->store(true); }

 private:
  const std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

inline CudaStreamHandle NewStream(FakeCuda* cuda) {
  CudaStreamHandle s = nullptr;
  return cuda->StreamCreate(0, &s) == kCudaSuccess ? s : nullptr;
}

inline CudaEventHandle NewEvent(FakeCuda* cuda) {
  CudaEventHandle e = nullptr;
  return cuda->EventCreate(false, &e) == kCudaSuccess ? e : nullptr;
}

template <typename T>
T* NewMemory(FakeCuda* cuda, size_t n) {
  void* p = nullptr;
  return cuda->Malloc(n * sizeof(T), &p) == kCudaSuccess ? static_cast<T*>(p) : nullptr;
}

inline std::string ToHex(const char* bytes, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) {
    out += "0123456789abcdef"[static_cast<unsigned char>(bytes[i]) >> 4];
    out += "0123456789abcdef"[bytes[i] & 15];
  }
  return out;
}

inline void FromHex(const std::string& hex, char* bytes, size_t n) {
  for (size_t i = 0; i < n && 2 * i + 1 < hex.size(); ++i) bytes[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
}

// A process that runs the hidden case `name` of this binary, with more environment: a fork without exec could start no threads under
// ThreadSanitizer. Killed and reaped at the end of its life here.
class TestChild {
 public:
  // `quiet`: it is meant to fail, and says so to nobody.
  TestChild(const std::string& name, const std::vector<std::string>& environment, bool quiet = false) {
    std::vector<std::string> env = environment;
    for (char** e = environ; *e != nullptr; ++e) {
      if (std::strncmp(*e, "TEST", 4) != 0 && std::strncmp(*e, "XML", 3) != 0) env.push_back(*e);
    }
    std::vector<char*> env_pointers;
    for (std::string& e : env) env_pointers.push_back(e.data());
    env_pointers.push_back(nullptr);
    std::string self = "/proc/self/exe", test = name, out = "--out=/dev/null";
    char* const argv[] = {self.data(), test.data(), quiet ? out.data() : nullptr, nullptr};
    if (posix_spawn(&pid_, self.c_str(), nullptr, nullptr, argv, env_pointers.data()) != 0) pid_ = -1;
  }
  ~TestChild() { Kill(); }

  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    int status;
    waitpid(pid_, &status, 0);
    pid_ = -1;
  }
  // As waitpid tells it; -1 after 30 s.
  int Wait() {
    int status = -1;
    if (!Eventually([&] { return pid_ <= 0 || waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace weft
