#include "client/cli/inputs.h"

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/args.h"
#include "common/base/status_macros.h"
#include "common/tensor/literal.h"

namespace weft {
namespace {

absl::StatusOr<Spec> SpecOf(const v1::Input& input) {
  v1::TensorSpec proto;
  proto.set_dtype(input.dtype());
  proto.set_shape(input.shape());
  return SpecFromProto(proto);
}

absl::Status Prefixed(const std::string& prefix, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(prefix, ": ", std::string(status.message())));
}

absl::Status CheckFits(const std::string& what, DType dtype, const Dims& dims, const Spec& spec) {
  if (dtype == spec.dtype && spec.shape.Admits(dims)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", DTypeName(dtype), DimsToString(dims), ", the graph takes ", spec.ToString()));
}

}  // namespace

absl::StatusOr<InputSet> InputSet::Load(const std::vector<std::string>& inputs, const std::vector<std::string>& inputs_each,
                                        std::optional<int64_t> repeat, const std::vector<v1::Input>& wanted) {
  InputSet set;
  std::vector<std::string> problems;
  const auto note = [&problems](const absl::Status& status) {
    if (!status.ok()) problems.emplace_back(status.message());
    return status.ok();
  };
  std::map<std::string, Spec> specs;
  std::vector<std::string> names;
  for (const v1::Input& input : wanted) {
    names.push_back(input.name());
    auto spec = SpecOf(input);
    if (note(spec.ok() ? absl::OkStatus() : Prefixed(absl::StrCat("input \"", input.name(), "\""), spec.status()))) specs[input.name()] = *spec;
  }
  std::set<std::string> given;
  // The name and value of an assignment whose name the graph has, once.
  const auto take = [&](const std::string& option, const std::string& text) -> std::optional<std::pair<std::string, std::string>> {
    auto split = SplitAssignment(option, text);
    if (!note(split.status())) return std::nullopt;
    if (specs.count(split->first) == 0) {
      problems.push_back(absl::StrCat(option, " ", split->first, ": the graph has no such input; it has ",
                                      names.empty() ? std::string("none") : absl::StrJoin(names, ", ")));
      return std::nullopt;
    }
    if (!given.insert(split->first).second) {
      problems.push_back(absl::StrCat(option, " ", split->first, ": given twice"));
      return std::nullopt;
    }
    return *split;
  };

  for (const std::string& text : inputs) {
    const auto named = take("--input", text);
    if (!named) continue;
    const auto& [name, value] = *named;
    const std::string what = absl::StrCat("--input ", name);
    const bool file = absl::EndsWith(value, ".npy");
    auto tensor = file ? ReadNpy(value) : ParseLiteral(value, specs[name]);
    if (!note(tensor.ok() ? absl::OkStatus() : Prefixed(what, tensor.status()))) continue;
    if (note(CheckFits(file ? absl::StrCat(what, ": ", value) : what, tensor->dtype(), tensor->dims(), specs[name]))) {
      set.same_[name] = *tensor;
    }
  }

  std::optional<int64_t> slices;
  std::string slices_of;
  for (const std::string& text : inputs_each) {
    const auto named = take("--input-each", text);
    if (!named) continue;
    const auto& [name, path] = *named;
    const std::string what = absl::StrCat("--input-each ", name);
    auto file = NpyFile::Open(path);
    if (!note(file.ok() ? absl::OkStatus() : Prefixed(what, file.status()))) continue;
    auto n = (*file)->Slices();
    if (!note(n.ok() ? absl::OkStatus() : Prefixed(what, n.status()))) continue;
    const NpyHeader& header = (*file)->header();
    if (!note(CheckFits(absl::StrCat(what, ": a slice of ", path), header.dtype, Dims(header.dims.begin() + 1, header.dims.end()),
                        specs[name]))) {
      continue;
    }
    if (slices && *slices != *n) {
      problems.push_back(absl::StrCat(what, ": ", path, " has ", *n, " slices, ", slices_of, " has ", *slices));
    }
    slices = *n;
    slices_of = path;
    set.each_[name] = *std::move(file);
  }
  for (const std::string& name : names) {
    if (given.count(name) == 0 && specs.count(name) > 0) {
      problems.push_back(absl::StrCat("input \"", name, "\" (", specs[name].ToString(), ") is not given: add --input ", name,
                                      "=FILE.npy, --input ", name, "=LITERAL or --input-each ", name, "=FILE.npy"));
    }
  }
  if (slices && repeat && *repeat > *slices) {
    problems.push_back(absl::StrCat("--repeat ", *repeat, " is more than the ", *slices, " slices of ", slices_of));
  }
  if (!problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  set.executions_ = repeat ? *repeat : slices.value_or(1);
  return set;
}

absl::StatusOr<std::map<std::string, Tensor>> InputSet::For(int64_t i) {
  std::map<std::string, Tensor> tensors = same_;
  for (auto& [name, file] : each_) {
    WEFT_ASSIGN_OR_RETURN(tensors[name], file->Slice(i));
  }
  return tensors;
}

}  // namespace weft
