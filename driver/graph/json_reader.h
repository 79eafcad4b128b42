#pragma once

// A pull tokenizer for JSON that knows where it is. Internal to driver/graph.

#include <cstddef>
#include <string>

namespace weft {

struct JsonToken {
  enum Kind {
    kBeginObject,
    kEndObject,
    kBeginArray,
    kEndArray,
    kColon,
    kComma,
    kString,
    kNumber,
    kTrue,
    kFalse,
    kNull,
    kEnd,
    kError
  };
  Kind kind = kEnd;
  std::string text;  // kString: the decoded string. kNumber: as written. kError: what is wrong
  int line = 1;      // where it begins, from 1
  size_t column = 1;
};

// What a token is, for messages: "a string", "',' ".
std::string Describe(const JsonToken& token);

class JsonReader {
 public:
  // `text` must outlive the reader.
  explicit JsonReader(const std::string& text) : text_(text) { Next(); }

  const JsonToken& token() const { return token_; }
  // Reads the next token; after kError or kEnd it stays.
  void Next();

 private:
  void ReadString();
  void ReadNumber();
  void ReadWord();
  bool ReadEscape();
  // -1 when there are not four hex digits.
  int ReadHex4();
  void Fail(const std::string& what);

  const std::string& text_;
  size_t pos_ = 0;
  int line_ = 1;
  size_t line_start_ = 0;
  JsonToken token_;
};

}  // namespace weft
