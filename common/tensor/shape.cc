#include "common/tensor/shape.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

// False on overflow past the largest tensor.
bool Multiply(int64_t* product, int64_t factor) {
  if (factor == 0) {
    *product = 0;
    return true;
  }
  if (*product > static_cast<int64_t>(kMaxTensorBytes) / factor) return false;
  *product *= factor;
  return true;
}

}  // namespace

absl::StatusOr<int64_t> NumElements(const Dims& dims) {
  if (dims.size() > kMaxRank) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", dims.size(), ": at most ", kMaxRank));
  }
  int64_t n = 1;
  for (const int64_t d : dims) {
    if (d < 0) return absl::InvalidArgumentError(absl::StrCat("negative dimension in ", DimsToString(dims)));
  }
  for (const int64_t d : dims) {
    if (d == 0) return 0;
  }
  for (const int64_t d : dims) {
    if (!Multiply(&n, d)) {
      return absl::InvalidArgumentError(absl::StrCat("shape ", DimsToString(dims), " is larger than 2^40 elements"));
    }
  }
  return n;
}

std::string DimsToString(const Dims& dims) { return absl::StrCat("[", absl::StrJoin(dims, ", "), "]"); }

absl::StatusOr<Shape> Shape::Parse(const std::string& text) {
  const auto bad = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shape \"", text.substr(0, 80), "\": ", why, "; write like \"[4, ?<=1024, ?]\", \"[]\" for a scalar"));
  };
  const std::string t(absl::StripAsciiWhitespace(text));
  if (t.size() < 2 || t.front() != '[' || t.back() != ']') return bad("not in brackets");
  const std::string inner(absl::StripAsciiWhitespace(t.substr(1, t.size() - 2)));
  Shape shape;
  if (inner.empty()) return shape;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(inner, ','))) {
    std::string p(absl::StripAsciiWhitespace(part));
    Dim dim;
    if (p == "?") {
      dim.kind = Dim::kDynamic;
    } else {
      if (p.size() > 2 && p.compare(0, 3, "?<=") == 0) {
        dim.kind = Dim::kBounded;
        p = std::string(absl::StripAsciiWhitespace(p.substr(3)));
      }
      if (p.empty() || !absl::ascii_isdigit(p[0]) || !absl::SimpleAtoi(p, &dim.size) || dim.size < 0) {
        return bad(absl::StrCat("dimension ", shape.dims.size(), " (\"", p.substr(0, 24), "\") is not a whole number >= 0"));
      }
      if (static_cast<uint64_t>(dim.size) > kMaxTensorBytes) {
        return bad(absl::StrCat("dimension ", shape.dims.size(), " is larger than 2^40"));
      }
    }
    shape.dims.push_back(dim);
    if (shape.dims.size() > kMaxRank) return bad(absl::StrCat("more than ", kMaxRank, " dimensions"));
  }
  int64_t n = 1;
  bool zero = false;
  for (const Dim& d : shape.dims) zero |= d.kind != Dim::kDynamic && d.size == 0;
  for (const Dim& d : shape.dims) {
    if (!zero && d.kind != Dim::kDynamic && !Multiply(&n, d.size)) return bad("more than 2^40 elements");
  }
  return shape;
}

Shape Shape::Of(const Dims& dims) {
  Shape s;
  for (const int64_t d : dims) s.dims.push_back({Dim::kFixed, d});
  return s;
}

std::string Shape::ToString() const {
  return absl::StrCat("[", absl::StrJoin(dims, ", ", [](std::string* out, const Dim& d) {
                        if (d.kind == Dim::kDynamic) {
                          out->append("?");
                        } else {
                          absl::StrAppend(out, d.kind == Dim::kBounded ? "?<=" : "", d.size);
                        }
                      }),
                      "]");
}

bool Shape::IsStatic() const {
  for (const Dim& d : dims) {
    if (d.kind != Dim::kFixed) return false;
  }
  return true;
}

bool Shape::HasDynamic() const {
  for (const Dim& d : dims) {
    if (d.kind == Dim::kDynamic) return true;
  }
  return false;
}

std::optional<int64_t> Shape::MaxElements() const {
  if (HasDynamic()) return std::nullopt;
  int64_t n = 1;
  // Parse bounds the product, but with a size of 0 not that of the others.
  for (const Dim& d : dims) {
    if (d.size == 0) return 0;
  }
  for (const Dim& d : dims) n *= d.size;
  return n;
}

bool Shape::Admits(const Dims& d) const {
  if (d.size() != dims.size()) return false;
  for (size_t i = 0; i < d.size(); ++i) {
    if (d[i] < 0) return false;
    if (dims[i].kind == Dim::kFixed && d[i] != dims[i].size) return false;
    if (dims[i].kind == Dim::kBounded && d[i] > dims[i].size) return false;
  }
  return true;
}

Dims Shape::MaxDims() const {
  Dims out;
  for (const Dim& d : dims) out.push_back(d.kind == Dim::kDynamic ? 0 : d.size);
  return out;
}

std::string Spec::ToString() const { return DTypeName(dtype) + shape.ToString(); }

uint64_t Spec::MaxBytes() const {
  const std::optional<int64_t> n = shape.MaxElements();
  return n.has_value() ? static_cast<uint64_t>(*n) * SizeOf(dtype) : 0;
}

absl::StatusOr<Spec> SpecFromProto(const v1::TensorSpec& proto) {
  Spec spec;
  spec.dtype = proto.dtype();
  if (SizeOf(spec.dtype) == 0) {
    return absl::InvalidArgumentError(
        "dtype is missing or unknown: one of F16, BF16, F32, F64, I8, U8, I16, I32, I64, BOOL");
  }
  absl::StatusOr<Shape> shape = Shape::Parse(proto.shape());
  if (!shape.ok()) return shape.status();
  spec.shape = *std::move(shape);
  if (!spec.shape.HasDynamic() && spec.MaxBytes() > kMaxTensorBytes) {
    return absl::InvalidArgumentError(absl::StrCat(spec.ToString(), " is larger than 1 TiB"));
  }
  return spec;
}

v1::TensorSpec SpecToProto(const Spec& spec) {
  v1::TensorSpec proto;
  proto.set_dtype(spec.dtype);
  proto.set_shape(spec.shape.ToString());
  return proto;
}

}  // namespace weft
