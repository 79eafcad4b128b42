#include "driver/graph/json_reader.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "driver/graph/error_list.h"

namespace weft {
namespace {

void AppendUtf8(std::string* out, uint32_t c) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xc0 | c >> 6));
    out->push_back(static_cast<char>(0x80 | (c & 0x3f)));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xe0 | c >> 12));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3f)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3f)));
  } else {
    out->push_back(static_cast<char>(0xf0 | c >> 18));
    out->push_back(static_cast<char>(0x80 | (c >> 12 & 0x3f)));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3f)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3f)));
  }
}

}  // namespace

std::string Describe(const JsonToken& token) {
  switch (token.kind) {
    case JsonToken::kBeginObject: return "an object";
    case JsonToken::kEndObject: return "'}'";
    case JsonToken::kBeginArray: return "an array";
    case JsonToken::kEndArray: return "']'";
    case JsonToken::kColon: return "':'";
    case JsonToken::kComma: return "','";
    case JsonToken::kString: return absl::StrCat("the string ", Quote(token.text));
    case JsonToken::kNumber: return absl::StrCat("the number ", token.text.substr(0, 40));
    case JsonToken::kTrue: return "true";
    case JsonToken::kFalse: return "false";
    case JsonToken::kNull: return "null";
    case JsonToken::kEnd: return "the end of the text";
    case JsonToken::kError: return token.text;
  }
  return "?";
}

void JsonReader::Fail(const std::string& what) {
  token_.kind = JsonToken::kError;
  token_.text = what;
  token_.line = line_;
  token_.column = pos_ - line_start_ + 1;
}

void JsonReader::Next() {
  if (token_.kind == JsonToken::kError) return;
  while (pos_ < text_.size()) {
    const char c = text_[pos_];
    if (c == '\n') {
      ++line_;
      line_start_ = pos_ + 1;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      break;
    }
    ++pos_;
  }
  token_.text.clear();
  token_.line = line_;
  token_.column = pos_ - line_start_ + 1;
  if (pos_ >= text_.size()) {
    token_.kind = JsonToken::kEnd;
    return;
  }
  const auto single = [&](JsonToken::Kind kind) {
    token_.kind = kind;
    ++pos_;
  };
  const char c = text_[pos_];
  switch (c) {
    case '{': return single(JsonToken::kBeginObject);
    case '}': return single(JsonToken::kEndObject);
    case '[': return single(JsonToken::kBeginArray);
    case ']': return single(JsonToken::kEndArray);
    case ':': return single(JsonToken::kColon);
    case ',': return single(JsonToken::kComma);
    case '"': return ReadString();
    default: break;
  }
  if (c == '-' || absl::ascii_isdigit(c)) return ReadNumber();
  if (absl::ascii_isalpha(c)) return ReadWord();
  Fail(absl::StrCat("unexpected character ", Quote(std::string(1, c))));
}

void JsonReader::ReadWord() {
  const size_t begin = pos_;
  while (pos_ < text_.size() && absl::ascii_isalnum(text_[pos_])) ++pos_;
  const std::string word = text_.substr(begin, pos_ - begin);
  if (word == "true") {
    token_.kind = JsonToken::kTrue;
  } else if (word == "false") {
    token_.kind = JsonToken::kFalse;
  } else if (word == "null") {
    token_.kind = JsonToken::kNull;
  } else {
    pos_ = begin;
    Fail(absl::StrCat("unknown word ", Quote(word), "; strings stand in double quotes"));
  }
}

void JsonReader::ReadNumber() {
  const size_t begin = pos_;
  const auto digits = [&] {
    const size_t first = pos_;
    while (pos_ < text_.size() && absl::ascii_isdigit(text_[pos_])) ++pos_;
    return pos_ > first;
  };
  if (text_[pos_] == '-') ++pos_;
  if (pos_ + 1 < text_.size() && text_[pos_] == '0' && absl::ascii_isdigit(text_[pos_ + 1])) {
    return Fail("a number does not begin with 0");
  }
  if (!digits()) return Fail("a digit is missing after '-'");
  if (pos_ < text_.size() && text_[pos_] == '.') {
    ++pos_;
    if (!digits()) return Fail("a digit is missing after the decimal point");
  }
  if (pos_ < text_.size() && (text_[pos_] == 'e' || text_[pos_] == 'E')) {
    ++pos_;
    if (pos_ < text_.size() && (text_[pos_] == '+' || text_[pos_] == '-')) ++pos_;
    if (!digits()) return Fail("a digit is missing in the exponent");
  }
  token_.kind = JsonToken::kNumber;
  token_.text = text_.substr(begin, pos_ - begin);
}

void JsonReader::ReadString() {
  ++pos_;
  while (pos_ < text_.size()) {
    // Plain stretches are copied at once.
    const size_t begin = pos_;
    while (pos_ < text_.size() && text_[pos_] != '"' && text_[pos_] != '\\' &&
           static_cast<unsigned char>(text_[pos_]) >= 0x20) {
      ++pos_;
    }
    token_.text.append(text_, begin, pos_ - begin);
    if (pos_ >= text_.size()) break;
    if (text_[pos_] == '"') {
      ++pos_;
      token_.kind = JsonToken::kString;
      return;
    }
    if (text_[pos_] != '\\')
      return Fail("a control character stands within a string; a quote is missing, or write it as \\n or \\u00XX");
    if (!ReadEscape()) return;
  }
  // At its opening quote, where a reader looks for it.
  const int line = token_.line;
  const size_t column = token_.column;
  Fail("this string does not end");
  token_.line = line;
  token_.column = column;
}

int JsonReader::ReadHex4() {
  if (text_.size() - pos_ < 4) return -1;
  int value = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = text_[pos_ + i];
    if (!absl::ascii_isxdigit(c)) return -1;
    value = value * 16 + (absl::ascii_isdigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10);
  }
  pos_ += 4;
  return value;
}

bool JsonReader::ReadEscape() {
  const size_t begin = pos_++;
  const auto fail = [&](const char* what) {
    pos_ = begin;
    Fail(what);
    return false;
  };
  if (pos_ >= text_.size()) return true;  // the caller reports the end
  switch (text_[pos_++]) {
    case '"': token_.text.push_back('"'); return true;
    case '\\': token_.text.push_back('\\'); return true;
    case '/': token_.text.push_back('/'); return true;
    case 'b': token_.text.push_back('\b'); return true;
    case 'f': token_.text.push_back('\f'); return true;
    case 'n': token_.text.push_back('\n'); return true;
    case 'r': token_.text.push_back('\r'); return true;
    case 't': token_.text.push_back('\t'); return true;
    case 'u': break;
    default: return fail("unknown escape; one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
  }
  const int unit = ReadHex4();
  if (unit < 0) return fail("\\u needs four hexadecimal digits");
  auto c = static_cast<uint32_t>(unit);
  if (c >= 0xdc00 && c <= 0xdfff) return fail("the second half of a surrogate pair stands alone");
  if (c >= 0xd800 && c <= 0xdbff) {
    if (text_.compare(pos_, 2, "\\u") != 0) return fail("the first half of a surrogate pair stands alone");
    pos_ += 2;
    const int low = ReadHex4();
    if (low < 0xdc00 || low > 0xdfff) return fail("the first half of a surrogate pair stands alone");
    c = 0x10000 + ((c - 0xd800) << 10) + (static_cast<uint32_t>(low) - 0xdc00);
  }
  AppendUtf8(&token_.text, c);
  return true;
}

}  // namespace weft
