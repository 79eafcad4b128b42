#include "tests/integration/random_graph.h"

#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// What a node's output is known to be. All tensors are vectors, so that most values fit most tasks.
struct Made {
  std::string node;
  int output = 0;
  int worker = 0;
  v1::DType dtype = v1::F32;
  int64_t n = 0;
};

class Generator {
 public:
  Generator(uint64_t seed, const RandomGraphOptions& o) : rng_(seed), o_(o) {}

  v1::Graph Make(uint64_t seed) {
    g_.set_name(absl::StrCat("random", seed));
    workers_ = Int(o_.min_workers, o_.max_workers);
    for (int w = 0; w < workers_; ++w) {
      const int actors = Int(1, 2);
      for (int a = 0; a < actors; ++a) AddActor(w, "std.Math", a);
    }
    if (o_.inputs && Chance(0.5)) AddInput();
    const int nodes = Int(o_.min_nodes, o_.max_nodes);
    for (int i = 0; i < nodes; ++i) AddNode(i);
    if (made_.empty()) AddSource(nodes);
    if (!input_taken_) g_.clear_input();
    AddOutputs();
    v1::Options* opt = g_.mutable_options();
    opt->set_max_in_flight(8);
    opt->set_prefetch_depth(Int(0, 3));
    if (Chance(0.2)) opt->set_poison_released(true);
    return g_;
  }

 private:
  int Int(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng_); }
  bool Chance(double p) { return std::uniform_real_distribution<double>(0, 1)(rng_) < p; }
  template <typename T>
  const T& Pick(const std::vector<T>& v) {
    return v[Int(0, static_cast<int>(v.size()) - 1)];
  }

  std::string AddActor(int worker, const std::string& cls, int n) {
    v1::Actor* a = g_.add_actor();
    a->set_name(absl::StrCat("a", worker, ".", cls.substr(4), n));
    a->set_class_(cls);
    a->set_worker(absl::StrCat("w", worker));
    if (cls == "std.Math") math_.push_back({a->name(), worker});
    return a->name();
  }

  void AddInput() {
    v1::Input* in = g_.add_input();
    in->set_name("x");
    in->set_dtype(v1::F32);
    in->set_shape("[12]");
  }

  v1::Node* NewNode(const std::string& name, const std::string& actor, const std::string& method) {
    v1::Node* n = g_.add_node();
    n->set_name(name);
    n->set_actor(actor);
    n->set_method(method);
    return n;
  }

  void AddSource(int i) {
    const int w = Int(0, workers_ - 1);
    const std::string actor = AddActor(w, "std.Source", i);
    const v1::DType dtype = Pick(std::vector<v1::DType>{v1::F32, v1::F32, v1::F64, v1::I64});
    const int64_t n = Pick(o_.sizes);
    v1::Config* c = g_.mutable_actor(g_.actor_size() - 1)->mutable_config();
    c->set_dtype(dtype);
    c->set_shape(absl::StrCat("[", n, "]"));
    c->set_fill(Pick(std::vector<std::string>{"execution", "iota", "random"}));
    c->set_seed(Int(0, 1000));
    const std::string name = absl::StrCat("n", i);
    NewNode(name, actor, "make");
    made_.push_back({name, 0, w, dtype, n});
  }

  void TakeArg(v1::Node* node, const Made& m) {
    v1::Arg* a = node->add_arg();
    if (m.node == "@input") {
      a->set_input("x");
      input_taken_ = true;
      return;
    }
    if (m.node[0] == '#') {
      a->set_collective(m.node.substr(1));
      return;
    }
    a->set_node(m.node);
    a->set_output(m.output);
    read_.insert({m.node, m.output});
    const int to = WorkerOf(node->actor());
    if (to == m.worker) return;
    MaybeOverride(*node, m);
  }

  int WorkerOf(const std::string& actor) {
    for (const v1::Actor& a : g_.actor()) {
      if (a.name() == actor) return std::stoi(a.worker().substr(1));
    }
    return -1;
  }

  void MaybeOverride(const v1::Node& to, const Made& m) {
    if (!overridden_.insert(absl::StrCat(m.node, ":", m.output, ">", to.name())).second) return;
    const bool gloo = o_.gloo_edges && Chance(0.25);
    const bool link = !gloo && o_.emulated_links && Chance(0.25);
    const bool off = Chance(0.1);
    if (!gloo && !link && !off) return;
    v1::Edge* e = g_.add_edge();
    e->set_from(m.node);
    e->set_output(m.output);
    e->set_to(to.name());
    if (gloo) e->set_transport(v1::GLOO);
    if (link) {
      e->set_transport(v1::SHM);
      e->mutable_emulate()->set_latency_s(1e-6 * Int(1, 50));
    }
    if (off) e->set_overlap(v1::OFF);
  }

  // Values of one dtype and size, some of them twice.
  std::vector<Made> Choose(int count, bool floats_only) {
    std::vector<Made> all = made_;
    if (g_.input_size() > 0) all.push_back({"@input", 0, -1, v1::F32, 12});
    if (floats_only) {
      std::erase_if(all, [](const Made& m) { return m.dtype == v1::I64; });
    }
    std::vector<Made> out;
    if (all.empty()) return out;
    const Made first = Pick(all);
    std::erase_if(all, [&](const Made& m) { return m.dtype != first.dtype || m.n != first.n; });
    out.push_back(first);
    while (static_cast<int>(out.size()) < count) out.push_back(Pick(all));
    return out;
  }

  void AddNode(int i) {
    const std::string name = absl::StrCat("n", i);
    if (made_.empty() || Chance(0.2)) return AddSource(i);
    if (o_.collectives && workers_ > 1 && Chance(0.12) && AddCollective(i)) return;
    const auto [actor, w] = Pick(math_);
    const int kind = Int(0, 6);
    v1::Node* n = nullptr;
    if (kind <= 1) {  // add, several values, perhaps one of them twice
      const std::vector<Made> args = Choose(Int(1, 3), false);
      n = NewNode(name, actor, "add");
      for (const Made& m : args) TakeArg(n, m);
      made_.push_back({name, 0, w, args[0].dtype, args[0].n});
    } else if (kind == 2) {
      const std::vector<Made> args = Choose(1, false);
      n = NewNode(name, actor, "scale");
      n->mutable_config()->set_scale(Int(-3, 3));
      TakeArg(n, args[0]);
      made_.push_back({name, 0, w, args[0].dtype, args[0].n});
    } else if (kind == 3) {
      const std::vector<Made> args = Choose(1, false);
      const int parts = args[0].n % 3 == 0 ? 3 : 1;
      n = NewNode(name, actor, "split");
      n->mutable_config()->set_parts(parts);
      TakeArg(n, args[0]);
      for (int p = 0; p < parts; ++p) made_.push_back({name, p, w, args[0].dtype, args[0].n / parts});
    } else if (kind == 4) {
      const std::vector<Made> args = Choose(Int(1, 3), false);
      n = NewNode(name, actor, "concat");
      int64_t total = 0;
      for (const Made& m : args) {
        TakeArg(n, m);
        total += m.n;
      }
      made_.push_back({name, 0, w, args[0].dtype, total});
    } else if (kind == 5) {
      const std::vector<Made> args = Choose(1, true);
      if (args.empty()) return AddSource(i);
      n = NewNode(name, actor, "reduce");
      n->mutable_config()->set_reduce(Pick(std::vector<std::string>{"sum", "mean", "max", "min"}));
      TakeArg(n, args[0]);
      made_.push_back({name, 0, w, args[0].dtype, 1});
    } else if (o_.failures && Chance(0.4)) {
      const std::vector<Made> args = Choose(1, false);
      const std::string fail = AddActor(w, "std.Fail", i);
      v1::Config* c = g_.mutable_actor(g_.actor_size() - 1)->mutable_config();
      c->add_fail_on(Int(0, 5));
      c->add_fail_on(Int(0, 5));
      c->set_message(absl::StrCat("meant to fail at ", name));
      n = NewNode(name, fail, "run");
      TakeArg(n, args[0]);
      made_.push_back({name, 0, w, args[0].dtype, args[0].n});
    } else {
      const std::vector<Made> args = Choose(1, false);
      n = NewNode(name, actor, "peek");
      TakeArg(n, args[0]);
      made_.push_back({name, 0, w, args[0].dtype, 1});
      made_.push_back({name, 1, w, v1::I64, 1});
    }
    if (g_.node_size() > 2 && Chance(0.08)) {
      n->add_after(g_.node(Int(0, g_.node_size() - 2)).name());
    }
  }

  // One member on each of several workers, and one consumer on each of them.
  bool AddCollective(int i) {
    const Made first = Pick(made_);
    if (first.n > 3000) return false;
    std::vector<Made> members;
    std::set<int> used;
    for (const Made& m : made_) {
      if (m.dtype == first.dtype && m.n == first.n && m.node[0] != '#' && used.insert(m.worker).second) members.push_back(m);
    }
    if (members.size() < 2) return false;
    v1::Collective* c = g_.add_collective();
    c->set_name(absl::StrCat("c", i));
    const int size = static_cast<int>(members.size());
    int kind = Int(0, 3);
    if (kind == 2 && first.n % size != 0) kind = 0;
    int64_t n = first.n;
    if (kind == 0) c->set_op(v1::ALL_REDUCE);
    if (kind == 1) {
      c->set_op(v1::ALL_GATHER);
      n *= size;
    }
    if (kind == 2) {
      c->set_op(v1::REDUCE_SCATTER);
      n /= size;
    }
    if (kind == 3) {
      c->set_op(v1::BROADCAST);
      c->set_root(Pick(members).node);
    }
    if (kind == 0 || kind == 2) c->set_reduce(Pick(std::vector<v1::ReduceOp>{v1::SUM, v1::MAX, v1::MIN}));
    for (const Made& m : members) {
      v1::Collective::Member* p = c->add_member();
      p->set_node(m.node);
      p->set_output(m.output);
      read_.insert({m.node, m.output});
    }
    for (const Made& m : members) {
      for (const auto& [actor, w] : math_) {
        if (w != m.worker) continue;
        const std::string name = absl::StrCat("n", i, ".", w);
        v1::Node* node = NewNode(name, actor, "identity");
        TakeArg(node, {absl::StrCat("#", c->name()), 0, w, first.dtype, n});
        made_.push_back({name, 0, w, first.dtype, n});
        break;
      }
    }
    return true;
  }

  void AddOutputs() {
    int i = 0;
    for (const Made& m : made_) {
      if (read_.count({m.node, m.output}) != 0) continue;
      v1::Output* o = g_.add_output();
      o->set_name(absl::StrCat("out", i++));
      o->set_node(m.node);
      o->set_output(m.output);
    }
    if (i == 0) {
      v1::Output* o = g_.add_output();
      o->set_name("out0");
      o->set_node(made_.back().node);
      o->set_output(made_.back().output);
    }
  }

  std::mt19937_64 rng_;
  const RandomGraphOptions& o_;
  v1::Graph g_;
  int workers_ = 0;
  bool input_taken_ = false;
  std::vector<std::pair<std::string, int>> math_;
  std::vector<Made> made_;
  std::set<std::pair<std::string, int>> read_;
  std::set<std::string> overridden_;
};

}  // namespace

v1::Graph RandomGraph(uint64_t seed, const RandomGraphOptions& options) { return Generator(seed, options).Make(seed); }

}  // namespace weft
