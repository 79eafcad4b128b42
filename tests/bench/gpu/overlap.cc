// Three senders and one receiver that squares what it gets: with overlap off, on, and on with 4 executions in flight, against the larger of
// transfer and compute measured alone.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/device/cuda/environment.h"
#include "common/trace/chrome_json.h"
#include "tests/bench/gpu/bench.h"
#include "tests/bench/gpu/hand_ipc.h"
#include "tests/bench/gpu/hand_nccl.h"

namespace weft::bench {
namespace {

constexpr int kSenders = 3;

struct Case {
  v1::Transport transport = v1::IPC;
  v1::DType dtype = v1::F16;
  int64_t rows = 10000;     // of the value, dtype[rows, rows]
  int squares = 1;          // of each value, one after the other
  bool transfer = true;     // false: the values are the receiver's own
  bool compute = true;      // false: values are only looked at
  v1::Overlap overlap = v1::ON;
  int in_flight = 1;
};

v1::Graph Make(const std::string& name, const Case& c) {
  v1::Graph g;
  g.set_name(name);
  const std::string receiver = absl::StrCat("w", kSenders);
  const auto actor = [&](const std::string& actor_name, const std::string& cls, const std::string& worker) {
    v1::Actor* a = g.add_actor();
    a->set_name(actor_name);
    a->set_class_(cls);
    a->set_worker(worker);
    return a;
  };
  actor("receiver", "std.Gemm", receiver);
  for (int i = 0; i < kSenders; ++i) {
    v1::Actor* s = actor(absl::StrCat("sender", i), "std.Source", c.transfer ? absl::StrCat("w", i) : receiver);
    s->mutable_config()->set_dtype(c.dtype);
    s->mutable_config()->set_shape(absl::StrCat("[", c.rows, ", ", c.rows, "]"));
    s->mutable_config()->set_fill(absl::StrCat(i + 1));
    v1::Node* make = g.add_node();
    make->set_name(absl::StrCat("make", i));
    make->set_actor(absl::StrCat("sender", i));
    make->set_method("make");
    std::string last = make->name();
    for (int k = 0; c.compute && k < c.squares; ++k) {
      v1::Node* square = g.add_node();
      square->set_name(absl::StrCat("square", i, "_", k));
      square->set_actor("receiver");
      square->set_method("square");
      square->add_arg()->set_node(last);
      last = square->name();
    }
    v1::Node* peek = g.add_node();
    peek->set_name(absl::StrCat("peek", i));
    peek->set_actor("receiver");
    peek->set_method("peek");
    peek->add_arg()->set_node(last);
    if (c.transfer) {
      v1::Edge* e = g.add_edge();
      e->set_from(make->name());
      e->set_to(c.compute ? absl::StrCat("square", i, "_0") : peek->name());
      e->set_transport(c.transport);
    }
    v1::Output* out = g.add_output();
    out->set_name(absl::StrCat("first", i));
    out->set_node(peek->name());
  }
  g.mutable_options()->set_overlap(c.overlap);
  g.mutable_options()->set_prefetch_depth(1);
  g.mutable_options()->set_max_in_flight(c.in_flight);
  return g;
}

double Half(const Tensor& t) { return ElementAsDouble(t, 0); }

// All elements of a value are equal, and so are those of its products, rounded to its type (or infinite).
void CheckResults(const Steady& s, const Case& c) {
  const double most = c.dtype == v1::F16 ? 65000 : 3.4e38;
  for (const ExecutionResult& r : s.results) {
    for (int i = 0; i < kSenders; ++i) {
      double want = i + 1;
      for (int k = 0; c.compute && k < c.squares; ++k) want = static_cast<double>(c.rows) * want * want;
      const double got = Half(r.outputs.at(absl::StrCat("first", i)));
      if (want < most ? std::fabs(got - want) > want / 1000 : !std::isinf(got)) {
        throw std::runtime_error(absl::StrCat("execution ", r.execution, ": sender ", i, " should give ", want, ", gave ", got));
      }
    }
  }
}

// The last executions of a graph in a steady state, op by op, for Perfetto. Recording takes timed events, which cost a little: nothing of it is measured.
void WriteTrace(Client* client, const v1::Graph& graph, const std::string& file) {
  constexpr int kWarm = 4, kExecutions = 8;
  const auto check = [&](const absl::Status& s) {
    if (!s.ok()) throw std::runtime_error(absl::StrCat("--trace: ", graph.name(), ": ", std::string(s.message())));
  };
  Client::CompileOptions compile;
  compile.trace = true;
  check(client->Compile(graph, compile).status());
  (void)RunCompiled(client, graph.name(), kWarm, kExecutions);
  const auto tracks = client->GetTrace(graph.name(), kExecutions);
  check(tracks.status());
  std::ofstream out(file);
  out << ToChromeJson(BuildTimeline(*tracks), graph.name());
  if (!out.flush()) throw std::runtime_error(absl::StrCat("--trace: ", file, " cannot be written"));
  check(client->Teardown(graph.name()));
}

}  // namespace

int Overlap(int argc, char** argv) {
  Case base;
  bool cpu_senders = false, balanced = false, mps = UnderMps();
  int executions = 50;
  std::string trace;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto value = [&] {
      if (++i >= argc) throw std::runtime_error(absl::StrCat(a, " needs a value"));
      return std::string(argv[i]);
    };
    if (a == "--transport") {
      const std::string t = value();
      if (t != "shm" && t != "ipc" && t != "nccl") throw std::runtime_error(absl::StrCat("--transport is shm, ipc or nccl, not ", t));
      cpu_senders = t == "shm";
      base.transport = t == "shm" ? v1::SHM : t == "ipc" ? v1::IPC : v1::NCCL;
    } else if (a == "--dtype") {
      const std::string d = value();
      if (d != "F16" && d != "F32") throw std::runtime_error(absl::StrCat("--dtype is F16 or F32, not ", d));
      base.dtype = d == "F32" ? v1::F32 : v1::F16;
    } else if (a == "--rows") {
      base.rows = std::stoll(value());
    } else if (a == "--executions") {
      executions = std::stoi(value());
    } else if (a == "--trace") {
      trace = value();
    } else if (a == "--balanced") {
      balanced = true;
    } else {
      throw std::runtime_error(absl::StrCat(a, " is no option"));
    }
  }
  double by_hand = 0;
  std::string hand_problem;
  if (!balanced && base.transport != v1::SHM && base.dtype == v1::F16) {  // what is by hand is in F16
    // First: later this process has threads. A failure costs its row and no other.
    try {
      by_hand = base.transport == v1::IPC ? HandIpcPeriod(base.rows, 10, executions) : HandNcclPeriod(base.rows, 8, executions);
    } catch (const std::exception& e) {
      hand_problem = e.what();
    }
  }
  std::vector<std::string> devices;
  for (int i = 0; i < kSenders; ++i) devices.push_back(cpu_senders ? "cpu" : GpuOf(i));
  devices.push_back(GpuOf(kSenders));
  Daemons cluster(std::vector<std::string>(kSenders + 1, "h0"), "h0", devices);
  const auto client = cluster.Dial();
  const std::string transport = v1::Transport_Name(base.transport);
  const auto run = [&](const std::string& name, Case c, int warm, int n) {
    const Steady s = Run(client.get(), Make(name, c), warm, n);
    CheckResults(s, c);
    return s;
  };

  // Whichever is faster, one at a time or several in flight: a bound is what the machine can do.
  const auto alone = [&](bool transfer) {
    Case c = base;
    c.transfer = transfer;
    c.compute = !transfer;
    double best = HUGE_VAL;
    for (const int in_flight : {1, 4}) {
      c.in_flight = in_flight;
      best = std::min(best, run(transfer ? "transfer" : "compute", c, 6, executions).period_s);
    }
    return best;
  };
  double transfer = alone(true);
  double compute = alone(false);
  if (balanced) {
    base.squares = std::max(1, static_cast<int>(std::lround(transfer / compute)));
    // A product costs rows^3, a transfer rows^2: what the whole number of products leaves is made up by the size.
    constexpr int64_t kAlign = 64;
    const double rows = static_cast<double>(base.rows) * transfer / (compute * base.squares);
    base.rows = std::max<int64_t>(1, std::llround(rows / kAlign)) * kAlign;
    transfer = alone(true);
    compute = alone(false);
  }
  const double bound = std::max(transfer, compute);
  Case off_case = base, on_case = base, flight_case = base;
  off_case.overlap = v1::OFF;
  flight_case.in_flight = 4;
  const Steady off5 = run("off5", off_case, 0, 5);
  const Steady on5 = run("on5", on_case, 0, 5);
  const Steady flight5 = run("flight5", flight_case, 0, 5);
  // Over NCCL's sockets the speed changes with every communicator, by where its threads come to lie: what is compared without a bound beside it is the median of
  // several, taken in turn.
  const int rounds = balanced && base.transport == v1::NCCL ? 3 : 1;
  std::vector<double> offs, ons, flights;
  for (int i = 0; i < rounds; ++i) {
    offs.push_back(run("off", off_case, 5, executions).period_s);
    ons.push_back(run("on", on_case, 5, executions).period_s);
    flights.push_back(run("flight", flight_case, 8, executions).period_s);
  }
  const double off = Median(offs), on = Median(ons), flight = Median(flights);
  const std::string what = absl::StrCat("overlap ", transport, balanced ? " balanced" : "", base.dtype == v1::F32 ? " F32" : "", mps ? " MPS" : "");
  std::printf("%s: %s[%ld, %ld], %d product(s) a value, %d executions after warm-up\n", what.c_str(), v1::DType_Name(base.dtype).c_str(), static_cast<long>(base.rows),
              static_cast<long>(base.rows), base.squares, executions);
  std::printf("  transfer alone %s, compute alone %s, bound %s an execution\n", Ms(transfer).c_str(), Ms(compute).c_str(), Ms(bound).c_str());
  for (int i = 0; rounds > 1 && i < rounds; ++i) {
    std::printf("  round %d: off %s, on %s, 4 in flight %s\n", i + 1, Ms(offs[static_cast<size_t>(i)]).c_str(), Ms(ons[static_cast<size_t>(i)]).c_str(),
                Ms(flights[static_cast<size_t>(i)]).c_str());
  }
  std::printf("  off %s (5 from cold: %s), on %s (%s), 4 in flight %s (%s)\n", Ms(off).c_str(), Ms(off5.first_s).c_str(), Ms(on).c_str(),
              Ms(on5.first_s).c_str(), Ms(flight).c_str(), Ms(flight5.first_s).c_str());
  const double ratio = flight / bound, gain = off / flight;
  if (!balanced) {
    const bool unmarked = base.transport == v1::IPC && mps;  // there the bound is the mark
    const std::string hand_mark = unmarked ? "" : "<= 1.02";
    if (by_hand > 0) {
      const double against = flight / by_hand;
      Row(absl::StrCat(what, " against by hand"), absl::StrCat(Ms(flight), ", by hand ", Ms(by_hand), ": ", Ratio(against)), hand_mark,
          unmarked ? -1 : against <= 1.02);
    } else if (!hand_problem.empty()) {
      Row(absl::StrCat(what, " against by hand"), hand_problem, hand_mark, 0);
    }
    const bool marked = base.transport != v1::IPC || mps;
    const double mark = base.transport == v1::NCCL ? 1.10 : 1.05;
    Row(what, absl::StrCat(Ms(off), " off, ", Ms(on), " on, ", Ms(flight), " with 4; transfer ", Ms(transfer), ", compute ", Ms(compute), "; ",
                           Ratio(ratio), " x bound"),
        marked ? absl::StrFormat("<= %.2f", mark) : "", marked ? ratio <= mark : -1);
  } else {
    const double mark = base.transport == v1::SHM ? 1.9 : 1.75;
    Row(what, absl::StrCat(Ms(off), " off, ", Ms(flight), " with 4; transfer ", Ms(transfer), ", compute ", Ms(compute), "; ", Ratio(gain),
                           " x faster"),
        base.transport == v1::IPC ? "" : absl::StrFormat(">= %.2f", mark), base.transport == v1::IPC ? -1 : gain >= mark);
  }
  if (!trace.empty()) {
    WriteTrace(client.get(), Make("traced", flight_case), trace);
    WriteTrace(client.get(), Make("traced-off", off_case), absl::StrCat(trace, ".off"));
  }
  return 0;
}

}  // namespace weft::bench
