#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/npy.h"
#include "common/tensor/tensor.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// What --input and --input-each say, ready for each execution.
class InputSet {
 public:
  // `inputs`: NAME=FILE.npy or NAME=LITERAL; `inputs_each`: NAME=FILE.npy. InvalidArgument lists every problem: a name that the graph
  // lacks, one given twice or not at all, a file or literal that does not fit, a `repeat` beyond the slices.
  static absl::StatusOr<InputSet> Load(const std::vector<std::string>& inputs, const std::vector<std::string>& inputs_each,
                                       std::optional<int64_t> repeat, const std::vector<v1::Input>& wanted);

  // How many executions there are.
  int64_t executions() const { return executions_; }

  // Inputs of execution `i`. Errors name the file.
  absl::StatusOr<std::map<std::string, Tensor>> For(int64_t i);

 private:
  std::map<std::string, Tensor> same_;
  std::map<std::string, std::unique_ptr<NpyFile>> each_;
  int64_t executions_ = 1;
};

}  // namespace weft
