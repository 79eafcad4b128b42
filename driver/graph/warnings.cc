#include "driver/graph/warnings.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace weft {

std::vector<std::string> GraphWarnings(const v1::Graph& graph) {
  std::vector<std::string> warnings;
  if (graph.options().restart() == v1::ON_REJOIN) {
    warnings.push_back(
        "options.restart is ON_REJOIN, which this version does not act on: after a worker's death the graph stays failed; compile it again");
  }
  std::set<std::string> taken;
  for (const v1::Node& node : graph.node()) {
    for (const v1::Arg& arg : node.arg()) {
      if (!arg.input().empty()) taken.insert(arg.input());
    }
  }
  for (const v1::Input& input : graph.input()) {
    if (taken.count(input.name()) != 0) continue;
    warnings.push_back(absl::StrCat("input \"", input.name(),
                                    "\" is taken by no node, so a session does not ask for it; take it with arg { input: \"", input.name(),
                                    "\" }, or remove it"));
  }
  return warnings;
}

}  // namespace weft
