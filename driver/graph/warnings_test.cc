#include "driver/graph/warnings.h"

#include <catch2/catch.hpp>

namespace weft {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("warnings: an option that is not acted on, and inputs that nobody takes") {
  v1::Graph g;
  g.add_input()->set_name("x");
  g.add_input()->set_name("bias");
  g.add_node()->add_arg()->set_input("x");
  REQUIRE(GraphWarnings(g).size() == 1);
  CHECK_THAT(GraphWarnings(g)[0], Contains("input \"bias\""));
  g.mutable_options()->set_restart(v1::ON_REJOIN);
  REQUIRE(GraphWarnings(g).size() == 2);
  CHECK_THAT(GraphWarnings(g)[0], Contains("options.restart"));
}

TEST_CASE("warnings: none for a graph that does what it says") {
  v1::Graph g;
  g.add_input()->set_name("x");
  g.add_node()->add_arg()->set_input("x");
  g.mutable_options()->set_restart(v1::NEVER);
  CHECK(GraphWarnings(g).empty());
}

}  // namespace
}  // namespace weft
