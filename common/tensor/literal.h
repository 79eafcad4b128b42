#pragma once

// Tensors as text: literals on a command line, and the JSON form.

#include <string>

#include "absl/status/statusor.h"
#include "common/tensor/shape.h"
#include "common/tensor/tensor.h"
#include "nlohmann/json.hpp"

namespace weft {

// "3", "[1, 2.5]", "[[1, 2], [3, 4]]", "[]" (no elements). Elements are numbers, inf, -inf, nan (also in double quotes), and for
// BOOL true and false. The dtype is the spec's; the shape is what the brackets say and must be admitted by the spec. A literal
// without brackets fills every element of a static shape, be it one or many; shapes with `?` need brackets. Numbers are rounded to
// a floating dtype; one that a dtype cannot hold (300 in I8, 1.5 in I32, 1e6 in F16) is an error.
// InvalidArgument says what is wrong, at which character.
absl::StatusOr<Tensor> ParseLiteral(const std::string& text, const Spec& spec);

// {"dtype": "F32", "shape": [2, 2], "data": [[1, 2], [3, "nan"]]}: data is nested as the shape says; a tensor of shape [] is a bare
// element, one without elements an empty list. Floats are written with as few digits as give the same value back; "inf", "-inf" and "nan" are strings (the sign and
// payload of a NaN are lost). BOOL is true and false. Host tensors only.
nlohmann::json TensorToJson(const Tensor& tensor);

// Takes what TensorToJson makes; data may also be a flat list. Checks as for literals. InvalidArgument names the field.
absl::StatusOr<Tensor> TensorFromJson(const nlohmann::json& json);

}  // namespace weft
