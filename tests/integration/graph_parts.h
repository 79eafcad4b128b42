#pragma once

// What tests put graphs together of.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// Fails the case with the status's words.
void Need(const absl::Status& s);

v1::Actor* AddActor(v1::Graph* g, const std::string& name, const std::string& cls, const std::string& worker);
v1::Node* AddNode(v1::Graph* g, const std::string& name, const std::string& actor, const std::string& method, const std::vector<std::string>& args = {});
void Carry(v1::Graph* g, const std::string& from, const std::string& to, v1::Transport transport);
void Give(v1::Graph* g, const std::string& name, const std::string& node);
// A std.Source of F32 whose elements are the execution's number.
v1::Actor* AddSource(v1::Graph* g, const std::string& name, const std::string& worker, const std::string& shape);

}  // namespace weft
