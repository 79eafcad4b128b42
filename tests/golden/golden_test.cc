// Plans of a few graphs, compared byte for byte with those kept beside this file: a change of any pass shows here as a readable diff.
// After an intended change, write them anew and look at the diff:
//   bazel build //tests/golden:golden_test && WEFT_UPDATE_GOLDEN=$PWD/tests/golden bazel-bin/tests/golden/golden_test

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <catch2/catch.hpp>

#include "common/classes/signature.h"
#include "common/plan/plan_text.h"
#include "driver/graph/parse.h"
#include "driver/plan/compiler.h"

namespace weft {
namespace {

constexpr char kDirectory[] = "tests/golden/";

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void Compare(const std::string& name) {
  const char* update = std::getenv("WEFT_UPDATE_GOLDEN");
  const std::string directory = update == nullptr ? kDirectory : std::string(update) + "/";
  const auto graph = ParseGraphFile(directory + name + ".textproto");
  INFO(graph.status().ToString());
  REQUIRE(graph.ok());
  const auto plan = Compile(*graph, ClassTable::Std(), ClusterFromGraph(*graph));
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  const std::string text = PlanToText(*plan);
  if (update != nullptr) {
    std::ofstream(directory + name + ".plan", std::ios::binary) << text;
  }
  const std::string kept = ReadAll(directory + name + ".plan");
  CHECK(text == kept);
  const auto back = PlanFromText(kept);
  REQUIRE(back.ok());
  CHECK(HashPlan(*back) == back->hash);
}

TEST_CASE("golden plan: overlap") { Compare("overlap"); }
TEST_CASE("golden plan: crossed") { Compare("crossed"); }
TEST_CASE("golden plan: fanout") { Compare("fanout"); }
TEST_CASE("golden plan: pipeline") { Compare("pipeline"); }

}  // namespace
}  // namespace weft
