// Bandwidth of edges against plain copies of the same size on the same machine in the same run.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/device/cuda/environment.h"
#include "tests/bench/gpu/bare.h"
#include "tests/bench/gpu/bare_edges.h"
#include "tests/bench/gpu/bench.h"

namespace weft::bench {
namespace {

constexpr int kEdges = 8;
// How fast a copy within a GPU is depends on where the two buffers lie, by up to a quarter: that is another place each time.
constexpr int kPlacements = 5;

// Seconds of a copy from one buffer to each of the others, one after the other, median of several.
double CopySeconds(CudaDevice* d, const std::shared_ptr<void>& from, const std::vector<std::shared_ptr<void>>& to, uint64_t bytes) {
  const auto stream = *d->NewStream(v1::LANE_COPY);
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    d->api()->StreamSynchronize(stream->native());
    const Nanos begin = Clock::Real()->Now();
    for (const auto& t : to) d->api()->MemcpyAsync(t.get(), from.get(), bytes, stream->native());
    d->api()->StreamSynchronize(stream->native());
    times.push_back(ToSeconds(Clock::Real()->Now() - begin) / static_cast<double>(to.size()));
  }
  return Median(times);
}

std::shared_ptr<void> Take(absl::StatusOr<std::shared_ptr<void>> memory) {
  if (!memory.ok()) throw std::runtime_error(absl::StrCat("no memory for a plain copy: ", std::string(memory.status().message())));
  return *std::move(memory);
}

double PlainHostCopy(uint64_t bytes) {
  CudaDevice* const d = BareDevice();
  const std::shared_ptr<void> from = Take(d->AllocateHost(bytes));
  std::memset(from.get(), 1, bytes);
  return CopySeconds(d, from, {Take(d->Allocate(bytes))}, bytes);
}

// One for each place.
std::vector<double> PlainCopies(uint64_t bytes, int placements) {
  CudaDevice* const d = BareDevice();
  std::vector<double> times;
  std::vector<std::shared_ptr<void>> earlier;
  for (int i = 0; i < placements; ++i) {
    earlier.push_back(Take(d->Allocate((uint64_t{64} << 20) * static_cast<uint64_t>(2 * i + 1))));
    const std::shared_ptr<void> from = Take(d->Allocate(bytes));
    std::vector<std::shared_ptr<void>> to;
    for (int k = 0; k < kEdges; ++k) to.push_back(Take(d->Allocate(bytes)));
    times.push_back(CopySeconds(d, from, to, bytes));
    earlier.push_back(from);
    earlier.push_back(to.front());
  }
  return times;
}

std::string Range(const std::vector<double>& times) {
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  return times.size() < 2 ? "" : absl::StrFormat(", %.3f to %.3f", *least * 1e3, *most * 1e3);
}

void Ipc(uint64_t mib, bool mps, const std::vector<double>& plain_copies) {
  const uint64_t bytes = mib << 20;
  Daemons cluster({"h0", "h0"}, "h0", {GpuOf(0), GpuOf(1)});
  const auto client = cluster.Dial();
  std::vector<double> edges;
  for (size_t i = 0; i < plain_copies.size(); ++i) {
    // A graph that stays keeps the next one's memory from being where the last one's was.
    const absl::Status stays = client->Compile(FanOut(absl::StrCat("stays", i), v1::IPC, (uint64_t{64} << 20) * (2 * i + 1), 1, 1), {}).status();
    if (!stays.ok()) throw std::runtime_error(std::string(stays.message()));
    const Steady s = Run(client.get(), FanOut("ipc", v1::IPC, bytes, kEdges, 4), 4, 16);
    CheckFanOut(s);
    edges.push_back(s.period_s / kEdges);
  }
  const double weft = Median(edges), plain = Median(plain_copies);
  // Within a GPU, where a copy of few bytes lives in its cache, and time slices cost both.
  const bool between = !SharesGpu(2), marked = between || mib >= (mps ? 225 : 900);
  Row(absl::StrCat("ipc copy, ", mib, " MiB", between ? " between GPUs" : "", mps ? ", MPS" : ""),
      absl::StrFormat("%s (%.0f GB/s%s), plain %s (%.0f GB/s%s): %.1f %%", Ms(weft), bytes / weft * 1e-9, Range(edges), Ms(plain), bytes / plain * 1e-9,
                      Range(plain_copies), plain / weft * 100),
      marked ? ">= 95 %" : "", marked ? plain / weft >= 0.95 : -1);
}

// The copy itself, by the device's clock: the sender's CPU fills the slot much slower than the copy engine empties it.
void HostToDevice(uint64_t mib) {
  const uint64_t bytes = mib << 20;
  Daemons cluster({"h0", "h0"}, "h0", {"cpu", GpuOf(1)});
  const auto client = cluster.Dial();
  v1::Graph g = FanOut("h2d", v1::SHM, bytes, 1, 2);
  const auto check = [](const absl::Status& s) {
    if (!s.ok()) throw std::runtime_error(std::string(s.message()));
  };
  check(client->Compile(g, Client::CompileOptions()).status());
  {
    SessionOptions options;
    options.graph = g.name();
    auto session = client->OpenSession(options);
    check(session.status());
    for (int i = 0; i < 12; ++i) {
      auto h = (*session)->Submit({});
      check(h.status());
      check((*session)->Wait(*h, 60).status());
    }
  }
  auto trace = client->GetTrace(g.name(), 0);
  check(trace.status());
  std::vector<double> times;
  for (const v1::TraceTrack& t : *trace) {
    if (t.worker() != "w1") continue;
    for (const v1::TraceEvent& e : t.event()) {
      if (e.kind() == v1::READ && e.lane() == v1::LANE_COPY && e.end_ns() > e.start_ns()) times.push_back((e.end_ns() - e.start_ns()) * 1e-9);
    }
  }
  check(client->Teardown(g.name()));
  if (times.empty()) throw std::runtime_error("no copy was traced");
  const double weft = Median(times), plain = PlainHostCopy(bytes);
  Row(absl::StrCat("host to device over shm, ", mib, " MiB"),
      absl::StrFormat("%s (%.1f GB/s), plain pinned %s (%.1f GB/s): %.1f %%", Ms(weft), bytes / weft * 1e-9, Ms(plain), bytes / plain * 1e-9,
                      plain / weft * 100),
      ">= 95 %", plain / weft >= 0.95);
}

}  // namespace

int Copies(int argc, char** argv) {
  const bool mps = UnderMps();
  std::vector<uint64_t> sizes;
  bool host = !mps;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--no-host") {
      host = false;
    } else {
      uint64_t mib = 0;
      if (!absl::SimpleAtoi(argv[i], &mib) || mib == 0 || mib > 16384) {
        throw std::runtime_error(absl::StrCat("\"", argv[i], "\" is neither --no-host nor a number of MiB"));
      }
      sizes.push_back(mib);
    }
  }
  if (sizes.empty()) sizes = {56, 225, 900};
  // Between GPUs a plain copy is one from another process' memory on the other GPU; those come first, since they fork.
  BareTimes plain;
  if (!SharesGpu(2)) {
    std::vector<uint64_t> bytes;
    for (const uint64_t mib : sizes) bytes.push_back(mib << 20);
    plain = BareIpcCopies(bytes);
    if (!plain.problem.empty()) throw std::runtime_error(plain.problem);
  }
  // Graphs stay between the places; under MPS there are streams for no more of them.
  const int placements = mps ? 1 : kPlacements;
  for (const uint64_t mib : sizes) Ipc(mib, mps, SharesGpu(2) ? PlainCopies(mib << 20, placements) : std::vector<double>{plain.seconds.at(mib << 20)});
  if (host) HostToDevice(256);
  return 0;
}

}  // namespace weft::bench
