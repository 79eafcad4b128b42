#include "common/plan/fields_text.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "google/protobuf/descriptor.h"

namespace weft {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string EnumText(const FieldDescriptor* field, int number) {
  const EnumValueDescriptor* value = field->enum_type()->FindValueByNumber(number);
  return value == nullptr ? std::to_string(number) : value->name();
}

// `index` < 0: not a list.
void AppendScalar(const Message& m, const FieldDescriptor* f, int index, std::string* out) {
  const Reflection* r = m.GetReflection();
  const bool one = index < 0;
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      out->append((one ? r->GetBool(m, f) : r->GetRepeatedBool(m, f, index)) ? "true" : "false");
      break;
    case FieldDescriptor::CPPTYPE_INT32:
      out->append(std::to_string(one ? r->GetInt32(m, f) : r->GetRepeatedInt32(m, f, index)));
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      out->append(std::to_string(one ? r->GetInt64(m, f) : r->GetRepeatedInt64(m, f, index)));
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      out->append(std::to_string(one ? r->GetUInt32(m, f) : r->GetRepeatedUInt32(m, f, index)));
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      out->append(std::to_string(one ? r->GetUInt64(m, f) : r->GetRepeatedUInt64(m, f, index)));
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      AppendDouble(one ? r->GetDouble(m, f) : r->GetRepeatedDouble(m, f, index), out);
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:
      AppendDouble(one ? r->GetFloat(m, f) : r->GetRepeatedFloat(m, f, index), out);
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      out->append(EnumText(f, one ? r->GetEnumValue(m, f) : r->GetRepeatedEnumValue(m, f, index)));
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      AppendQuoted(one ? r->GetString(m, f) : r->GetRepeatedString(m, f, index), out);
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;  // handled by the callers
  }
}

void AppendMap(const Message& m, const FieldDescriptor* f, const std::string& name, std::string* out) {
  const Reflection* r = m.GetReflection();
  std::vector<std::pair<std::string, std::string>> entries;
  for (int i = 0; i < r->FieldSize(m, f); ++i) {
    const Message& e = r->GetRepeatedMessage(m, f, i);
    entries.emplace_back(e.GetReflection()->GetString(e, e.GetDescriptor()->map_key()),
                         e.GetReflection()->GetString(e, e.GetDescriptor()->map_value()));
  }
  std::sort(entries.begin(), entries.end());
  for (const auto& [key, value] : entries) {
    out->append(" " + name + "[");
    AppendQuoted(key, out);
    out->append("]=");
    AppendQuoted(value, out);
  }
}

bool IsStringMap(const FieldDescriptor* f) {
  return f->is_map() && f->message_type()->map_key()->cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
         f->message_type()->map_value()->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
}

void AppendFieldsOf(const Message& m, const std::string& prefix, std::string* out) {
  const Reflection* r = m.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  r->ListFields(m, &fields);  // in the order of field numbers
  for (const FieldDescriptor* f : fields) {
    const std::string name = prefix + f->name();
    if (IsStringMap(f)) {
      AppendMap(m, f, name, out);
    } else if (f->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const size_t before = out->size();
      AppendFieldsOf(r->GetMessage(m, f), name + ".", out);
      if (out->size() == before) out->append(" " + name + "={}");
    } else if (f->is_repeated()) {
      out->append(" " + name + "=[");
      for (int i = 0; i < r->FieldSize(m, f); ++i) {
        if (i > 0) out->push_back(',');
        AppendScalar(m, f, i, out);
      }
      out->push_back(']');
    } else {
      out->append(" " + name + "=");
      AppendScalar(m, f, -1, out);
    }
  }
}

template <typename T>
bool Read(TextCursor* c, T* v) {
  return c->Number(v);
}

#define WEFT_READ_NUMBER(TYPE, NAME)                                   \
  {                                                                    \
    TYPE v = 0;                                                        \
    if (!Read(c, &v)) return false;                                    \
    f->is_repeated() ? r->Add##NAME(m, f, v) : r->Set##NAME(m, f, v);  \
    return true;                                                       \
  }

bool ReadScalar(TextCursor* c, const FieldDescriptor* f, Message* m) {
  const Reflection* r = m->GetReflection();
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL: {
      std::string word;
      if (!c->Name(&word)) return false;
      if (word != "true" && word != "false") return c->Fail("true or false for " + f->name());
      f->is_repeated() ? r->AddBool(m, f, word == "true") : r->SetBool(m, f, word == "true");
      return true;
    }
    case FieldDescriptor::CPPTYPE_INT32:
      WEFT_READ_NUMBER(int32_t, Int32)
    case FieldDescriptor::CPPTYPE_INT64:
      WEFT_READ_NUMBER(int64_t, Int64)
    case FieldDescriptor::CPPTYPE_UINT32:
      WEFT_READ_NUMBER(uint32_t, UInt32)
    case FieldDescriptor::CPPTYPE_UINT64:
      WEFT_READ_NUMBER(uint64_t, UInt64)
    case FieldDescriptor::CPPTYPE_DOUBLE:
      WEFT_READ_NUMBER(double, Double)
    case FieldDescriptor::CPPTYPE_FLOAT:
      WEFT_READ_NUMBER(float, Float)
    case FieldDescriptor::CPPTYPE_ENUM: {
      std::string word;
      if (!c->Name(&word)) return false;
      int number = 0;
      const EnumValueDescriptor* value = f->enum_type()->FindValueByName(word);
      if (value != nullptr) {
        number = value->number();
      } else if (const auto [p, ec] = std::from_chars(word.data(), word.data() + word.size(), number);
                 ec != std::errc() || p != word.data() + word.size()) {
        return c->Fail("a value of " + f->enum_type()->name() + " for " + f->name());
      }
      f->is_repeated() ? r->AddEnumValue(m, f, number) : r->SetEnumValue(m, f, number);
      return true;
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string text;
      if (!c->Quoted(&text)) return false;
      f->is_repeated() ? r->AddString(m, f, text) : r->SetString(m, f, text);
      return true;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  return c->Fail("a field that has one value");
}

#undef WEFT_READ_NUMBER

bool ReadMapEntry(TextCursor* c, const FieldDescriptor* f, Message* m) {
  std::string key, value;
  if (!c->ExpectChar('[') || !c->Quoted(&key) || !c->ExpectChar(']') || !c->ExpectChar('=') || !c->Quoted(&value)) return false;
  const Reflection* r = m->GetReflection();
  for (int i = 0; i < r->FieldSize(*m, f); ++i) {
    const Message& e = r->GetRepeatedMessage(*m, f, i);
    if (e.GetReflection()->GetString(e, e.GetDescriptor()->map_key()) == key) return c->Fail("each key once");
  }
  Message* e = r->AddMessage(m, f);
  e->GetReflection()->SetString(e, e->GetDescriptor()->map_key(), key);
  e->GetReflection()->SetString(e, e->GetDescriptor()->map_value(), value);
  return true;
}

bool ReadField(TextCursor* c, const std::string& path, Message* m) {
  const size_t dot = path.find('.');
  const FieldDescriptor* f = m->GetDescriptor()->FindFieldByName(path.substr(0, dot));
  if (f == nullptr) return c->Fail("a field of " + m->GetDescriptor()->name() + " before this, not \"" + path.substr(0, 40) + "\"");
  const Reflection* r = m->GetReflection();
  if (IsStringMap(f)) return dot == std::string::npos ? ReadMapEntry(c, f, m) : c->Fail("no '.' after a map's name");
  if (f->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !f->is_repeated()) {
    if (dot != std::string::npos) return ReadField(c, path.substr(dot + 1), r->MutableMessage(m, f));
    r->MutableMessage(m, f);
    return c->ExpectChar('=') && c->ExpectChar('{') && c->ExpectChar('}');
  }
  if (dot != std::string::npos) return c->Fail("no '.' after the name of a plain field");
  if (f->is_repeated() ? r->FieldSize(*m, f) > 0 : r->HasField(*m, f)) return c->Fail("each field once; " + path + " came before");
  if (!c->ExpectChar('=')) return false;
  if (!f->is_repeated()) return ReadScalar(c, f, m);
  if (!c->ExpectChar('[')) return false;
  do {
    if (!ReadScalar(c, f, m)) return false;
  } while (c->TakeChar(','));
  return c->ExpectChar(']');
}

}  // namespace

void AppendFields(const Message& message, std::string* out) { AppendFieldsOf(message, "", out); }

bool ReadFields(TextCursor* cursor, Message* message) {
  std::string path;
  while (!cursor->Done()) {
    if (!cursor->Name(&path) || !ReadField(cursor, path, message)) return false;
  }
  return !cursor->failed();
}

}  // namespace weft
