// Whatever stands in a file, the parser and the validation answer, and in time that is linear in its size.

#include <time.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "driver/graph/parse.h"
#include "driver/graph/test_graphs.h"
#include "driver/graph/validate.h"

namespace weft {
namespace {

std::string Mutate(std::string text, std::mt19937_64* rng) {
  const auto pick = [&](size_t n) { return static_cast<size_t>((*rng)() % n); };
  const int edits = 1 + static_cast<int>(pick(4));
  for (int i = 0; i < edits && !text.empty(); ++i) {
    const size_t at = pick(text.size());
    switch (pick(7)) {
      case 0: text[at] = static_cast<char>(text[at] ^ (1 << pick(8))); break;
      case 1: text[at] = static_cast<char>(pick(256)); break;
      case 2: text.erase(at, 1 + pick(12)); break;
      case 3: text.insert(at, 1, "{}[]\":,\\#-0e."[pick(13)]); break;
      case 4: text.insert(at, text.substr(pick(text.size()), 1 + pick(60))); break;
      case 5: text.resize(at); break;
      default: {  // a number becomes an extreme one
        const size_t digit = text.find_first_of("0123456789", at);
        static const char* const kNumbers[] = {"-1", "99999999999999999999", "2147483647", "nan", "1e308", "0"};
        if (digit != std::string::npos) text.replace(digit, 1, kNumbers[pick(6)]);
      }
    }
  }
  return text;
}

void Fuzz(const std::string& good, uint64_t seed, int64_t* parsed, int64_t* valid) {
  std::mt19937_64 rng(seed);
  const char* more = std::getenv("WEFT_FUZZ_ROUNDS");
  const int rounds = more != nullptr ? std::atoi(more) : 5000;
  for (int i = 0; i < rounds; ++i) {
    const std::string text = Mutate(good, &rng);
    const auto graph = ParseGraph("g", text);
    if (!graph.ok()) {
      if (!absl::IsInvalidArgument(graph.status())) FAIL(graph.status().ToString() << "\n" << text);
      if (graph.status().message().empty()) FAIL("no message for\n" << text);
      continue;
    }
    ++*parsed;
    const auto resolved = Validate(*graph, ClassTable::Std());
    if (resolved.ok()) {
      ++*valid;
      if (resolved->nodes.size() != graph->node_size()) FAIL("nodes are missing for\n" << text);
    } else if (!absl::IsInvalidArgument(resolved.status()) || resolved.status().message().empty()) {
      FAIL(resolved.status().ToString() << "\n" << text);
    }
  }
}

TEST_CASE("mutated graphs never crash") {
  int64_t parsed = 0, valid = 0;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    Fuzz(kGoodText, seed, &parsed, &valid);
    Fuzz(kGoodJson, seed, &parsed, &valid);
  }
  // Otherwise the mutations are too coarse to reach the validation.
  CHECK(parsed > 1000);
  CHECK(valid > 100);
  CHECK(valid < parsed);
}

v1::Graph Large(int n) {
  v1::Graph g;
  g.set_name("large");
  for (int a = 0; a < 8; ++a) {
    v1::Actor* actor = g.add_actor();
    actor->set_name(absl::StrCat("m", a));
    actor->set_class_("std.Math");
    actor->set_worker(absl::StrCat("w", a));
  }
  v1::Input* input = g.add_input();
  input->set_name("in");
  input->set_dtype(v1::F32);
  input->set_shape("[4]");
  for (int i = 0; i < n; ++i) {
    v1::Node* node = g.add_node();
    node->set_name(absl::StrCat("node", i));
    node->set_actor(absl::StrCat("m", i % 8));
    node->set_method("add");
    if (i == 0) {
      node->add_arg()->set_input("in");
    } else {
      node->add_arg()->set_node(absl::StrCat("node", i - 1));
      node->add_arg()->set_node(absl::StrCat("node", i / 2));
    }
    if (i >= 2) node->add_after(absl::StrCat("node", i / 3));
  }
  return g;
}

// Of this thread alone, so that a loaded machine does not count.
double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double Seconds(const v1::Graph& g, bool ok) {
  const double start = CpuSeconds();
  const auto r = Validate(g, ClassTable::Std());
  const double s = CpuSeconds() - start;
  INFO(r.status().ToString());
  CHECK(r.ok() == ok);
  return s;
}

// Limits are far above what it takes, so that only a quadratic algorithm or a sanitizer's slowness on top of it would
// exceed them.
constexpr double kLimit = 10;

TEST_CASE("a hundred thousand nodes") {
  const int n = 100000;
  v1::Graph g = Large(n);
  const double good = Seconds(g, true);
  std::string text;
  {
    INFO("one long cycle");
    v1::Graph cycle = g;
    cycle.mutable_node(0)->mutable_arg(0)->set_node(absl::StrCat("node", n - 1));
    cycle.mutable_node(0)->mutable_arg(0)->clear_input();
    CHECK(Seconds(cycle, false) < kLimit);
    CHECK(Validate(cycle, ClassTable::Std()).status().message().size() < 4096);
  }
  {
    INFO("every reference unknown");
    v1::Graph unknown = g;
    for (v1::Node& node : *unknown.mutable_node()) {
      for (v1::Arg& arg : *node.mutable_arg()) arg.set_node(absl::StrCat(arg.node(), "x"));
    }
    CHECK(Seconds(unknown, false) < kLimit);
  }
  {
    INFO("an override for every edge");
    v1::Graph edges = g;
    for (int i = 1; i < n; ++i) {
      v1::Edge* e = edges.add_edge();
      e->set_from(absl::StrCat("node", i - 1));
      e->set_to(absl::StrCat("node", i));
    }
    CHECK(Seconds(edges, true) < kLimit);
  }
  {
    INFO("one node that takes all, and outputs of all");
    v1::Graph wide = g;
    v1::Node* last = wide.add_node();
    last->set_name("all");
    last->set_actor("m0");
    last->set_method("add");
    for (int i = 0; i < n; ++i) {
      last->add_arg()->set_node(absl::StrCat("node", i));
      v1::Edge* e = wide.add_edge();
      e->set_from(absl::StrCat("node", i));
      e->set_to("all");
      v1::Output* o = wide.add_output();
      o->set_name(absl::StrCat("o", i));
      o->set_node(absl::StrCat("node", i));
    }
    CHECK(Seconds(wide, true) < kLimit);
  }
  WARN("100000 nodes validate in " << good << " s");
  CHECK(good < kLimit);
}

}  // namespace
}  // namespace weft
