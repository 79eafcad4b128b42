#include "client/cpp/chunks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {

TensorSplitter::TensorSplitter(std::string name, Tensor tensor) : name_(std::move(name)), tensor_(std::move(tensor)) {}

bool TensorSplitter::Next(v1::TensorChunk* chunk) {
  if (done_) return false;
  chunk->Clear();
  chunk->set_name(name_);
  if (offset_ == 0) {
    chunk->set_dtype(tensor_.dtype());
    for (const int64_t d : tensor_.dims()) chunk->add_dim(d);
  }
  const uint64_t total = tensor_.bytes();
  const uint64_t n = std::min(kPieceBytes, total - offset_);
  chunk->set_total_bytes(total);
  chunk->set_offset(offset_);
  if (n > 0) chunk->set_data(tensor_.as<char>() + offset_, n);
  offset_ += n;
  done_ = offset_ == total;
  return true;
}

absl::Status TensorAssembler::Add(const v1::TensorChunk& chunk) {
  const auto bad = [&chunk](const std::string& what) {
    return absl::DataLossError(absl::StrCat("tensor \"", chunk.name(), "\": ", what));
  };
  if (!tensor_.defined()) {
    if (chunk.offset() != 0) return bad(absl::StrCat("its first piece starts at byte ", chunk.offset()));
    if (SizeOf(chunk.dtype()) == 0) return bad(absl::StrCat("unknown element type ", DTypeName(chunk.dtype())));
    const Dims dims(chunk.dim().begin(), chunk.dim().end());
    auto elements = NumElements(dims);
    if (!elements.ok()) return bad(std::string(elements.status().message()));
    const uint64_t bytes = static_cast<uint64_t>(*elements) * SizeOf(chunk.dtype());
    if (bytes > kMaxTensorBytes || bytes != chunk.total_bytes()) {
      return bad(absl::StrCat("says ", chunk.total_bytes(), " bytes for ", DTypeName(chunk.dtype()), DimsToString(dims)));
    }
    WEFT_ASSIGN_OR_RETURN(tensor_, Tensor::OnHost(chunk.dtype(), dims));
  } else if (chunk.offset() != received_) {
    return bad(absl::StrCat("a piece starts at byte ", chunk.offset(), " instead of ", received_));
  }
  if (chunk.data().size() > tensor_.bytes() - received_) return bad("its pieces are longer than the tensor");
  if (!chunk.data().empty()) std::memcpy(tensor_.as<char>() + received_, chunk.data().data(), chunk.data().size());
  received_ += chunk.data().size();
  return absl::OkStatus();
}

}  // namespace weft
