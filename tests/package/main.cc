// The package's test program: Catch2 cases of several packages, and benchmarks by the name that it is called by. gRPC and OpenBLAS are in
// it once.

#include <cstdio>
#include <cstring>

int RunCatch(int argc, char** argv);  // third_party/catch_main.cc

// Mains of other programs, under these names in this build only.
int GpuBenchMain(int argc, char** argv);
int ShmBenchMain(int argc, char** argv);
int WorkerWithFaultsMain(int argc, char** argv);

namespace {

struct Program {
  const char* name;
  int (*main)(int argc, char** argv);
};

// deploy/package makes a link for each.
const Program kPrograms[] = {
    {"shm-bench", ShmBenchMain},
    {"weft-gpu-bench", GpuBenchMain},
    {"weft-worker-with-faults", WorkerWithFaultsMain},
};

}  // namespace

int main(int argc, char** argv) {
  const char* const path = argc > 0 ? argv[0] : "";
  const char* const slash = std::strrchr(path, '/');
  const char* const name = slash == nullptr ? path : slash + 1;
  for (const Program& p : kPrograms) {
    if (std::strcmp(name, p.name) == 0) return p.main(argc, argv);
  }
  if (argc == 2 && std::strcmp(argv[1], "--programs") == 0) {
    for (const Program& p : kPrograms) std::puts(p.name);
    return 0;
  }
  return RunCatch(argc, argv);
}
