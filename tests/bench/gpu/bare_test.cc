// The bare processes and the benchmarks over them, where the CPU plays the GPUs: that they end, whatever happens, and bring right data.

#include "tests/bench/gpu/bare.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "common/device/cuda/api/device_dtype.h"
#include "tests/bench/gpu/bare_edges.h"
#include "tests/bench/gpu/bench.h"
#include "tests/bench/gpu/hand_ipc.h"
#include "tests/bench/gpu/hand_nccl.h"

namespace weft::bench {
namespace {

using Catch::Matchers::Contains;

// Before any case: the processes read it when they are forked.
const int kFake = setenv("WEFT_BENCH_DEVICE", "fake-cuda", 1);

std::string ProblemOf(double seconds, const std::function<void(BareProcess&)>& body) {
  try {
    RunBare(2, seconds, body);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

TEST_CASE("bare processes: they meet, and each sees what the others have written") {
  Common<int> sum;
  RunBare(3, 20, [&](BareProcess& p) {
    for (int turn = 0; turn < 3; ++turn) {
      if (turn == p.rank()) *sum.get() = *sum.get() * 10 + turn + 1;
      p.Meet();
    }
  });
  CHECK(*sum.get() == 123);
}

TEST_CASE("bare processes: the first failure ends all of them and is told") {
  CHECK_THAT(ProblemOf(20, [](BareProcess& p) {
               if (p.rank() == 1) throw std::runtime_error("as told");
               p.Meet();
             }),
             Contains("as told"));
  CHECK_THAT(ProblemOf(20, [](BareProcess& p) {
               if (p.rank() == 1) _exit(7);
               p.Meet();
             }),
             Contains("process 1 ended with status"));
}

TEST_CASE("bare processes: one that waits in vain says so, and one that hangs is killed") {
  CHECK_THAT(ProblemOf(0.2, [](BareProcess& p) {
               if (p.rank() == 1) p.Meet();
               while (true) p.CheckOpen();
             }),
             Contains("gets no further"));
  CHECK_THAT(ProblemOf(0.2, [](BareProcess&) {
               while (true) pause();
             }),
             Contains("no end within"));
}

TEST_CASE("bare processes: elements that are not the wanted ones are an error") {
  const auto check = [](float want, int64_t n) {
    return ProblemOf(20, [=](BareProcess& p) {
      void* const memory = p.Allocate(64);
      const CudaStreamHandle s = p.NewStream(true);
      p.Check(p.kernels()->Fill(DeviceFill::kNumber, 5, 0, {nullptr, 0}, kDeviceF32, memory, 15, s));
      p.AwaitAll(s);
      p.CheckElements(memory, n, want, "values");
    });
  };
  CHECK(check(5, 15).empty());
  CHECK_THAT(check(4, 15), Contains("values: 5 and 5 came, not 4"));
  CHECK_THAT(check(5, 16), Contains("values: 5 and"));
}

TEST_CASE("bare transfers, copies and hops give times for every size") {
  const std::vector<uint64_t> large = {1 << 20, 4 << 20}, small = {8, 4096};
  for (const auto& times : {BareNcclTransfers(large), BareIpcCopies(large)}) {
    CHECK(times.problem == "");
    CHECK(times.seconds.size() == 2);
    for (const uint64_t bytes : large) CHECK(times.seconds.at(bytes) > 0);
  }
  for (const bool captured : {false, true}) {
    // With much else on the machine the difference of two chains may be below 0.
    CHECK(BareNcclHops(small, captured, 2, 6).problem == "");
  }
  CHECK(BareNcclTransfers({}).seconds.empty());
}

TEST_CASE("overlap by hand gives a period over ipc and nccl") {
  CHECK(HandIpcPeriod(32, 5, 6) > 0);
  CHECK(HandNcclPeriod(32, 5, 6) > 0);
  CHECK_THROWS(HandNcclPeriod(31, 5, 6));
}

int Call(int (*part)(int, char**), std::vector<std::string> args) {
  std::vector<char*> argv;
  for (std::string& a : args) argv.push_back(a.data());
  return part(static_cast<int>(argv.size()), argv.data());
}

// Whatever the figures are here: daemons and bare processes come to an end, and wrong values are errors.
TEST_CASE("edges, overlap, copies and kill run to their end over GPUs that the CPU plays") {
  CHECK(Call(Edges, {"edges", "--transport", "nccl", "--sizes", "8,1m"}) == 0);
  CHECK(Call(Edges, {"edges", "--transport", "ipc", "--sizes", "1m"}) == 0);
  CHECK(Call(Overlap, {"overlap", "--transport", "nccl", "--rows", "32", "--executions", "5"}) == 0);
  CHECK(Call(Copies, {"copies", "2", "--no-host"}) == 0);
  for (const char* transport : {"nccl", "ipc"}) CHECK(Call(Kill, {"kill", "--transport", transport, "--rounds", "2", "--mib", "1"}) == 0);
  CHECK_THROWS_WITH(Call(Edges, {"edges", "--sizes", "12x"}), Contains("no size"));
  CHECK_THROWS_WITH(Call(Edges, {"edges", "--transport", "ipc", "--sizes", "8"}), Contains("over nccl only"));
  CHECK_THROWS_WITH(Call(Kill, {"kill", "--transport", "gloo"}), Contains("nccl, ipc or shm"));
}

}  // namespace
}  // namespace weft::bench
