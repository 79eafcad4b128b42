#include "client/cli/plan_findings.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/console.h"
#include "common/plan/plan_text.h"
#include "driver/plan/verify.h"

namespace weft {
namespace {

// "V4 these ops ...\n     w0: ..." and so on, one a finding.
std::vector<std::string> SplitFindings(absl::string_view text) {
  std::vector<std::string> out;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!out.empty() && !line.empty() && line[0] == ' ') {
      absl::StrAppend(&out.back(), "\n", line);
    } else {
      out.emplace_back(line);
    }
  }
  if (!out.empty()) out.erase(out.begin());  // "plan of graph ... is refused:"
  return out;
}

// Of a plan that states its hash, and is not what had it.
std::string WrongHash(const Plan& plan) {
  const std::string hash = HashPlan(plan);
  if (plan.hash.empty() || plan.hash == hash) return "";
  return absl::StrCat("HASH the plan states hash ", plan.hash, ", what it says has ", hash, ": after an edit by hand, write \"hash ", hash,
                      "\" or leave the line out");
}

}  // namespace

std::vector<std::string> PlanFindings(const Plan& plan) {
  const absl::Status status = Verify(plan);
  std::vector<std::string> findings = status.ok() ? std::vector<std::string>() : SplitFindings(status.message());
  const std::string hash = WrongHash(plan);
  if (!hash.empty()) findings.push_back(hash);
  return findings;
}

void WarnOfFindings(const std::string& file, const OfflinePlan& offline) {
  if (offline.compiled) return;
  const std::vector<std::string> findings = PlanFindings(offline.plan);
  if (findings.empty()) return;
  Complain(absl::StrCat("warning: ", file, ": workers would refuse this plan: ", findings[0],
                        findings.size() > 1 ? absl::StrCat("\nand ", findings.size() - 1, " more: `weft verify` tells all") : ""));
}

}  // namespace weft
