#include "common/tensor/element.h"

#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

template <typename T>
bool Fits(int64_t v) {
  return v >= static_cast<int64_t>(std::numeric_limits<T>::min()) && v <= static_cast<int64_t>(std::numeric_limits<T>::max());
}

absl::Status DoesNotFit(const std::string& text, DType dtype) {
  return absl::InvalidArgumentError(absl::StrCat(text, " does not fit into ", DTypeName(dtype)));
}

}  // namespace

absl::Status StoreInt(const Tensor& t, int64_t i, int64_t v) {
  bool fits = true;
  switch (t.dtype()) {
    case v1::I8:
      if ((fits = Fits<int8_t>(v))) t.as<int8_t>()[i] = static_cast<int8_t>(v);
      break;
    case v1::U8:
      if ((fits = Fits<uint8_t>(v))) t.as<uint8_t>()[i] = static_cast<uint8_t>(v);
      break;
    case v1::I16:
      if ((fits = Fits<int16_t>(v))) t.as<int16_t>()[i] = static_cast<int16_t>(v);
      break;
    case v1::I32:
      if ((fits = Fits<int32_t>(v))) t.as<int32_t>()[i] = static_cast<int32_t>(v);
      break;
    case v1::I64:
      t.as<int64_t>()[i] = v;
      break;
    case v1::BOOL:
      if ((fits = v == 0 || v == 1)) t.as<uint8_t>()[i] = static_cast<uint8_t>(v);
      break;
    default:
      return StoreDouble(t, i, static_cast<double>(v));
  }
  return fits ? absl::OkStatus() : DoesNotFit(absl::StrCat(v), t.dtype());
}

absl::Status StoreDouble(const Tensor& t, int64_t i, double v) {
  if (!IsFloat(t.dtype())) {
    // 2^63 itself is a double and does not fit; all whole doubles below do.
    if (!(v >= -9223372036854775808.0 && v < 9223372036854775808.0) || v != std::trunc(v)) {
      return DoesNotFit(absl::StrCat(v), t.dtype());
    }
    return StoreInt(t, i, static_cast<int64_t>(v));
  }
  if (t.dtype() != v1::F64 && std::isfinite(v) && std::fabs(v) > std::numeric_limits<float>::max()) {
    return DoesNotFit(absl::StrCat(v), t.dtype());
  }
  SetElementFromDouble(t, i, v);
  if (std::isfinite(v) && !std::isfinite(ElementAsDouble(t, i))) return DoesNotFit(absl::StrCat(v), t.dtype());
  return absl::OkStatus();
}

absl::Status StoreText(const Tensor& t, int64_t i, const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  if (lower == "true" || lower == "false") {
    if (t.dtype() != v1::BOOL) {
      return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is no number; true and false are for BOOL only"));
    }
    t.as<uint8_t>()[i] = lower == "true";
    return absl::OkStatus();
  }
  int64_t whole = 0;
  if (absl::SimpleAtoi(text, &whole)) return StoreInt(t, i, whole);
  double v = 0;
  // Hexadecimal and the like are not numbers here, though strtod knows them.
  const bool words = lower == "inf" || lower == "+inf" || lower == "-inf" || lower == "infinity" || lower == "+infinity" ||
                     lower == "-infinity" || lower == "nan";
  const bool digits = text.find_first_not_of("+-.0123456789eE") == std::string::npos;
  if ((!words && !digits) || !absl::SimpleAtod(text, &v)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text.substr(0, 32), "\" is no number"));
  }
  if (!words && !std::isfinite(v)) return DoesNotFit(text.substr(0, 32), t.dtype());
  return StoreDouble(t, i, v);
}

}  // namespace weft
