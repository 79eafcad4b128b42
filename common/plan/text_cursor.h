#pragma once

// Reading and writing the words of one line of a plan's text form.

#include <charconv>
#include <cstdint>
#include <string>

namespace weft {

// Letters, digits, '_', '-', '.': what stands unquoted.
inline bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

// Appends `text` as a C string literal on one line, all bytes but printable ASCII as \xHH with exactly two digits.
void AppendQuoted(const std::string& text, std::string* out);
// Appends `text` bare when all of it is plain and it is not empty, quoted otherwise.
void AppendName(const std::string& text, std::string* out);
// Shortest text that reads back to the same number, in any locale.
void AppendDouble(double v, std::string* out);

// Walks over one line. After a failed read, error() says what was expected and every further read fails too.
class TextCursor {
 public:
  TextCursor(const char* begin, const char* end) : at_(begin), end_(end) {}

  // True at the end of the line or before a comment.
  bool Done();
  // Skips spaces, then `word` when it stands there as a whole word.
  bool TakeWord(const char* word);
  // As TakeWord, but its absence is an error.
  bool Expect(const char* word);
  // The character directly here, without skipping spaces.
  bool TakeChar(char c);
  bool ExpectChar(char c);
  // A run of plain characters or a quoted string, after spaces.
  bool Name(std::string* out);
  // A quoted string directly here.
  bool Quoted(std::string* out);
  // Everything up to the next space, after spaces.
  bool Word(std::string* out);
  // A whole number directly here or after spaces.
  template <typename T>
  bool Number(T* out) {
    SkipSpaces();
    if (failed()) return false;
    const auto [p, ec] = std::from_chars(at_, end_, *out);
    if (ec != std::errc()) return Fail(ec == std::errc::result_out_of_range ? "a number within range" : "a number");
    at_ = p;
    return true;
  }
  bool Fail(const std::string& expected);

  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }

 private:
  void SkipSpaces() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t')) ++at_;
  }

  const char* at_;
  const char* end_;
  std::string error_;
};

}  // namespace weft
