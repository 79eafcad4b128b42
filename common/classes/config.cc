#include "common/classes/config.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/tensor/shape.h"

namespace weft {
namespace {

using google::protobuf::FieldDescriptor;

bool Contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

std::string ListOrNone(const std::vector<std::string>& list) {
  return list.empty() ? "none" : absl::StrJoin(list, ", ");
}

}  // namespace

bool IsUtf8(const std::string& text, size_t* bad) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const size_t n = text.size();
  const auto tail = [&](size_t i) { return i < n && (p[i] & 0xc0) == 0x80; };
  for (size_t i = 0; i < n;) {
    const unsigned char c = p[i];
    size_t len = 0;
    if (c < 0x80) {
      len = 1;
    } else if (c >= 0xc2 && c <= 0xdf && tail(i + 1)) {
      len = 2;
    } else if ((c & 0xf0) == 0xe0 && tail(i + 1) && tail(i + 2)) {
      const bool overlong = c == 0xe0 && p[i + 1] < 0xa0;
      const bool surrogate = c == 0xed && p[i + 1] >= 0xa0;
      if (!overlong && !surrogate) len = 3;
    } else if (c >= 0xf0 && c <= 0xf4 && tail(i + 1) && tail(i + 2) && tail(i + 3)) {
      const bool overlong = c == 0xf0 && p[i + 1] < 0x90;
      const bool beyond = c == 0xf4 && p[i + 1] >= 0x90;
      if (!overlong && !beyond) len = 4;
    }
    if (len == 0) {
      if (bad != nullptr) *bad = i;
      return false;
    }
    i += len;
  }
  return true;
}

v1::Config MergeConfig(const v1::Config& actor, const v1::Config& node) {
  v1::Config merged = actor;
  const google::protobuf::Reflection* reflection = node.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(node, &fields);
  if (fields.empty()) return merged;
  for (const FieldDescriptor* field : fields) {
    if (field->is_repeated()) reflection->ClearField(&merged, field);
  }
  merged.MergeFrom(node);
  return merged;
}

std::vector<std::string> ConfigProblems(const ClassSignature& cls, const MethodSignature* method, bool of_node,
                                        const v1::Config& config) {
  std::vector<std::string> problems;
  std::vector<const FieldDescriptor*> fields;
  const google::protobuf::Reflection* reflection = config.GetReflection();
  reflection->ListFields(config, &fields);
  if (fields.empty()) return problems;

  for (const FieldDescriptor* field : fields) {
    const std::string& name = field->name();
    if (!Contains(cls.config_fields, name)) {
      problems.push_back(absl::StrCat("config.", name, " is set, but ", cls.name,
                                      " does not read it (it reads: ", ListOrNone(cls.config_fields), "); remove it"));
      continue;
    }
    if (of_node && Contains(cls.actor_only_fields, name)) {
      problems.push_back(absl::StrCat("config.", name, " cannot be changed by a node, since ", cls.name,
                                      " makes its state from it; set it in the actor's config"));
      continue;
    }
    if (of_node && method != nullptr && method->config_fields.has_value() && !Contains(*method->config_fields, name)) {
      problems.push_back(absl::StrCat("config.", name, " is set, but method ", method->name, " of ", cls.name,
                                      " does not read it (it reads: ", ListOrNone(*method->config_fields),
                                      "); remove it"));
      continue;
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE && !field->is_repeated() &&
        !std::isfinite(reflection->GetDouble(config, field))) {
      problems.push_back(absl::StrCat("config.", name, " is not a finite number; give one"));
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && !field->is_repeated() &&
        !IsUtf8(reflection->GetString(config, field))) {
      problems.push_back(absl::StrCat("config.", name, " is not valid UTF-8"));
    }
  }
  if (config.dtype() != v1::DTYPE_UNSPECIFIED && SizeOf(config.dtype()) == 0) {
    problems.push_back(absl::StrCat("config.dtype ", static_cast<int>(config.dtype()),
                                    " is no dtype; one of F16, BF16, F32, F64, I8, U8, I16, I32, I64, BOOL"));
  }
  if (!config.shape().empty()) {
    if (const auto shape = Shape::Parse(config.shape()); !shape.ok()) {
      problems.push_back(absl::StrCat("config.", std::string(shape.status().message())));
    }
  }
  for (const auto& [key, value] : config.extra()) {
    if (!IsUtf8(key) || !IsUtf8(value)) {
      problems.push_back("config.extra holds a key or value that is not valid UTF-8");
      break;
    }
  }
  if (const size_t bytes = config.ByteSizeLong(); bytes > kMaxConfigBytes) {
    problems.push_back(absl::StrCat("config has ", bytes, " bytes; at most ", kMaxConfigBytes,
                                    " (pass data of that size as a graph input)"));
  }
  return problems;
}

}  // namespace weft
