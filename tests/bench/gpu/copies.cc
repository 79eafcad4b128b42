// Bandwidth of edges against plain copies of the same size on the same machine in the same run.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/gpu/bare.h"
#include "tests/bench/gpu/bare_edges.h"
#include "tests/bench/gpu/bench.h"

namespace weft::bench {
namespace {

// Seconds of a plain copy, median of several; `host`: from page-locked memory.
double PlainCopy(uint64_t bytes, bool host) {
  CudaDevice* const d = BareDevice();
  const auto to = d->Allocate(bytes);
  const auto from = host ? d->AllocateHost(bytes) : d->Allocate(bytes);
  if (!to.ok() || !from.ok()) throw std::runtime_error("no memory for a plain copy");
  if (host) std::memset(from->get(), 1, bytes);
  const auto stream = *d->NewStream(v1::LANE_COPY);
  std::vector<double> times;
  const int copies = host ? 1 : 8;
  for (int i = 0; i < 9; ++i) {
    d->api()->StreamSynchronize(stream->native());
    const Nanos begin = Clock::Real()->Now();
    for (int k = 0; k < copies; ++k) d->api()->MemcpyAsync(to->get(), from->get(), bytes, stream->native());
    d->api()->StreamSynchronize(stream->native());
    times.push_back(ToSeconds(Clock::Real()->Now() - begin) / copies);
  }
  return Median(times);
}

void Ipc(uint64_t mib, bool mps, double plain) {
  const uint64_t bytes = mib << 20;
  constexpr int kEdges = 8;
  Daemons cluster({"h0", "h0"}, "h0", {GpuOf(0), GpuOf(1)});
  const auto client = cluster.Dial();
  const Steady s = Run(client.get(), FanOut("ipc", v1::IPC, bytes, kEdges, 4), 4, 16);
  CheckFanOut(s);
  const double weft = s.period_s / kEdges;
  // Within a GPU, where a copy of few bytes lives in its cache, and time slices cost both.
  const bool between = !SharesGpu(2), marked = between || mib >= (mps ? 225 : 900);
  Row(absl::StrCat("ipc copy, ", mib, " MiB", between ? " between GPUs" : "", mps ? ", MPS" : ""),
      absl::StrFormat("%s (%.0f GB/s), plain %s (%.0f GB/s): %.1f %%", Ms(weft), bytes / weft * 1e-9, Ms(plain), bytes / plain * 1e-9, plain / weft * 100),
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
  const double weft = Median(times), plain = PlainCopy(bytes, true);
  Row(absl::StrCat("host to device over shm, ", mib, " MiB"),
      absl::StrFormat("%s (%.1f GB/s), plain pinned %s (%.1f GB/s): %.1f %%", Ms(weft), bytes / weft * 1e-9, Ms(plain), bytes / plain * 1e-9,
                      plain / weft * 100),
      ">= 95 %", plain / weft >= 0.95);
}

}  // namespace

int Copies(int argc, char** argv) {
  const bool mps = getenv("CUDA_MPS_PIPE_DIRECTORY") != nullptr;
  std::vector<uint64_t> sizes;
  bool host = !mps;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--no-host") {
      host = false;
    } else {
      sizes.push_back(std::stoull(argv[i]));
    }
  }
  if (sizes.empty()) sizes = {56, 225, 900};
  // Between GPUs a plain copy is one from another process' memory on the other GPU; those come first, since they fork.
  std::map<uint64_t, double> plain;
  if (!SharesGpu(2)) {
    std::vector<uint64_t> bytes;
    for (const uint64_t mib : sizes) bytes.push_back(mib << 20);
    plain = BareIpcCopies(bytes);
  }
  for (const uint64_t mib : sizes) Ipc(mib, mps, SharesGpu(2) ? PlainCopy(mib << 20, false) : plain.at(mib << 20));
  if (host) HostToDevice(256);
  return 0;
}

}  // namespace weft::bench
