#include "driver/schedules/memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

constexpr int64_t kMaxHeld = int64_t{1} << 60;

}  // namespace

absl::StatusOr<MemorySpec> ParseMemory(const std::string& text) {
  MemorySpec spec;
  bool seen[2] = {};
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ',', absl::SkipWhitespace()))) {
    const bool forward = part.rfind("f=", 0) == 0;
    if (!forward && part.rfind("w=", 0) != 0) {
      return absl::InvalidArgumentError(absl::StrCat("--memory: \"", part, "\" is not f= or w=, such as --memory f=64MiB,w=-24MiB"));
    }
    if (std::exchange(seen[forward ? 0 : 1], true))
      return absl::InvalidArgumentError(absl::StrCat("--memory: ", part.substr(0, 1), " is given twice"));
    WEFT_ASSIGN_OR_RETURN((forward ? spec.forward : spec.weight),
                          ParseDecimalBytes(absl::StrCat("--memory ", part.substr(0, 1)), part.substr(2)));
  }
  if (!seen[0] || !seen[1]) {
    return absl::InvalidArgumentError(absl::StrCat("--memory: ", seen[0] ? "w" : "f", " is missing, such as --memory f=64MiB,w=-24MiB"));
  }
  if (spec.forward.digits <= 0) return absl::InvalidArgumentError("--memory f: what F adds must be above 0, the smallest that works is 1");
  if (spec.weight.digits > 0) return absl::InvalidArgumentError("--memory w: what W adds must be 0 or less, since W gives memory back");
  return spec;
}

MemoryUse ActivationUse(int32_t chunks) { return {1, -1, static_cast<double>(chunks)}; }

absl::StatusOr<MemoryUse> ResolveMemory(const MemorySpec& spec, int32_t chunks, int64_t microbatches) {
  // In v-th parts of a byte, so that a stage's share is whole.
  MemoryUse use;
  const int32_t places = std::max(spec.forward.places, spec.weight.places);
  use.per_unit = static_cast<double>(chunks);
  for (int32_t i = 0; i < places; ++i) use.per_unit *= 10;
  const int64_t most = kMaxHeld / std::max<int64_t>(1, 2 * microbatches * chunks);
  if (!Scale(spec.forward, places, 1, &use.forward) || !Scale(spec.weight, places, 1, &use.weight) || use.forward > most ||
      use.weight < -most) {
    return absl::InvalidArgumentError("--memory: the bytes are too many, or have too many decimals, to be counted");
  }
  return use;
}

int64_t CapOf(const MemoryUse& use, const Decimal& limit) {
  // per_unit is chunks * 10^places, exactly.
  __int128 v = static_cast<__int128>(limit.digits) * static_cast<int64_t>(use.per_unit);
  for (int32_t i = 0; i < limit.places; ++i) v = v >= 0 ? v / 10 : (v - 9) / 10;
  return static_cast<int64_t>(std::min<__int128>(v, kMaxHeld));
}

int64_t PeakOf(const std::vector<PipelineOp>& order, const MemoryUse& use) {
  int64_t held = 0, peak = 0;
  for (const PipelineOp& op : order) {
    switch (op.pass) {
      case Pass::kForward:
        held += use.forward;
        break;
      case Pass::kInputGrad:
        held += use.Input();
        break;
      case Pass::kWeightGrad:
        held += use.weight;
        break;
      case Pass::kBackward:
        held -= use.forward;
        break;
      case Pass::kPair:
        peak = std::max(peak, held + use.forward);
        break;
    }
    peak = std::max(peak, held);
  }
  return peak;
}

int64_t SmallestPeak(const MemoryUse& use, int32_t chunks) {
  const int64_t all = use.forward * chunks;
  return std::max(all, all + use.Input());
}

}  // namespace weft
