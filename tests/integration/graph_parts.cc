#include "tests/integration/graph_parts.h"

#include <catch2/catch.hpp>

namespace weft {

void Need(const absl::Status& s) {
  INFO(s.message());
  REQUIRE(s.ok());
}

v1::Actor* AddActor(v1::Graph* g, const std::string& name, const std::string& cls, const std::string& worker) {
  v1::Actor* a = g->add_actor();
  a->set_name(name);
  a->set_class_(cls);
  a->set_worker(worker);
  return a;
}

v1::Node* AddNode(v1::Graph* g, const std::string& name, const std::string& actor, const std::string& method, const std::vector<std::string>& args) {
  v1::Node* n = g->add_node();
  n->set_name(name);
  n->set_actor(actor);
  n->set_method(method);
  for (const std::string& a : args) n->add_arg()->set_node(a);
  return n;
}

void Carry(v1::Graph* g, const std::string& from, const std::string& to, v1::Transport transport) {
  v1::Edge* e = g->add_edge();
  e->set_from(from);
  e->set_to(to);
  e->set_transport(transport);
}

void Give(v1::Graph* g, const std::string& name, const std::string& node) {
  v1::Output* o = g->add_output();
  o->set_name(name);
  o->set_node(node);
}

v1::Actor* AddSource(v1::Graph* g, const std::string& name, const std::string& worker, const std::string& shape) {
  v1::Actor* a = AddActor(g, name, "std.Source", worker);
  a->mutable_config()->set_dtype(v1::F32);
  a->mutable_config()->set_shape(shape);
  a->mutable_config()->set_fill("execution");
  return a;
}

}  // namespace weft
