#include "driver/graph/suggest.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr int kMaxLength = 64;

}  // namespace

int EditDistance(const std::string& a, const std::string& b, int limit) {
  const int n = static_cast<int>(a.size()), m = static_cast<int>(b.size());
  if (n > kMaxLength || m > kMaxLength || std::abs(n - m) > limit) return limit + 1;
  std::array<int, kMaxLength + 1> before_last, last, row;
  for (int j = 0; j <= m; ++j) last[j] = j;
  before_last = last;
  for (int i = 1; i <= n; ++i) {
    row[0] = i;
    int best = i;
    for (int j = 1; j <= m; ++j) {
      const int same = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + same});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
      best = std::min(best, row[j]);
    }
    // A swap reaches two rows back, so the row before must be beyond the limit as well; being one off only costs time.
    if (best > limit + 1) return limit + 1;
    before_last = last;
    last = row;
  }
  return std::min(last[m], limit + 1);
}

std::string Suggester::For(const std::string& unknown, const std::vector<const std::string*>& names) {
  if (unknown.empty() || unknown.size() > kMaxLength) return "";
  int limit = std::min<int>(3, std::max<int>(1, static_cast<int>(unknown.size()) / 3));
  const std::string* best = nullptr;
  for (const std::string* name : names) {
    if (name->empty() || std::abs(static_cast<int>(name->size()) - static_cast<int>(unknown.size())) > limit) continue;
    if (--budget_ < 0) return "";
    const int d = EditDistance(unknown, *name, limit);
    if (d > limit) continue;
    best = name;
    if (d == 0) break;
    limit = d - 1;  // only a closer one replaces it
    if (limit < 1) break;
  }
  return best == nullptr ? "" : absl::StrCat(" (did you mean \"", *best, "\"?)");
}

std::string Suggester::For(const std::string& unknown, const std::vector<std::string>& names) {
  std::vector<const std::string*> pointers;
  for (const std::string& name : names) pointers.push_back(&name);
  return For(unknown, pointers);
}

}  // namespace weft
