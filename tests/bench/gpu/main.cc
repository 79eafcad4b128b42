// weft-gpu-bench NAME [options]: benchmarks on GPUs, as ratios to a limit measured in the same run. docs/benchmarks.md has what they gave.

#include <cstdio>
#include <cstring>
#include <exception>

#include "tests/bench/gpu/bench.h"

int main(int argc, char** argv) {
  using namespace weft::bench;
  struct Part {
    const char* name;
    int (*run)(int argc, char** argv);
    const char* what;
  };
  static const Part kParts[] = {
      {"overlap", Overlap, "three senders and a receiver, overlap off, on, and with 4 in flight: [--transport shm|ipc|nccl] [--balanced] [--dtype F16|F32] [--rows N] [--executions N] "
                           "[--trace FILE.json]: the last one, op by op, for Perfetto, and with overlap off in FILE.json.off"},
      {"edges", Edges,
       "nccl or ipc edges against bare ncclSend and ncclRecv or peer copies: [--transport nccl|ipc] [--sizes 8,64k,64m,1g] [--launch stream|graph]"},
      {"kill", Kill, "kill -9 of one of four workers during transfers: [--transport nccl|ipc|shm] [--rounds N] [--seconds S] [--mib N]"},
      {"copies", Copies, "bandwidth of ipc and shm edges against plain copies: [MIB ...] [--no-host]"},
      {"latency", Latency, "cost of an op in the loop, chains of small kernels, CPU -> GPU -> CPU: [op|chain|trip|loop]"},
      {"timeline", Timeline, "predicted against measured periods, with calibrated costs"},
      {"pipeline", Pipeline,
       "training by pipeline schedules against their prediction: [--stages 4] [--microbatches 8,16] [--schedules gpipe,1f1b,...] [--width N] [--rows N] "
       "[--layers N] [--dtype BF16] [--executions N] [--in-flight N]"},
      {"beside", Beside, "transfers beside matrix products: what each costs the other"},
  };
  for (const Part& p : kParts) {
    if (argc < 2 || std::strcmp(argv[1], p.name) != 0) continue;
    try {
      return p.run(argc - 1, argv + 1);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "weft-gpu-bench %s: %s\n", p.name, e.what());
      return 1;
    }
  }
  for (const Part& p : kParts) std::fprintf(stderr, "weft-gpu-bench %-8s %s\n", p.name, p.what);
  return 2;
}
