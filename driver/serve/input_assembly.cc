#include "driver/serve/input_assembly.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

constexpr size_t kMaxPieceBytes = 1 << 20;

}  // namespace

void InputAssembly::Add(const v1::TensorChunk& chunk) {
  if (!problem_.ok()) return;
  Part* part = nullptr;
  problem_ = Check(chunk, &part);
  if (!problem_.ok()) {
    parts_.assign(parts_.size(), Part());  // of no use any more
    bytes_ = 0;
    return;
  }
  if (!chunk.data().empty()) {
    std::memcpy(static_cast<char*>(part->tensor.data()) + chunk.offset(), chunk.data().data(), chunk.data().size());
  }
  part->received += chunk.data().size();
}

absl::Status InputAssembly::Check(const v1::TensorChunk& chunk, Part** found) {
  size_t index = 0;
  while (index < spec_->inputs.size() && spec_->inputs[index].name != chunk.name()) ++index;
  if (index == spec_->inputs.size()) {
    std::vector<std::string> names;
    for (const SessionValueSpec& v : spec_->inputs) names.push_back(v.name);
    return absl::InvalidArgumentError(absl::StrCat("graph ", spec_->graph, " has no input \"", chunk.name(), "\"; it has ",
                                                   names.empty() ? std::string("none") : absl::StrJoin(names, ", ")));
  }
  const SessionValueSpec& want = spec_->inputs[index];
  Part& part = parts_[index];
  *found = &part;
  const std::string what = absl::StrCat("input ", want.name);
  if (chunk.data().size() > kMaxPieceBytes) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": a piece has ", chunk.data().size(), " bytes, at most 1 MiB"));
  }
  if (chunk.offset() == 0 && part.begun && (part.received > 0 || part.tensor.bytes() == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is given twice"));
  }
  if (chunk.offset() != part.received || (chunk.offset() > 0 && !part.begun)) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": a piece for offset ", chunk.offset(), " came where ", part.received,
                                                   " was due: pieces come in order and without gaps"));
  }
  if (!part.begun) {
    const Dims dims(chunk.dim().begin(), chunk.dim().end());
    absl::StatusOr<int64_t> elements = NumElements(dims);
    if (!elements.ok()) return absl::InvalidArgumentError(absl::StrCat(what, ": ", std::string(elements.status().message())));
    if (chunk.dtype() != want.spec.dtype || !want.spec.shape.Admits(dims)) {
      return absl::InvalidArgumentError(absl::StrCat(what, " is ", DTypeName(chunk.dtype()), DimsToString(dims), ", the graph declares ",
                                                     want.spec.ToString()));
    }
    const uint64_t bytes = static_cast<uint64_t>(*elements) * SizeOf(chunk.dtype());
    if (chunk.total_bytes() != bytes) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": total_bytes is ", chunk.total_bytes(), ", its dims make ", bytes));
    }
    if (want.spec.shape.HasDynamic() && bytes > kMaxDynamicBytes) {
      return absl::InvalidArgumentError(absl::StrCat(what, " has ", bytes, " bytes, more than the 4 GiB of a dynamic input"));
    }
    WEFT_ASSIGN_OR_RETURN(part.tensor, Tensor::OnHost(chunk.dtype(), dims));
    part.begun = true;
    bytes_ += bytes;
  }
  if (chunk.data().size() > part.tensor.bytes() - part.received) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": a piece reaches to byte ", part.received + chunk.data().size(), " of ",
                                                   part.tensor.bytes()));
  }
  if (chunk.data().empty() && part.tensor.bytes() > 0) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": an empty piece"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> InputAssembly::Finish() {
  WEFT_RETURN_IF_ERROR(problem_);
  std::vector<Tensor> tensors;
  std::vector<std::string> problems;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (!part.begun) {
      problems.push_back(absl::StrCat("input ", spec_->inputs[i].name, " (", spec_->inputs[i].spec.ToString(), ") is missing"));
    } else if (part.received != part.tensor.bytes()) {
      problems.push_back(absl::StrCat("input ", spec_->inputs[i].name, " ends after ", part.received, " of ", part.tensor.bytes(), " bytes"));
    }
    tensors.push_back(part.tensor);
  }
  if (!problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  return tensors;
}

}  // namespace weft
