#include "driver/graph/error_list.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/classes/config.h"

namespace weft {

void ErrorList::Add(std::string message) {
  ++total_;
  if (kept_.size() >= kKept) return;
  // A parser may quote a token that is as long as the file.
  constexpr size_t kMaxMessage = 4000;
  if (message.size() > kMaxMessage) message = absl::StrCat(message.substr(0, kMaxMessage), "...");
  kept_.push_back(Printable(message));
}

absl::Status ErrorList::ToStatus() const {
  if (total_ == 0) return absl::OkStatus();
  std::string text = absl::StrJoin(kept_, "\n");
  const int64_t more = total_ - static_cast<int64_t>(kept_.size());
  if (more > 0) absl::StrAppend(&text, "\n", more, " more error", more == 1 ? "" : "s");
  return absl::InvalidArgumentError(text);
}

std::string Printable(const std::string& text) {
  const bool utf8 = IsUtf8(text);
  std::string out;
  out.reserve(text.size());
  for (const char ch : text) {
    const auto c = static_cast<unsigned char>(ch);
    if (c < 0x20 || c == 0x7f || (c >= 0x80 && !utf8)) {
      absl::StrAppendFormat(&out, "\\x%02x", c);
    } else {
      out.push_back(ch);
    }
  }
  return out;
}

std::string Quote(const std::string& text) {
  constexpr size_t kMax = 64;
  if (text.size() <= kMax) return absl::StrCat("\"", Printable(text), "\"");
  size_t cut = kMax;
  // Not within a character.
  while (cut > kMax - 4 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;
  return absl::StrCat("\"", Printable(text.substr(0, cut)), "...\"");
}

}  // namespace weft
