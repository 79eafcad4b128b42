#include "common/plan/text_cursor.h"

#include <cstring>

namespace weft {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

void AppendQuoted(const std::string& text, std::string* out) {
  static const char kHex[] = "0123456789abcdef";
  out->push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (c >= 0x20 && c < 0x7f) {
      out->push_back(c);
    } else {
      out->append("\\x");
      out->push_back(kHex[static_cast<unsigned char>(c) >> 4]);
      out->push_back(kHex[static_cast<unsigned char>(c) & 15]);
    }
  }
  out->push_back('"');
}

void AppendName(const std::string& text, std::string* out) {
  bool plain = !text.empty();
  for (const char c : text) plain &= IsPlain(c);
  if (plain) {
    out->append(text);
  } else {
    AppendQuoted(text, out);
  }
}

void AppendDouble(double v, std::string* out) {
  char buffer[32];
  const auto [end, ec] = std::to_chars(buffer, buffer + sizeof buffer, v);
  out->append(buffer, end);
}

bool TextCursor::Done() {
  SkipSpaces();
  return failed() || at_ == end_ || *at_ == '#';
}

bool TextCursor::TakeWord(const char* word) {
  if (failed()) return false;
  SkipSpaces();
  const size_t n = std::strlen(word);
  if (static_cast<size_t>(end_ - at_) < n || std::memcmp(at_, word, n) != 0) return false;
  if (at_ + n < end_ && at_[n] != ' ' && at_[n] != '\t') return false;
  at_ += n;
  return true;
}

bool TextCursor::Expect(const char* word) { return TakeWord(word) || Fail(std::string("\"") + word + "\""); }

bool TextCursor::TakeChar(char c) {
  if (failed() || at_ == end_ || *at_ != c) return false;
  ++at_;
  return true;
}

bool TextCursor::ExpectChar(char c) { return TakeChar(c) || Fail(std::string("'") + c + "'"); }

bool TextCursor::Name(std::string* out) {
  if (failed()) return false;
  SkipSpaces();
  if (at_ < end_ && *at_ == '"') return Quoted(out);
  const char* start = at_;
  while (at_ < end_ && IsPlain(*at_)) ++at_;
  if (at_ == start) return Fail("a name");
  out->assign(start, at_);
  return true;
}

bool TextCursor::Quoted(std::string* out) {
  if (!ExpectChar('"')) return false;
  out->clear();
  while (at_ < end_ && *at_ != '"') {
    if (*at_ != '\\') {
      out->push_back(*at_++);
      continue;
    }
    ++at_;
    if (at_ < end_ && (*at_ == '"' || *at_ == '\\')) {
      out->push_back(*at_++);
    } else if (end_ - at_ >= 3 && *at_ == 'x' && HexDigit(at_[1]) >= 0 && HexDigit(at_[2]) >= 0) {
      out->push_back(static_cast<char>(HexDigit(at_[1]) * 16 + HexDigit(at_[2])));
      at_ += 3;
    } else {
      return Fail("\\\", \\\\ or \\xHH");
    }
  }
  return ExpectChar('"');
}

bool TextCursor::Word(std::string* out) {
  if (failed()) return false;
  SkipSpaces();
  const char* start = at_;
  while (at_ < end_ && *at_ != ' ' && *at_ != '\t') ++at_;
  if (at_ == start) return Fail("a word");
  out->assign(start, at_);
  return true;
}

bool TextCursor::Fail(const std::string& expected) {
  if (failed()) return false;
  const size_t left = end_ - at_;
  error_ = "expected " + expected;
  if (left == 0) {
    error_ += " at the end of the line";
  } else {
    std::string found;
    AppendQuoted(std::string(at_, left < 24 ? left : 24), &found);
    error_ += ", found " + found;
  }
  return false;
}

}  // namespace weft
