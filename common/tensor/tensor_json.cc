#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/element.h"
#include "common/tensor/literal.h"

namespace weft {
namespace {

using nlohmann::json;

absl::Status Bad(const std::string& why) { return absl::InvalidArgumentError(absl::StrCat("tensor in JSON: ", why)); }

// The double with the fewest digits that rounds to `f` again: 0.1 rather than 0.10000000149011612.
double FewestDigits(float f) {
  char text[64];
  const std::to_chars_result r = std::to_chars(text, text + sizeof(text) - 1, f);
  *r.ptr = '\0';
  const double d = std::strtod(text, nullptr);
  return static_cast<float>(d) == f ? d : f;
}

json ElementToJson(const Tensor& t, int64_t i) {
  if (t.dtype() == v1::I64) return t.as<int64_t>()[i];
  if (t.dtype() == v1::BOOL) return t.as<uint8_t>()[i] != 0;
  const double v = ElementAsDouble(t, i);
  if (!IsFloat(t.dtype())) return static_cast<int64_t>(v);
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  return t.dtype() == v1::F64 ? v : FewestDigits(static_cast<float>(v));
}

absl::Status StoreJson(const Tensor& t, int64_t i, const json& v) {
  if (v.is_boolean()) return StoreText(t, i, v.get<bool>() ? "true" : "false");
  if (v.is_string()) return StoreText(t, i, v.get<std::string>());
  if (v.is_number_unsigned()) {
    const uint64_t u = v.get<uint64_t>();
    return u <= INT64_MAX ? StoreInt(t, i, static_cast<int64_t>(u)) : StoreDouble(t, i, static_cast<double>(u));
  }
  if (v.is_number_integer()) return StoreInt(t, i, v.get<int64_t>());
  if (v.is_number_float()) return StoreDouble(t, i, v.get<double>());
  return absl::InvalidArgumentError("is no number, true, false, \"inf\", \"-inf\" or \"nan\"");
}

absl::Status StoreAt(const Tensor& t, int64_t i, const json& v) {
  const absl::Status s = StoreJson(t, i, v);
  if (s.ok()) return s;
  return Bad(absl::StrCat("data, element ", i, ": ", std::string(s.message())));
}

// Depth is at most kMaxRank.
absl::Status StoreNested(const Tensor& t, size_t axis, const json& v, int64_t* i) {
  if (axis == t.dims().size()) return StoreAt(t, (*i)++, v);
  if (!v.is_array() || static_cast<int64_t>(v.size()) != t.dims()[axis]) {
    return Bad(absl::StrCat("data does not have the shape ", DimsToString(t.dims()), ": near element ", *i, " a list of ",
                            t.dims()[axis], " is expected"));
  }
  for (const json& part : v) WEFT_RETURN_IF_ERROR(StoreNested(t, axis + 1, part, i));
  return absl::OkStatus();
}

}  // namespace

json TensorToJson(const Tensor& tensor) {
  const Dims& dims = tensor.dims();
  json data;
  if (dims.empty()) {
    data = ElementToJson(tensor, 0);
  } else if (tensor.elements() == 0) {
    data = json::array();  // [2^40, 0] would nest without end
  } else {
    // Innermost lists first, then lists of those, axis by axis outwards.
    std::vector<json> level;
    for (int64_t i = 0; i < tensor.elements(); ++i) level.push_back(ElementToJson(tensor, i));
    for (size_t axis = dims.size(); axis-- > 0;) {
      int64_t lists = 1;
      for (size_t a = 0; a < axis; ++a) lists *= dims[a];
      std::vector<json> up;
      size_t from = 0;
      for (int64_t l = 0; l < lists; ++l) {
        json list = json::array();
        for (int64_t k = 0; k < dims[axis]; ++k) list.push_back(std::move(level[from++]));
        up.push_back(std::move(list));
      }
      level = std::move(up);
    }
    data = std::move(level[0]);
  }
  return json{{"dtype", DTypeName(tensor.dtype())}, {"shape", dims}, {"data", std::move(data)}};
}

absl::StatusOr<Tensor> TensorFromJson(const json& j) {
  if (!j.is_object()) return Bad("not an object {dtype, shape, data}");
  for (const auto& [key, value] : j.items()) {
    if (key != "dtype" && key != "shape" && key != "data") return Bad(absl::StrCat("unknown field \"", key.substr(0, 32), "\""));
  }
  if (!j.contains("dtype") || !j["dtype"].is_string()) return Bad("field dtype: a name such as \"F32\" is missing");
  if (!j.contains("shape") || !j["shape"].is_array()) return Bad("field shape: a list of whole numbers is missing");
  if (!j.contains("data")) return Bad("field data is missing");
  const absl::StatusOr<DType> dtype = ParseDType(j["dtype"].get<std::string>());
  if (!dtype.ok()) return Bad(absl::StrCat("field dtype: ", std::string(dtype.status().message())));
  Dims dims;
  for (const json& d : j["shape"]) {
    if (!d.is_number_integer() || (d.is_number_unsigned() && d.get<uint64_t>() > INT64_MAX)) {
      return Bad("field shape: not a list of whole numbers");
    }
    dims.push_back(d.get<int64_t>());
  }
  const absl::StatusOr<int64_t> n = NumElements(dims);
  if (!n.ok()) return Bad(absl::StrCat("field shape: ", std::string(n.status().message())));
  const json& data = j["data"];
  // A shape that the data cannot fill must not make memory be reserved for it.
  const bool flat = data.is_array() && static_cast<int64_t>(data.size()) == *n && (data.empty() || !data[0].is_array());
  if (!dims.empty() && !flat && (!data.is_array() || static_cast<int64_t>(data.size()) != dims[0])) {
    return Bad(absl::StrCat("field data: neither ", *n, " elements nor a list of ", dims[0], " as the shape ", DimsToString(dims), " says"));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor t, Tensor::OnHost(*dtype, dims));
  int64_t i = 0;
  if (flat) {
    for (const json& v : data) WEFT_RETURN_IF_ERROR(StoreAt(t, i++, v));
    return t;
  }
  WEFT_RETURN_IF_ERROR(StoreNested(t, 0, data, &i));
  return t;
}

}  // namespace weft
