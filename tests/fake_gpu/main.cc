// weft-worker over fakes of CUDA and NCCL that run on the CPU: what `--device cuda` does, with real processes, on a machine without a GPU.
// Beside weft-worker's own arguments it takes
//   --with-faults             the kernels of tests/faults/faulty_kernels.h
//   --fake-memory-mib N       memory of the GPU
//   --fake-copy-mib-per-s N   how fast large copies go
//   --hold-calls DIR          while a file DIR/METHOD is there, calls of that method of CUDA (FakeCuda::HoldCalls) do not return; from then on
//                             there is a file DIR/METHOD.on, and while any call is held a file DIR/held

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/device/cuda/fake/fake_kernels.h"
#include "common/device/cuda/fake/fake_plugin.h"
#include "tests/faults/faulty_kernels.h"
#include "worker/worker_main.h"

namespace {

void HoldCallsNamedIn(const std::string& dir, weft::FakeCuda* cuda) {
  std::map<std::string, bool> held = {{"Enqueue", false}, {"EventRecord", false}, {"EventQuery", false}, {"Free", false}, {"StreamCreate", false}};
  while (true) {
    const auto show = [&](const std::string& file, bool there) {
      std::error_code ignored;
      if (there) {
        std::ofstream(dir + "/" + file, std::ios::app).flush();
      } else {
        std::filesystem::remove(dir + "/" + file, ignored);
      }
    };
    for (auto& [method, is] : held) {
      std::error_code ignored;
      const bool want = std::filesystem::exists(dir + "/" + method, ignored);
      if (want != is) cuda->HoldCalls(method, is = want);
      show(method + ".on", is);
    }
    show("held", cuda->held_calls() > 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

int main(int argc, char** argv) {
  using weft::FakeKernels;
  using weft::FakePlugin;
  FakePlugin::Options options;
  bool faults = false;
  std::string hold_calls;
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    const std::string arg = argv[i];
    uint64_t* const number = arg == "--fake-memory-mib"         ? &options.cuda.memory_bytes
                             : arg == "--fake-copy-mib-per-s" ? &options.cuda.copy_bytes_per_s
                                                              : nullptr;
    if (arg == "--with-faults") {
      faults = true;
    } else if (arg == "--hold-calls" && i + 1 < argc) {
      hold_calls = argv[++i];
    } else if (number == nullptr) {
      rest.push_back(argv[i]);
    } else {
      uint64_t mib = 0;
      if (i + 1 == argc || !absl::SimpleAtoi(argv[i + 1], &mib)) {
        std::fprintf(stderr, "%s needs a number\n", arg.c_str());
        return 2;
      }
      *number = mib << 20;
      ++i;
    }
  }
  rest.push_back(nullptr);
  // Never destroyed: streams may still run when the worker ends by _exit.
  auto* const fakes = new FakePlugin(options);
  weft::KernelsApi* kernels = new FakeKernels(&fakes->cuda);
  if (faults) kernels = new weft::FaultyKernels(kernels);
  auto* const plugin = new weft::CudaPlugin(fakes->plugin(kernels));
  if (!hold_calls.empty()) std::thread(HoldCallsNamedIn, hold_calls, &fakes->cuda).detach();
  return weft::WorkerMain(static_cast<int>(rest.size()) - 1, rest.data(),
                          [plugin](const std::string&) -> absl::StatusOr<const weft::CudaPlugin*> { return plugin; });
}
