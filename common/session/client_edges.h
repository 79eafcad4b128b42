#pragma once

// The client's place in a plan: which edges begin and end there, and which workers must be told of admissions.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/plan/plan.h"
#include "common/session/session.h"

namespace weft {

// Stands for the client in the names under which peers find each other: "<attempt>/<writer>/<reader>".
constexpr char kClientPlace[] = "@client";
std::string PlaceKey(const std::string& attempt, const std::string& writer, const std::string& reader);

struct ClientEdge {
  const PlanEdge* edge = nullptr;  // in the plan that was given
  int value = 0;                   // index in SessionSpec::inputs or outputs
};

struct ClientEdges {
  SessionSpec spec;
  std::vector<ClientEdge> inputs;   // client -> worker; several may carry one input
  std::vector<ClientEdge> outputs;  // worker -> client; one per output
};

// Of a whole plan, which must outlive the result. Internal when edges of one input disagree, or one output has two edges.
absl::StatusOr<ClientEdges> FindClientEdges(const Plan& plan);

}  // namespace weft
