#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/tensor/tensor.h"
#include "weft/v1/tensor.pb.h"

namespace weft {

// Bytes of data in one TensorChunk, and of a graph or plan in one message.
constexpr uint64_t kPieceBytes = 1 << 20;

// Cuts a host tensor into the chunks of its stream form. Holds a share of the tensor.
class TensorSplitter {
 public:
  TensorSplitter(std::string name, Tensor tensor);
  // Fills the next chunk; false when there is none left.
  bool Next(v1::TensorChunk* chunk);

 private:
  const std::string name_;
  const Tensor tensor_;
  uint64_t offset_ = 0;
  bool done_ = false;
};

// Puts the chunks of one tensor together.
class TensorAssembler {
 public:
  // DataLoss when the chunk does not continue what came before, or contradicts itself; names the tensor. ResourceExhausted without memory.
  absl::Status Add(const v1::TensorChunk& chunk);
  bool complete() const { return tensor_.defined() && received_ == tensor_.bytes(); }
  // Pre: complete().
  const Tensor& tensor() const { return tensor_; }

 private:
  Tensor tensor_;
  uint64_t received_ = 0;
};

}  // namespace weft
