// Bandwidth of edges against plain copies of the same size on the same machine in the same run.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/gpu/bench.h"

namespace weft::bench {
namespace {

// One producer, `edges` consumers on one other worker that only look at the value: each edge moves it once.
v1::Graph FanOut(const std::string& name, v1::Transport transport, uint64_t bytes, int edges, int in_flight) {
  v1::Graph g;
  g.set_name(name);
  v1::Actor* source = g.add_actor();
  source->set_name("source");
  source->set_class_("std.Constant");
  source->set_worker("w0");
  source->mutable_config()->set_dtype(v1::F32);
  source->mutable_config()->set_shape(absl::StrCat("[", bytes / 4, "]"));
  source->mutable_config()->set_fill("3");
  v1::Actor* sink = g.add_actor();
  sink->set_name("sink");
  sink->set_class_("std.Math");
  sink->set_worker("w1");
  v1::Node* make = g.add_node();
  make->set_name("make");
  make->set_actor("source");
  make->set_method("make");
  for (int i = 0; i < edges; ++i) {
    v1::Node* peek = g.add_node();
    peek->set_name(absl::StrCat("peek", i));
    peek->set_actor("sink");
    peek->set_method("peek");
    peek->add_arg()->set_node("make");
    v1::Edge* e = g.add_edge();
    e->set_from("make");
    e->set_to(peek->name());
    e->set_transport(transport);
  }
  v1::Output* out = g.add_output();
  out->set_name("first");
  out->set_node(absl::StrCat("peek", edges - 1));
  g.mutable_options()->set_max_in_flight(in_flight);
  g.mutable_options()->set_prefetch_depth(1);
  return g;
}

void CheckThree(const Steady& s) {
  for (const ExecutionResult& r : s.results) {
    if (ElementAsDouble(r.outputs.at("first"), 0) != 3) throw std::runtime_error("a wrong value came");
  }
}

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

void Ipc(uint64_t mib, bool mps) {
  const uint64_t bytes = mib << 20;
  constexpr int kEdges = 8;
  Daemons cluster({"h0", "h0"}, "h0", {GpuOf(0), GpuOf(1)});
  const auto client = cluster.Dial();
  const Steady s = Run(client.get(), FanOut("ipc", v1::IPC, bytes, kEdges, 4), 4, 16);
  CheckThree(s);
  const double weft = s.period_s / kEdges, plain = PlainCopy(bytes, false);
  const bool marked = mib >= (mps ? 225 : 900);
  Row(absl::StrCat("ipc copy, ", mib, " MiB", mps ? ", MPS" : ""),
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
  for (const uint64_t mib : sizes) Ipc(mib, mps);
  if (host) HostToDevice(256);
  return 0;
}

}  // namespace weft::bench
