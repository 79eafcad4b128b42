#include "tests/integration/fused_graphs.h"

#include <catch2/catch.hpp>
#include <deque>

#include "absl/strings/str_cat.h"
#include "tests/integration/graph_parts.h"

namespace weft {
namespace {

constexpr char kShape[] = "[97]";

std::string W(int worker) { return absl::StrCat("w", worker); }

void AddRandom(v1::Graph* g, const std::string& name, int worker) {
  v1::Config* c = AddActor(g, name, "std.Source", W(worker))->mutable_config();
  c->set_dtype(v1::F32);
  c->set_shape(kShape);
  c->set_fill("random");
}

void AddFail(v1::Graph* g, const std::string& name, int worker, bool on_device) {
  v1::Config* c = AddActor(g, name, "std.Fail", W(worker))->mutable_config();
  c->set_dtype(v1::F32);
  c->set_shape(kShape);
  c->add_fail_on(2);
  c->set_message("as told");
  c->set_on_device(on_device);
}

}  // namespace

v1::Graph Gradients(const std::string& name, const GradientsOptions& options) {
  v1::Graph g;
  g.set_name(name);
  const int last = options.workers - 1;
  for (int w = 0; w < options.workers; ++w) {
    AddRandom(&g, absl::StrCat("source", w), w);
    AddActor(&g, absl::StrCat("math", w), "std.Math", W(w));
  }
  if (options.fails) AddFail(&g, "fail", last, false);
  for (int l = 0; l < options.layers; ++l) {
    v1::Collective* sum = g.add_collective();
    sum->set_name(absl::StrCat("sum", l));
    sum->set_op(v1::ALL_REDUCE);
    sum->set_reduce(v1::SUM);
    for (int w = 0; w < options.workers; ++w) {
      const std::string made = absl::StrCat("g", l, "-", w);
      if (options.fails && l == 1 && w == last) {
        AddNode(&g, made, "fail", "run");
      } else {
        AddNode(&g, made, absl::StrCat("source", w), "make")->mutable_config()->set_seed(l * 100 + w + 1);
      }
      sum->add_member()->set_node(made);
    }
  }
  for (int l = 0; l < options.layers; ++l) {
    for (int w = 0; w < options.workers; ++w) {
      const std::string out = absl::StrCat("y", l, "-", w);
      v1::Node* scaled = AddNode(&g, out, absl::StrCat("math", w), "scale");
      scaled->add_arg()->set_collective(absl::StrCat("sum", l));
      scaled->mutable_config()->set_scale(0.1);
      Give(&g, out, out);
    }
  }
  g.mutable_options()->set_bucket_bytes(options.bucket_bytes);
  g.mutable_options()->set_poison_released(options.bucket_bytes > 0);
  g.mutable_options()->set_overlap(options.overlap);
  g.mutable_options()->set_launch(options.launch);
  g.mutable_options()->set_max_in_flight(4);
  return g;
}

v1::Graph FanOut(const std::string& name, const FanOutOptions& options) {
  v1::Graph g;
  g.set_name(name);
  AddRandom(&g, "source", 0);
  AddNode(&g, "good", "source", "make")->mutable_config()->set_seed(1);
  if (options.fails) {
    AddFail(&g, "fail", 0, false);
    AddNode(&g, "bad", "fail", "run");
  } else {
    AddNode(&g, "bad", "source", "make")->mutable_config()->set_seed(2);
  }
  for (int w = 1; w < options.workers; ++w) {
    const std::string math = absl::StrCat("math", w);
    AddActor(&g, math, "std.Math", W(w));
    for (const std::string value : {"good", "bad"}) {
      if (value == "bad" && w == options.workers - 1) continue;
      const std::string out = absl::StrCat(value, w);
      v1::Node* scaled = AddNode(&g, out, math, "scale");
      scaled->add_arg()->set_node(value);
      scaled->mutable_config()->set_scale(0.1 * w);
      v1::Edge* e = g.add_edge();
      e->set_from(value);
      e->set_to(out);
      e->set_transport(options.transport);
      e->set_broadcast(options.broadcast);
      Give(&g, out, out);
    }
  }
  g.mutable_options()->set_poison_released(options.broadcast);
  g.mutable_options()->set_overlap(options.overlap);
  g.mutable_options()->set_launch(options.launch);
  g.mutable_options()->set_max_in_flight(4);
  return g;
}

RunBits RunForBits(Client* client, const v1::Graph& graph, int executions, std::vector<std::string>* groups) {
  INFO("graph " << graph.name());
  Client::CompileOptions compile;
  compile.trace = false;
  compile.timeout_s = 60;
  Need(client->Compile(graph, compile).status());
  const auto plan = client->GetPlan(graph.name());
  Need(plan.status());
  if (groups != nullptr) {
    groups->clear();
    for (const v1::PlanGroup& p : plan->group()) groups->push_back(p.name());
  }
  RunBits bits;
  {
    SessionOptions options;
    options.graph = graph.name();
    options.deadline_s = 60;
    auto session = client->OpenSession(options);
    Need(session.status());
    std::deque<ClientSession::Handle> flying;
    for (int submitted = 0; submitted < executions || !flying.empty();) {
      if (submitted < executions && static_cast<int>(flying.size()) < (*session)->max_in_flight()) {
        const auto h = (*session)->Submit({});
        Need(h.status());
        flying.push_back(*h);
        ++submitted;
        continue;
      }
      const auto r = (*session)->Wait(flying.front(), 60);
      Need(r.status());
      flying.pop_front();
      std::map<std::string, std::string>& values = bits.emplace_back();
      for (const auto& [name, t] : r->outputs) values[name] = std::string(t.as<char>(), t.bytes());
      for (const auto& [name, e] : r->errors) {
        values[name] = absl::StrCat("error of ", e.node(), " on ", e.worker(), " in execution ", e.execution(), ": ", e.message());
      }
    }
  }
  Need(client->Teardown(graph.name()));
  return bits;
}

std::string Differences(const RunBits& a, const RunBits& b) {
  if (a.size() != b.size()) return absl::StrCat(a.size(), " executions and ", b.size());
  const auto show = [](const std::string& v) { return v.rfind("error of ", 0) == 0 ? v : absl::StrCat(v.size(), " bytes"); };
  for (size_t k = 0; k < a.size(); ++k) {
    if (a[k].size() != b[k].size()) return absl::StrCat("execution ", k, " has ", a[k].size(), " outputs and ", b[k].size());
    for (const auto& [name, value] : a[k]) {
      const auto it = b[k].find(name);
      if (it == b[k].end()) return absl::StrCat("execution ", k, ": only one has output ", name);
      if (it->second != value) return absl::StrCat("execution ", k, ", output ", name, ": ", show(value), " and ", show(it->second));
    }
  }
  return "";
}

}  // namespace weft
