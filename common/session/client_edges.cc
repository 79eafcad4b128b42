#include "common/session/client_edges.h"

#include <map>

#include "absl/strings/str_cat.h"

namespace weft {

std::string PlaceKey(const std::string& attempt, const std::string& writer, const std::string& reader) {
  return absl::StrCat(attempt, "/", writer, "/", reader);
}

absl::StatusOr<ClientEdges> FindClientEdges(const Plan& plan) {
  ClientEdges found;
  found.spec.graph = plan.graph;
  if (plan.options.max_in_flight() > 0) found.spec.max_in_flight = plan.options.max_in_flight();
  if (plan.options.submit() != v1::SUBMIT_MODE_UNSPECIFIED) found.spec.submit = plan.options.submit();
  if (plan.options.has_submit_timeout_s()) found.spec.submit_timeout_s = plan.options.submit_timeout_s();
  std::map<std::string, int> inputs, outputs;
  for (const PlanEdge& e : plan.edges) {
    if (e.control) continue;
    if (e.src_worker == kClient) {
      const auto [it, added] = inputs.emplace(e.src, static_cast<int>(found.spec.inputs.size()));
      if (added) found.spec.inputs.push_back({e.src, e.spec});
      if (!(found.spec.inputs[it->second].spec == e.spec)) {
        return absl::InternalError(absl::StrCat(EdgeName(plan, e), " carries ", e.spec.ToString(), ", another edge of input ", e.src,
                                                " carries ", found.spec.inputs[it->second].spec.ToString()));
      }
      found.inputs.push_back({&e, it->second});
    }
    if (e.dst_worker == kClient) {
      if (!outputs.emplace(e.dst, static_cast<int>(found.spec.outputs.size())).second) {
        return absl::InternalError(absl::StrCat(EdgeName(plan, e), ": output ", e.dst, " has two edges"));
      }
      found.outputs.push_back({&e, static_cast<int>(found.spec.outputs.size())});
      found.spec.outputs.push_back({e.dst, e.spec});
    }
  }
  return found;
}

absl::Status CheckInputs(const SessionSpec& spec, const std::vector<Tensor>& tensors) {
  if (tensors.size() != spec.inputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("graph ", spec.graph, " takes ", spec.inputs.size(), " inputs, ", tensors.size(), " were given"));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SessionValueSpec& want = spec.inputs[i];
    if (!tensors[i].defined()) return absl::InvalidArgumentError(absl::StrCat("input ", want.name, " is missing"));
    if (tensors[i].dtype() != want.spec.dtype || !want.spec.shape.Admits(tensors[i].dims())) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", want.name, " is ", tensors[i].ToString(), ", the graph declares ", want.spec.ToString()));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
