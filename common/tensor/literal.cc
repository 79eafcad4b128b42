#include "common/tensor/literal.h"

#include <cstring>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/element.h"

namespace weft {
namespace {

struct Word {
  std::string text;
  size_t at;
};

absl::Status At(size_t at, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("literal, character ", at + 1, ": ", why));
}

// Splits nested brackets into their elements in order and the dims; no recursion. `bare` when there were no brackets.
absl::Status Split(const std::string& text, std::vector<Word>* words, Dims* dims, bool* bare) {
  Dims count;            // elements so far of each open bracket
  bool expect = true;    // an element or a '[' may come
  bool closed = false;   // the outermost bracket was closed
  bool empty = false;    // right after '['
  int leaf_depth = -1;   // brackets around numbers
  *bare = false;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (absl::ascii_isspace(c)) {
      ++i;
      continue;
    }
    if (closed) return At(i, "something follows the end");
    if (c == '[') {
      if (!expect) return At(i, "a ',' is missing");
      if (count.size() == kMaxRank) return At(i, absl::StrCat("more than ", kMaxRank, " brackets within each other"));
      if (leaf_depth >= 0 && static_cast<int>(count.size()) >= leaf_depth) return At(i, "a list where others have a number");
      if (!count.empty()) ++count.back();
      count.push_back(0);
      if (dims->size() < count.size()) dims->push_back(-1);
      empty = true;
      ++i;
    } else if (c == ']') {
      if (count.empty()) return At(i, "a ']' without its '['");
      if (expect && !empty) return At(i, "an element is missing after ','");
      // No list below this one was seen: it is a list of numbers, if only of none.
      const int depth = static_cast<int>(count.size());
      if (count.back() == 0) {
        if (leaf_depth >= 0 && leaf_depth != depth) return At(i, "an empty list where others have elements");
        leaf_depth = depth;
      }
      int64_t& d = (*dims)[depth - 1];
      if (d >= 0 && d != count.back()) {
        return At(i, absl::StrCat("a list of ", count.back(), " where others of its depth have ", d, " elements"));
      }
      d = count.back();
      count.pop_back();
      closed = count.empty();
      expect = false;
      empty = false;
      ++i;
    } else if (c == ',') {
      if (count.empty() || expect) return At(i, "a ',' without an element before it");
      expect = true;
      empty = false;
      ++i;
    } else {
      if (!expect) return At(i, "a ',' is missing");
      const int depth = static_cast<int>(count.size());
      if (leaf_depth >= 0 && leaf_depth != depth) return At(i, "a number where others have a list");
      leaf_depth = depth;
      size_t end = i;
      if (c == '"') {
        end = text.find('"', i + 1);
        if (end == std::string::npos) return At(i, "a quote is not closed");
        words->push_back({text.substr(i + 1, end - i - 1), i});
        ++end;
      } else {
        while (end < text.size() && !absl::ascii_isspace(text[end]) && std::strchr("[],\"", text[end]) == nullptr) ++end;
        words->push_back({text.substr(i, end - i), i});
      }
      if (count.empty()) {
        *bare = true;
        closed = true;
      } else {
        ++count.back();
      }
      expect = false;
      empty = false;
      i = end;
    }
  }
  if (!closed) return At(text.size(), count.empty() ? "a number or a list is missing" : "a ']' is missing");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tensor> ParseLiteral(const std::string& text, const Spec& spec) {
  std::vector<Word> words;
  Dims dims;
  bool bare = false;
  WEFT_RETURN_IF_ERROR(Split(text, &words, &dims, &bare));
  if (bare) {
    if (!spec.shape.IsStatic()) {
      return absl::InvalidArgumentError(absl::StrCat("literal: a single number fills static shapes only; for ", spec.ToString(),
                                                     " write its elements in brackets"));
    }
    dims = spec.shape.MaxDims();
  } else if (!spec.shape.Admits(dims)) {
    return absl::InvalidArgumentError(
        absl::StrCat("literal: its shape is ", DimsToString(dims), "; ", spec.ToString(), " is expected"));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor t, Tensor::OnHost(spec.dtype, dims));
  if (bare) {
    WEFT_ASSIGN_OR_RETURN(const Tensor one, Tensor::OnHost(spec.dtype, {}));
    const absl::Status s = StoreText(one, 0, words[0].text);
    if (!s.ok()) return At(words[0].at, std::string(s.message()));
    const size_t size = SizeOf(spec.dtype);
    for (int64_t i = 0; i < t.elements(); ++i) std::memcpy(t.as<char>() + i * size, one.data(), size);
    return t;
  }
  for (size_t i = 0; i < words.size(); ++i) {
    const absl::Status s = StoreText(t, static_cast<int64_t>(i), words[i].text);
    if (!s.ok()) return At(words[i].at, std::string(s.message()));
  }
  return t;
}

}  // namespace weft
