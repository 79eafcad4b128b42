#include "driver/graph/json_message.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/reflection.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "driver/graph/json_reader.h"
#include "driver/graph/suggest.h"

namespace weft {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kMaxDepth = 100;

// A whole number as protobuf's JSON admits it: 12, "12", 12.0, 1.2e1. nullopt when it is none or does not fit T.
template <typename T>
std::optional<T> WholeNumber(const std::string& text) {
  T value;
  if (absl::SimpleAtoi(text, &value)) return value;
  double d = 0;
  if (text.find_first_of(".eE") == std::string::npos || !absl::SimpleAtod(text, &d)) return std::nullopt;
  constexpr double kExact = 9007199254740992.0;
  if (d != std::trunc(d) || std::fabs(d) > kExact) return std::nullopt;
  if (d < static_cast<double>(std::numeric_limits<T>::lowest()) ||
      d > static_cast<double>(std::numeric_limits<T>::max())) {
    return std::nullopt;
  }
  return static_cast<T>(d);
}

// One value into a singular or a repeated field.
template <typename T>
void Put(Message* message, const FieldDescriptor* field, T value,
         void (Reflection::*set)(Message*, const FieldDescriptor*, T) const,
         void (Reflection::*add)(Message*, const FieldDescriptor*, T) const) {
  const Reflection* r = message->GetReflection();
  (r->*(field->is_repeated() ? add : set))(message, field, value);
}

void PutString(Message* message, const FieldDescriptor* field, std::string value) {
  const Reflection* r = message->GetReflection();
  if (field->is_repeated()) {
    r->AddString(message, field, std::move(value));
  } else {
    r->SetString(message, field, std::move(value));
  }
}

class Converter {
 public:
  Converter(const std::string& name, const std::string& text, ErrorList* errors)
      : name_(name), reader_(text), errors_(errors) {}

  void Run(Message* message) {
    if (!Object(message, "", 0)) return;
    if (reader_.token().kind != JsonToken::kEnd) {
      Syntax(absl::StrCat("the outermost object ends before this; found ", Describe(reader_.token())));
    }
  }

 private:
  const JsonToken& token() const { return reader_.token(); }

  void ErrorAt(int line, size_t column, const std::string& what) {
    errors_->Add(absl::StrCat(name_, ":", line, ":", column, ": ", what));
  }
  void Error(const std::string& what) { ErrorAt(token().line, token().column, what); }

  // Nothing after a syntax error can be trusted. All functions below return false after one.
  bool Syntax(const std::string& what) {
    Error(token().kind == JsonToken::kError ? token().text : what);
    return false;
  }
  bool Expect(JsonToken::Kind kind, const char* what) {
    if (token().kind != kind) return Syntax(absl::StrCat("expected ", what, ", found ", Describe(token())));
    reader_.Next();
    return true;
  }

  // Steps over a value of which an error has been reported.
  bool Skip(int depth) {
    if (depth > kMaxDepth) return Syntax(absl::StrCat("nested deeper than ", kMaxDepth));
    switch (token().kind) {
      case JsonToken::kBeginObject: return Members([&](const JsonToken&) { return Skip(depth + 1); });
      case JsonToken::kBeginArray: return Elements([&](int) { return Skip(depth + 1); });
      case JsonToken::kString:
      case JsonToken::kNumber:
      case JsonToken::kTrue:
      case JsonToken::kFalse:
      case JsonToken::kNull: reader_.Next(); return true;
      default: return Syntax(absl::StrCat("expected a value, found ", Describe(token())));
    }
  }

  // Calls value(key) at each member's value, which it consumes.
  template <typename F>
  bool Members(F value) {
    if (!Expect(JsonToken::kBeginObject, "'{'")) return false;
    if (token().kind == JsonToken::kEndObject) {
      reader_.Next();
      return true;
    }
    while (true) {
      if (token().kind != JsonToken::kString) {
        return Syntax(absl::StrCat("expected a field's name in double quotes, found ", Describe(token())));
      }
      const JsonToken key = token();
      reader_.Next();
      if (!Expect(JsonToken::kColon, "':'") || !value(key)) return false;
      if (token().kind == JsonToken::kEndObject) {
        reader_.Next();
        return true;
      }
      if (!Expect(JsonToken::kComma, "',' or '}'")) return false;
    }
  }

  template <typename F>
  bool Elements(F value) {
    if (!Expect(JsonToken::kBeginArray, "'['")) return false;
    if (token().kind == JsonToken::kEndArray) {
      reader_.Next();
      return true;
    }
    for (int i = 0;; ++i) {
      if (!value(i)) return false;
      if (token().kind == JsonToken::kEndArray) {
        reader_.Next();
        return true;
      }
      if (!Expect(JsonToken::kComma, "',' or ']'")) return false;
    }
  }

  bool Object(Message* message, const std::string& path, int depth) {
    if (depth > kMaxDepth) return Syntax(absl::StrCat("nested deeper than ", kMaxDepth));
    const Descriptor* type = message->GetDescriptor();
    std::set<int> seen;
    return Members([&](const JsonToken& key) {
      const FieldDescriptor* field = type->FindFieldByName(key.text);
      if (field == nullptr) field = type->FindFieldByCamelcaseName(key.text);
      if (field == nullptr) {
        std::vector<std::string> names;
        for (int i = 0; i < type->field_count(); ++i) names.push_back(type->field(i)->name());
        ErrorAt(key.line, key.column,
                absl::StrCat(path.empty() ? absl::StrCat("the ", absl::AsciiStrToLower(message->GetDescriptor()->name())) : path, " has no field ", Quote(key.text),
                             suggest_.For(key.text, names)));
        return Skip(depth + 1);
      }
      const std::string at = path.empty() ? field->name() : absl::StrCat(path, ".", field->name());
      if (!seen.insert(field->number()).second) {
        ErrorAt(key.line, key.column, absl::StrCat(at, " is given twice; keep one"));
        return Skip(depth + 1);
      }
      if (token().kind == JsonToken::kNull) {
        reader_.Next();
        return true;
      }
      if (field->is_map()) return Map(message, field, at, depth);
      if (!field->is_repeated()) return Value(message, field, at, depth);
      if (token().kind != JsonToken::kBeginArray) {
        Error(absl::StrCat(at, " is a list: write [...], found ", Describe(token())));
        return Skip(depth + 1);
      }
      return Elements([&](int i) { return Value(message, field, absl::StrCat(at, "[", i, "]"), depth); });
    });
  }

  bool Map(Message* message, const FieldDescriptor* field, const std::string& path, int depth) {
    const FieldDescriptor* key_field = field->message_type()->map_key();
    const FieldDescriptor* value_field = field->message_type()->map_value();
    if (token().kind != JsonToken::kBeginObject || key_field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
      Error(absl::StrCat(path, " maps names to values: write {\"name\": ...}, found ", Describe(token())));
      return Skip(depth + 1);
    }
    std::set<std::string> seen;
    return Members([&](const JsonToken& key) {
      const std::string at = absl::StrCat(path, "[", Quote(key.text), "]");
      if (!seen.insert(key.text).second) {
        ErrorAt(key.line, key.column, absl::StrCat(at, " is given twice; keep one"));
        return Skip(depth + 1);
      }
      Message* entry = message->GetReflection()->AddMessage(message, field);
      PutString(entry, key_field, key.text);
      return Value(entry, value_field, at, depth + 1);
    });
  }

  bool Value(Message* message, const FieldDescriptor* field, const std::string& path, int depth) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (token().kind != JsonToken::kBeginObject) return Wrong(path, "an object {...}", depth);
      const Reflection* r = message->GetReflection();
      Message* inner = field->is_repeated() ? r->AddMessage(message, field) : r->MutableMessage(message, field);
      return Object(inner, path, depth + 1);
    }
    const char* expected = Scalar(message, field);
    if (expected == nullptr) {
      reader_.Next();
      return true;
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      const EnumDescriptor* type = field->enum_type();
      std::vector<std::string> names;
      std::string list;
      for (int i = 0; i < type->value_count(); ++i) {
        if (type->value(i)->number() == 0) continue;
        names.push_back(type->value(i)->name());
        absl::StrAppend(&list, list.empty() ? "" : ", ", names.back());
      }
      const std::string hint = token().kind == JsonToken::kString ? suggest_.For(token().text, names) : "";
      return Wrong(path, absl::StrCat("one of ", list), depth, hint);
    }
    return Wrong(path, expected, depth);
  }

  bool Wrong(const std::string& path, const std::string& expected, int depth, const std::string& hint = "") {
    const bool value = token().kind == JsonToken::kBeginObject || token().kind == JsonToken::kBeginArray ||
                       token().kind >= JsonToken::kString;
    if (value && token().kind != JsonToken::kEnd && token().kind != JsonToken::kError) {
      Error(absl::StrCat(path, " takes ", expected, ", found ", Describe(token()), hint));
    }
    return Skip(depth + 1);
  }

  // Puts the token into a field that is no message. nullptr on success, else what the field takes.
  const char* Scalar(Message* message, const FieldDescriptor* field) {
    const JsonToken& t = token();
    const bool text = t.kind == JsonToken::kString;
    const bool number = t.kind == JsonToken::kNumber || text;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return Whole<int32_t>(number, message, field, &Reflection::SetInt32, &Reflection::AddInt32,
                              "a whole number from -2147483648 to 2147483647");
      case FieldDescriptor::CPPTYPE_INT64:
        return Whole<int64_t>(number, message, field, &Reflection::SetInt64, &Reflection::AddInt64,
                              "a whole number of 64 bits");
      case FieldDescriptor::CPPTYPE_UINT32:
        return Whole<uint32_t>(number, message, field, &Reflection::SetUInt32, &Reflection::AddUInt32,
                               "a whole number from 0 to 4294967295");
      case FieldDescriptor::CPPTYPE_UINT64:
        return Whole<uint64_t>(number, message, field, &Reflection::SetUInt64, &Reflection::AddUInt64,
                               "a whole number from 0 to 18446744073709551615");
      case FieldDescriptor::CPPTYPE_FLOAT:
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        double d = 0;
        if (text && (t.text == "NaN" || t.text == "Infinity" || t.text == "-Infinity")) {
          d = t.text == "NaN" ? std::numeric_limits<double>::quiet_NaN()
                              : (t.text[0] == '-' ? -1 : 1) * std::numeric_limits<double>::infinity();
        } else if (!number || !absl::SimpleAtod(t.text, &d) || !std::isfinite(d)) {
          return "a number";
        }
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
          Put<float>(message, field, static_cast<float>(d), &Reflection::SetFloat, &Reflection::AddFloat);
        } else {
          Put<double>(message, field, d, &Reflection::SetDouble, &Reflection::AddDouble);
        }
        return nullptr;
      }
      case FieldDescriptor::CPPTYPE_BOOL:
        if (t.kind != JsonToken::kTrue && t.kind != JsonToken::kFalse) return "true or false";
        Put<bool>(message, field, t.kind == JsonToken::kTrue, &Reflection::SetBool, &Reflection::AddBool);
        return nullptr;
      case FieldDescriptor::CPPTYPE_STRING: {
        if (!text) return "a string";
        std::string value = t.text;
        if (field->type() == FieldDescriptor::TYPE_BYTES && !absl::Base64Unescape(t.text, &value))
          return "bytes in base64";
        PutString(message, field, std::move(value));
        return nullptr;
      }
      case FieldDescriptor::CPPTYPE_ENUM: {
        const EnumValueDescriptor* value = nullptr;
        if (text) value = field->enum_type()->FindValueByName(t.text);
        if (t.kind == JsonToken::kNumber) {
          const std::optional<int32_t> n = WholeNumber<int32_t>(t.text);
          if (n.has_value()) value = field->enum_type()->FindValueByNumber(*n);
        }
        if (value == nullptr) return "";
        Put<const EnumValueDescriptor*>(message, field, value, &Reflection::SetEnum, &Reflection::AddEnum);
        return nullptr;
      }
      case FieldDescriptor::CPPTYPE_MESSAGE: break;
    }
    return "another kind of value";
  }

  template <typename T, typename Set, typename Add>
  const char* Whole(bool number, Message* message, const FieldDescriptor* field, Set set, Add add,
                    const char* expected) {
    const std::optional<T> value = number ? WholeNumber<T>(token().text) : std::nullopt;
    if (!value.has_value()) return expected;
    Put<T>(message, field, *value, set, add);
    return nullptr;
  }

  const std::string& name_;
  JsonReader reader_;
  ErrorList* const errors_;
  Suggester suggest_;
};

}  // namespace

void ParseJsonMessage(const std::string& name, const std::string& text, Message* message, ErrorList* errors) {
  Converter(name, text, errors).Run(message);
}

}  // namespace weft
