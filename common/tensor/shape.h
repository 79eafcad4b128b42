#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/dtype.h"

namespace weft {

// Dimensions of a tensor that exists; row-major. At most kMaxRank.
using Dims = std::vector<int64_t>;

constexpr int kMaxRank = 8;
// Largest tensor that weft moves: 1 TiB. Keeps every product of sizes far from overflow.
constexpr uint64_t kMaxTensorBytes = uint64_t{1} << 40;

// Number of elements; InvalidArgument for a negative dimension, rank above kMaxRank or more than kMaxTensorBytes elements.
absl::StatusOr<int64_t> NumElements(const Dims& dims);
std::string DimsToString(const Dims& dims);

// What is known of a shape before the tensor exists.
struct Dim {
  enum Kind : uint8_t { kFixed, kBounded, kDynamic };
  Kind kind = kFixed;
  int64_t size = 0;  // kFixed: the size. kBounded: the maximum. kDynamic: unused.

  bool operator==(const Dim& o) const { return kind == o.kind && (kind == kDynamic || size == o.size); }
};

struct Shape {
  std::vector<Dim> dims;

  // "[4, ?<=1024, ?]". InvalidArgument says what is wrong and where.
  static absl::StatusOr<Shape> Parse(const std::string& text);
  static Shape Of(const Dims& dims);

  std::string ToString() const;
  bool IsStatic() const;   // all fixed
  bool HasDynamic() const; // any `?`
  // Elements of the largest admitted tensor; nullopt with a `?`.
  std::optional<int64_t> MaxElements() const;
  // Same rank and each dimension within its bound.
  bool Admits(const Dims& d) const;
  // The dims of a static shape, or each bound of a bounded one; 0 for `?`.
  Dims MaxDims() const;
  bool operator==(const Shape& o) const { return dims == o.dims; }
};

// dtype and shape of a value, before it exists.
struct Spec {
  DType dtype = v1::DTYPE_UNSPECIFIED;
  Shape shape;

  std::string ToString() const;  // "F16[4, ?<=8]"
  // Bytes reserved for one value; 0 with `?` dimensions.
  uint64_t MaxBytes() const;
  bool operator==(const Spec& o) const { return dtype == o.dtype && shape == o.shape; }
};

// InvalidArgument: unknown dtype or a shape that does not parse or is larger than kMaxTensorBytes.
absl::StatusOr<Spec> SpecFromProto(const v1::TensorSpec& proto);
v1::TensorSpec SpecToProto(const Spec& spec);

}  // namespace weft
