#include "client/doctor/finding.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

std::string Padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string Count(const Findings& findings, Verdict v, const char* one, const char* many) {
  const auto n = std::count_if(findings.begin(), findings.end(), [v](const Finding& f) { return f.verdict == v; });
  return absl::StrCat(n, " ", n == 1 ? one : many);
}

}  // namespace

const char* VerdictName(Verdict v) {
  switch (v) {
    case Verdict::kOk: return "ok";
    case Verdict::kSkipped: return "skipped";
    case Verdict::kWarn: return "warn";
    case Verdict::kFail: return "fail";
  }
  return "";
}

Verdict Worst(const Findings& findings) {
  Verdict worst = Verdict::kOk;
  for (const Finding& f : findings) {
    if (f.verdict != Verdict::kSkipped) worst = std::max(worst, f.verdict);
  }
  return worst;
}

std::string ReportText(const Findings& findings) {
  size_t width = 0;
  for (const Finding& f : findings) width = std::max(width, f.name.size());
  std::string out;
  for (const Finding& f : findings) {
    absl::StrAppend(&out, Padded(VerdictName(f.verdict), 9), Padded(f.name, width + 2), f.seen, "\n");
    if (!f.remedy.empty()) absl::StrAppend(&out, std::string(9, ' '), "do: ", f.remedy, "\n");
  }
  absl::StrAppend(&out, Count(findings, Verdict::kOk, "ok", "ok"), ", ", Count(findings, Verdict::kWarn, "warning", "warnings"), ", ",
                  Count(findings, Verdict::kFail, "failure", "failures"), ", ", Count(findings, Verdict::kSkipped, "skipped", "skipped"),
                  "\n");
  return out;
}

}  // namespace weft
