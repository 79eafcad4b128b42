#include "common/tensor/tensor.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

template <typename T>
T Saturate(double v) {
  if (std::isnan(v)) return 0;
  if (v <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (v >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(v);
}

}  // namespace

Tensor::Tensor(DType dtype, Dims dims, void* data, std::shared_ptr<void> owner)
    : dtype_(dtype), dims_(std::move(dims)), elements_(1), data_(data), owner_(std::move(owner)) {
  for (const int64_t d : dims_) elements_ *= d;
}

absl::StatusOr<Tensor> Tensor::OnHost(DType dtype, const Dims& dims) {
  absl::StatusOr<int64_t> n = NumElements(dims);
  if (!n.ok()) return n.status();
  if (SizeOf(dtype) == 0) return absl::InvalidArgumentError("a tensor needs a dtype");
  const size_t bytes = (static_cast<size_t>(*n) * SizeOf(dtype) + 63) / 64 * 64;
  if (bytes > kMaxTensorBytes) return absl::InvalidArgumentError(absl::StrCat(DimsToString(dims), " is larger than 1 TiB"));
  void* p = std::aligned_alloc(64, bytes == 0 ? 64 : bytes);
  if (p == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for a tensor of ", bytes, " bytes"));
  return Tensor(dtype, dims, p, std::shared_ptr<void>(p, std::free));
}

std::string Tensor::ToString() const { return DTypeName(dtype_) + DimsToString(dims_); }

bool BitEqual(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.dims() == b.dims() &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

double ElementAsDouble(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case v1::F16:
      return HalfToFloat(t.as<uint16_t>()[i]);
    case v1::BF16:
      return BFloat16ToFloat(t.as<uint16_t>()[i]);
    case v1::F32:
      return t.as<float>()[i];
    case v1::F64:
      return t.as<double>()[i];
    case v1::I8:
      return t.as<int8_t>()[i];
    case v1::U8:
    case v1::BOOL:
      return t.as<uint8_t>()[i];
    case v1::I16:
      return t.as<int16_t>()[i];
    case v1::I32:
      return t.as<int32_t>()[i];
    case v1::I64:
      return static_cast<double>(t.as<int64_t>()[i]);
    default:
      return 0;
  }
}

void SetElementFromDouble(const Tensor& t, int64_t i, double v) {
  switch (t.dtype()) {
    case v1::F16:
      t.as<uint16_t>()[i] = FloatToHalf(static_cast<float>(v));
      break;
    case v1::BF16:
      t.as<uint16_t>()[i] = FloatToBFloat16(static_cast<float>(v));
      break;
    case v1::F32:
      t.as<float>()[i] = static_cast<float>(v);
      break;
    case v1::F64:
      t.as<double>()[i] = v;
      break;
    case v1::I8:
      t.as<int8_t>()[i] = Saturate<int8_t>(v);
      break;
    case v1::U8:
      t.as<uint8_t>()[i] = Saturate<uint8_t>(v);
      break;
    case v1::BOOL:
      t.as<uint8_t>()[i] = v != 0;
      break;
    case v1::I16:
      t.as<int16_t>()[i] = Saturate<int16_t>(v);
      break;
    case v1::I32:
      t.as<int32_t>()[i] = Saturate<int32_t>(v);
      break;
    case v1::I64:
      t.as<int64_t>()[i] = Saturate<int64_t>(v);
      break;
    default:
      break;
  }
}

}  // namespace weft
