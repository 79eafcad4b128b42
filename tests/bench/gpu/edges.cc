// Edges between two workers against bare calls that do the same in the same run: bandwidth of large values, and what a hop of a small
// one costs.

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "absl/strings/numbers.h"
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/device/cuda/environment.h"
#include "tests/bench/gpu/bare.h"
#include "tests/bench/gpu/bare_edges.h"
#include "tests/bench/gpu/bench.h"

namespace weft::bench {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
// From here on a transfer's time is its bandwidth.
constexpr uint64_t kLarge = kMiB;
constexpr uint64_t kMarked = 64 * kMiB;
constexpr double kMostMore = 3e-6;  // seconds a hop of a small value may take more than the bare one
constexpr int kFew = 8, kMany = 32;  // hops of a chain
constexpr int kHopRounds = 3;

// "8", "64k", "16m", "1g".
uint64_t ParseSize(const std::string& text) {
  std::string digits = text;
  uint64_t unit = 1;
  const char last = text.empty() ? '\0' : text.back();
  if (last == 'k') unit = 1024;
  if (last == 'm') unit = kMiB;
  if (last == 'g') unit = 1024 * kMiB;
  if (unit != 1) digits.pop_back();
  uint64_t n = 0;
  if (!absl::SimpleAtoi(digits, &n) || n == 0 || n > 4 * 1024 * kMiB / unit || n * unit % 4 != 0) {
    throw std::runtime_error(absl::StrCat("\"", text, "\" is no size: a multiple of 4 bytes up to 4g, such as 8, 64k, 16m or 1g"));
  }
  return n * unit;
}

std::string SizeText(uint64_t bytes) {
  if (bytes >= 1024 * kMiB && bytes % (1024 * kMiB) == 0) return absl::StrCat(bytes / 1024 / kMiB, " GiB");
  if (bytes >= kMiB && bytes % kMiB == 0) return absl::StrCat(bytes / kMiB, " MiB");
  if (bytes >= 1024 && bytes % 1024 == 0) return absl::StrCat(bytes / 1024, " KiB");
  return absl::StrCat(bytes, " B");
}

// The execution's number goes back and forth between w0 and w1, doubled at every stop.
v1::Graph Chain(const std::string& name, uint64_t bytes, int hops, v1::Transport transport, v1::Launch launch) {
  v1::Graph g;
  g.set_name(name);
  v1::Actor* source = g.add_actor();
  source->set_name("source");
  source->set_class_("std.Source");
  source->set_worker("w0");
  source->mutable_config()->set_dtype(v1::F32);
  source->mutable_config()->set_shape(absl::StrCat("[", bytes / 4, "]"));
  source->mutable_config()->set_fill("execution");
  for (const char* w : {"w0", "w1"}) {
    v1::Actor* a = g.add_actor();
    a->set_name(absl::StrCat("scale-", w));
    a->set_class_("std.Scale");
    a->set_worker(w);
    a->mutable_config()->set_scale(2.0);
  }
  v1::Node* first = g.add_node();
  first->set_name("make");
  first->set_actor("source");
  first->set_method("make");
  std::string last = "make";
  for (int h = 1; h <= hops; ++h) {
    v1::Node* n = g.add_node();
    n->set_name(absl::StrCat("hop", h));
    n->set_actor(absl::StrCat("scale-w", h % 2));
    n->set_method("scale");
    n->add_arg()->set_node(last);
    v1::Edge* e = g.add_edge();
    e->set_from(last);
    e->set_to(n->name());
    e->set_transport(transport);
    last = n->name();
  }
  v1::Output* out = g.add_output();
  out->set_name("out");
  out->set_node(last);
  g.mutable_options()->set_max_in_flight(1);
  g.mutable_options()->set_launch(launch);
  return g;
}

// Seconds from admission to the end of an execution, the median of several.
double ChainSeconds(Client* client, uint64_t bytes, int hops, v1::Transport transport, v1::Launch launch, int executions) {
  const std::string name = absl::StrCat("chain-", bytes, "-", hops, "-", v1::Launch_Name(launch));
  const Steady s = Run(client, Chain(name, bytes, hops, transport, launch), 5, executions);
  std::vector<double> times;
  for (const ExecutionResult& r : s.results) {
    const Tensor& out = r.outputs.at("out");
    const double want = static_cast<double>(r.execution) * static_cast<double>(int64_t{1} << hops);
    for (const int64_t i : {int64_t{0}, static_cast<int64_t>(bytes / 4) - 1}) {
      const double got = ElementAsDouble(out, i);
      if (got == want) continue;
      throw std::runtime_error(absl::StrCat("chain of ", hops, " hops, execution ", r.execution, ": ", got, " came, not ", want));
    }
    times.push_back(static_cast<double>(r.done_ns - r.admitted_ns) * 1e-9);
  }
  return Median(times);
}

struct Settings {
  v1::Transport transport = v1::NCCL;
  std::vector<uint64_t> small, large;
  std::vector<v1::Launch> launches = {v1::STREAM, v1::GRAPH};
};

Settings Parse(int argc, char** argv) {
  Settings s;
  std::string sizes;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (i + 1 >= argc) throw std::runtime_error(absl::StrCat(a, " needs a value"));
    const std::string v = argv[++i];
    if (a == "--transport") {
      if (v != "nccl" && v != "ipc") throw std::runtime_error("--transport is nccl or ipc");
      s.transport = v == "ipc" ? v1::IPC : v1::NCCL;
    } else if (a == "--sizes") {
      sizes = v;
    } else if (a == "--launch") {
      if (v != "stream" && v != "graph") throw std::runtime_error("--launch is stream or graph");
      s.launches = {v == "stream" ? v1::STREAM : v1::GRAPH};
    } else {
      throw std::runtime_error(absl::StrCat(a, " is no option"));
    }
  }
  const bool nccl = s.transport == v1::NCCL;
  if (sizes.empty()) sizes = nccl ? "8,1k,64k,1m,16m,64m,256m,1g" : "1m,16m,64m,256m,1g";
  for (const std::string& text : std::vector<std::string>(absl::StrSplit(sizes, ','))) {
    const uint64_t bytes = ParseSize(text);
    (bytes >= kLarge ? s.large : s.small).push_back(bytes);
    if (bytes < 8) throw std::runtime_error("the smallest size is 8");
    if (!nccl && bytes < kLarge) throw std::runtime_error("what a hop of a small value costs is compared over nccl only");
  }
  return s;
}

// One cluster's rows. A row that cannot be measured says why, and the others are measured all the same.
class Table {
 public:
  Table(std::string what, v1::Transport transport)
      : what_(std::move(what)), transport_(transport), cluster_({"h0", "h0"}, "h0", {GpuOf(0), GpuOf(1)}), client_(cluster_.Dial()) {}

  bool failed() const { return failed_; }

  void Bandwidth(uint64_t bytes, const BareTimes& all) {
    const bool marked = bytes >= kMarked;
    Try(absl::StrCat(what_, ", ", SizeText(bytes)), marked ? ">= 95 %" : "", [&](const std::string& label, const std::string& mark) {
      const double bare = Of(all, bytes);
      const int edges = bytes > 512 * kMiB ? 4 : 8;
      const int executions = static_cast<int>(std::clamp(0.7 / (bare * edges), 4.0, 100.0));
      // Made anew each time, which costs a moment of the GPU's memory; not where the workers share the GPU.
      const bool fresh = !SharesGpu(2);
      const Steady s = Run(client_.get(), FanOut(absl::StrCat("edges-", bytes), transport_, bytes, edges, 4, fresh), 4, executions);
      CheckFanOut(s, fresh);
      const double weft = s.period_s / edges;
      Row(label,
          absl::StrFormat("%s (%.1f GB/s), bare %s (%.1f GB/s): %.1f %%", Ms(weft), bytes / weft * 1e-9, Ms(bare), bytes / bare * 1e-9,
                          bare / weft * 100),
          mark, marked ? bare / weft >= 0.95 : -1);
    });
  }

  // Against NCCL as a program calls it. With launch GRAPH a bare chain that is captured, too, is told of: all of it on one stream, in an order that a graph of
  // weft's does not have, and no word that says whether a value is good goes with it.
  void Hop(v1::Launch launch, uint64_t bytes, const BareTimes& called, const BareTimes* captured) {
    Try(absl::StrCat(what_, ", ", SizeText(bytes), ", launch ", v1::Launch_Name(launch)), "<= 3 us more",
        [&](const std::string& label, const std::string& mark) {
          const double bare = Of(called, bytes);
          const int executions = static_cast<int>(std::clamp(0.7 / (std::max(bare, 1e-6) * kMany), 10.0, 200.0));
          std::vector<double> hops;
          for (int i = 0; i < kHopRounds; ++i) {
            const double many = ChainSeconds(client_.get(), bytes, kMany, transport_, launch, executions);
            hops.push_back((many - ChainSeconds(client_.get(), bytes, kFew, transport_, launch, executions)) / (kMany - kFew));
          }
          const double weft = Median(hops);
          std::string text = absl::StrFormat("%.1f us a hop, bare %.1f us: %+.1f us", weft * 1e6, bare * 1e6, (weft - bare) * 1e6);
          if (captured != nullptr) {
            const double graph = Of(*captured, bytes);
            absl::StrAppend(&text, absl::StrFormat("; bare and captured %.1f us: %+.1f us", graph * 1e6, (weft - graph) * 1e6));
          }
          Row(label, text, mark, weft - bare <= kMostMore);
        });
  }

 private:
  static double Of(const BareTimes& all, uint64_t bytes) {
    const auto it = all.seconds.find(bytes);
    if (it == all.seconds.end()) throw std::runtime_error(all.problem);
    return it->second;
  }

  void Try(const std::string& label, const std::string& mark, const std::function<void(const std::string&, const std::string&)>& measure) {
    try {
      measure(label, mark);
    } catch (const std::exception& e) {
      failed_ = true;
      Row(label, e.what(), mark, 0);
    }
  }

  const std::string what_;
  const v1::Transport transport_;
  Daemons cluster_;
  const std::unique_ptr<Client> client_;
  bool failed_ = false;
};

}  // namespace

int Edges(int argc, char** argv) {
  const Settings s = Parse(argc, argv);
  const bool mps = UnderMps();
  const std::string what =
      absl::StrCat(s.transport == v1::NCCL ? "nccl" : "ipc", SharesGpu(2) ? " edge within a GPU" : " edge", mps ? ", MPS" : "");
  // All that is bare first: later this process has threads.
  const BareTimes bare = s.transport == v1::NCCL ? BareNcclTransfers(s.large) : BareIpcCopies(s.large);
  std::map<v1::Launch, BareTimes> hops;
  for (const v1::Launch launch : {v1::STREAM, v1::GRAPH}) {
    if (launch == v1::STREAM || absl::c_linear_search(s.launches, launch)) hops[launch] = BareNcclHops(s.small, launch == v1::GRAPH, kFew, kMany);
  }
  for (const auto& [bytes, seconds] : bare.seconds) std::printf("bare, %s: %s\n", SizeText(bytes).c_str(), Ms(seconds).c_str());
  std::fflush(stdout);

  Table table(what, s.transport);
  for (const uint64_t bytes : s.large) table.Bandwidth(bytes, bare);
  for (const uint64_t bytes : s.small) {
    for (const v1::Launch launch : s.launches) table.Hop(launch, bytes, hops[v1::STREAM], launch == v1::GRAPH ? &hops[v1::GRAPH] : nullptr);
  }
  return table.failed() ? 1 : 0;
}

}  // namespace weft::bench
