#pragma once

// Rules that hold for the config of every class, weft's own or not.

#include <cstddef>
#include <string>
#include <vector>

#include "common/classes/signature.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// Largest config of one actor or node, in bytes of its wire form. Data of that size belongs in a graph input.
constexpr size_t kMaxConfigBytes = 64 << 10;

// What is wrong with a config as such, one sentence an entry, each naming the field; empty when nothing is: fields that
// `cls` (and `method`, unless nullptr) does not read, fields of a node that only the actor may set (`of_node`), unknown
// dtypes, shapes that do not parse, non-finite numbers, strings that are not UTF-8, excessive size. Values' ranges are
// the class's check_config.
std::vector<std::string> ConfigProblems(const ClassSignature& cls, const MethodSignature* method, bool of_node,
                                        const v1::Config& config);

// Whether `text` is well-formed UTF-8, without surrogates and overlong forms. `*bad`, unless nullptr, is set to the
// offset of the first byte that is not.
bool IsUtf8(const std::string& text, size_t* bad = nullptr);

}  // namespace weft
