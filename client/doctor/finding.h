#pragma once

#include <string>
#include <utility>
#include <vector>

namespace weft {

enum class Verdict {
  kOk,
  kSkipped,  // does not apply to this machine, or could not be looked at; `seen` says why
  kWarn,     // works, but slower or for less than it should
  kFail,     // weft does not work here as asked for
};

// "ok", "skipped", "warn", "fail".
const char* VerdictName(Verdict v);

// One thing that was looked at.
struct Finding {
  std::string name;  // what was looked at, a few words
  Verdict verdict = Verdict::kOk;
  std::string seen;    // with numbers and units
  std::string remedy;  // what to do about it; never empty for kWarn and kFail, empty for kOk
};

inline Finding Ok(std::string name, std::string seen) { return {std::move(name), Verdict::kOk, std::move(seen), ""}; }
inline Finding Skipped(std::string name, std::string why) { return {std::move(name), Verdict::kSkipped, std::move(why), ""}; }
inline Finding Warn(std::string name, std::string seen, std::string remedy) {
  return {std::move(name), Verdict::kWarn, std::move(seen), std::move(remedy)};
}
inline Finding Fail(std::string name, std::string seen, std::string remedy) {
  return {std::move(name), Verdict::kFail, std::move(seen), std::move(remedy)};
}

using Findings = std::vector<Finding>;

// kFail if any is, else kWarn if any is, else kOk.
Verdict Worst(const Findings& findings);

// For people: a line for each, its remedy below it, and a last line that counts them.
std::string ReportText(const Findings& findings);

}  // namespace weft
