#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "common/tensor/tensor.h"

namespace weft {

// To standard output, as it is.
void Print(const std::string& text);
// Whether Print was called.
bool HasPrinted();
// Indented, with a newline at the end.
void PrintJson(const nlohmann::ordered_json& json);
// To standard error: "weft: TEXT".
void Complain(const std::string& text);
// Whether all that was printed has reached standard output; Unavailable says why not.
absl::Status FlushOutput();

// Rows as aligned columns; the first row is the heading.
std::string Table(const std::vector<std::vector<std::string>>& rows);

// "F32[2, 3]: 0, 1, 2, 3, 4, 5" with the first elements only.
std::string Summary(const Tensor& tensor);

// Writes a file of that name whole, or leaves what was there. A symbolic link stays one; a device or a pipe is written to. Errors name the
// path.
absl::Status WriteFile(const std::string& path, const std::string& content);

// Whether WriteFile would find the place; leaves nothing there. For before long work.
absl::Status CheckCanWrite(const std::string& path);

}  // namespace weft
