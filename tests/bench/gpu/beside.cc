// Transfers into a worker whose GPU is full of matrix products: when they start and end, and what each costs the other.

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/device/cuda/environment.h"
#include "tests/bench/gpu/bench.h"

namespace weft::bench {
namespace {

constexpr int kProducts = 6;

// The receiver multiplies values of its own all the time, and meanwhile receives one from w0 (if `transport` is one) that nothing waits for but a look.
v1::Graph Make(const std::string& name, v1::Transport transport) {
  v1::Graph g;
  g.set_name(name);
  const auto actor = [&](const char* actor_name, const char* cls, const char* worker) {
    v1::Actor* a = g.add_actor();
    a->set_name(actor_name);
    a->set_class_(cls);
    a->set_worker(worker);
    return a;
  };
  const auto node = [&](const std::string& node_name, const char* on, const char* method) {
    v1::Node* n = g.add_node();
    n->set_name(node_name);
    n->set_actor(on);
    n->set_method(method);
    return n;
  };
  const auto value = [](v1::Actor* a, const char* shape) {
    a->mutable_config()->set_dtype(v1::F16);
    a->mutable_config()->set_shape(shape);
    a->mutable_config()->set_fill("0.5");
  };
  value(actor("own", "std.Source", "w1"), "[8192, 8192]");
  actor("gemm", "std.Gemm", "w1");
  node("mine", "own", "make");
  std::string last = "mine";
  for (int i = 0; i < kProducts; ++i) {
    const std::string name_i = absl::StrCat("square", i);
    node(name_i, "gemm", "square")->add_arg()->set_node(last);
    last = name_i;
  }
  node("end", "gemm", "peek")->add_arg()->set_node(last);
  g.add_output()->set_name("end");
  g.mutable_output(0)->set_node("end");
  if (transport != v1::TRANSPORT_UNSPECIFIED) {
    value(actor("far", "std.Source", "w0"), "[10000, 10000]");
    for (int i = 0; i < 3; ++i) {
      node(absl::StrCat("make", i), "far", "make");
      v1::Node* look = node(absl::StrCat("look", i), "gemm", "peek");
      look->add_arg()->set_node(absl::StrCat("make", i));
      v1::Edge* e = g.add_edge();
      e->set_from(absl::StrCat("make", i));
      e->set_to(absl::StrCat("look", i));
      e->set_transport(transport);
    }
    g.add_output()->set_name("look");
    g.mutable_output(1)->set_node("look2");
  }
  g.mutable_options()->set_max_in_flight(4);
  return g;
}

struct Times {
  double product_s = 0;   // median of one
  double transfer_s = 0;  // median of one, waiting included
};

Times Measure(Client* client, const std::string& name, v1::Transport transport) {
  const auto check = [](const absl::Status& s) {
    if (!s.ok()) throw std::runtime_error(std::string(s.message()));
  };
  const v1::Graph g = Make(name, transport);
  check(client->Compile(g, Client::CompileOptions()).status());
  {
    SessionOptions options;
    options.graph = name;
    auto session = client->OpenSession(options);
    check(session.status());
    std::vector<ClientSession::Handle> flying;
    for (int i = 0; i < 24; ++i) {
      auto h = (*session)->Submit({});
      check(h.status());
      flying.push_back(*h);
      if (flying.size() < 4) continue;
      check((*session)->Wait(flying.front(), 120).status());
      flying.erase(flying.begin());
    }
    for (const auto h : flying) check((*session)->Wait(h, 120).status());
  }
  auto trace = client->GetTrace(name, 12);
  check(trace.status());
  std::vector<double> products, transfers;
  std::vector<std::string> shown;
  for (const v1::TraceTrack& t : *trace) {
    if (t.worker() != "w1") continue;
    int64_t zero = -1;
    for (const v1::TraceEvent& e : t.event()) {
      const double s = (e.end_ns() - e.start_ns()) * 1e-9;
      if (e.kind() == v1::COMPUTE && e.name().find("square") != std::string::npos) products.push_back(s);
      const bool in = e.kind() == v1::READ || e.kind() == v1::RECV;
      if (in) transfers.push_back(s);
      if (e.execution() < 18 || e.execution() > 18) continue;
      if (zero < 0) zero = e.start_ns();
      if (in || e.name().find("square") != std::string::npos) {
        shown.push_back(absl::StrFormat("    %-28s %9.3f .. %9.3f ms", e.name(), (e.start_ns() - zero) * 1e-6, (e.end_ns() - zero) * 1e-6));
      }
    }
  }
  check(client->Teardown(name));
  if (transport != v1::TRANSPORT_UNSPECIFIED) {
    std::printf("  %s, execution 18 on w1:\n", v1::Transport_Name(transport).c_str());
    for (const std::string& line : shown) std::printf("%s\n", line.c_str());
  }
  return {Median(products), Median(transfers)};
}

}  // namespace

int Beside(int, char**) {
  const bool mps = UnderMps();
  Daemons cluster({"h0", "h0"}, "h0", {GpuOf(0), GpuOf(1)});
  const auto client = cluster.Dial();
  const Times alone = Measure(client.get(), "alone", v1::TRANSPORT_UNSPECIFIED);
  for (const v1::Transport t : {v1::IPC, v1::NCCL}) {
    const Times both = Measure(client.get(), v1::Transport_Name(t), t);
    Row(absl::StrCat("GEMM beside ", v1::Transport_Name(t), mps ? ", MPS" : ""),
        absl::StrFormat("product %s alone, %s beside transfers (%+.1f %%); transfer of 200 MB %s", Ms(alone.product_s), Ms(both.product_s),
                        (both.product_s / alone.product_s - 1) * 100, Ms(both.transfer_s)),
        "", -1);
  }
  return 0;
}

}  // namespace weft::bench
