#include "driver/schedules/costs.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

constexpr char kExample[] = "such as --cost F=10,I=12,W=7";
// Sums of times stay below this.
constexpr long double kMaxTotal = 1e18L;

struct Scaled {
  std::vector<Ticks> forward, input, weight;
  Ticks hop = 0;
};

// By stage: a single value's share, or the stage's own value.
bool ScaleList(const std::vector<Decimal>& list, int32_t stages, int64_t chunks, int32_t places, int64_t factor, std::vector<Ticks>* out) {
  out->assign(stages, 0);
  for (int32_t s = 0; s < stages; ++s) {
    const bool single = list.size() == 1;
    if (single && s > 0) {
      (*out)[s] = (*out)[0];
      continue;
    }
    // `factor` is a multiple of the denominator, and stays one when the share is taken.
    const int64_t multiplier = single ? factor : factor * chunks;
    if (!Scale(list[single ? 0 : s], places, multiplier, &(*out)[s])) return false;
  }
  return true;
}

// Whole ticks that a pair's factor divides.
void RoundTo(int64_t unit, std::vector<Ticks>* list) {
  for (Ticks& t : *list) t = (t + unit / 2) / unit * unit;
}

long double Total(const Scaled& s, long double microbatches, long double pair) {
  long double per = 0;
  for (size_t i = 0; i < s.forward.size(); ++i) {
    per += static_cast<long double>(s.forward[i]) + s.input[i] + s.weight[i] + 2.0L * s.hop;
  }
  return per * microbatches * std::max<long double>(1, pair);
}

int32_t MostPlaces(const CostSpec& spec) {
  int32_t places = spec.hop.places;
  for (const auto* list : {&spec.forward, &spec.input, &spec.weight}) {
    for (const Decimal& d : *list) places = std::max(places, d.places);
  }
  return places;
}

}  // namespace

absl::StatusOr<CostSpec> ParseCosts(const std::string& text, bool forward_only) {
  CostSpec spec;
  bool seen[4] = {};
  constexpr const char* kKeys[] = {"F", "I", "W", "FB"};
  std::vector<Decimal>* const lists[] = {&spec.forward, &spec.input, &spec.weight};
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ',', absl::SkipWhitespace()))) {
    const size_t eq = part.find('=');
    const std::string key = part.substr(0, eq);
    const size_t k = std::find(std::begin(kKeys), std::end(kKeys), key) - std::begin(kKeys);
    if (eq == std::string::npos || k == 4) {
      return absl::InvalidArgumentError(
          absl::StrCat("--cost: \"", part, "\" is not one of F=, I=, W= (times) or FB= (a factor), ", kExample));
    }
    if (std::exchange(seen[k], true)) return absl::InvalidArgumentError(absl::StrCat("--cost: ", key, " is given twice"));
    const std::string what = absl::StrCat("--cost ", key);
    const std::string value = part.substr(eq + 1);
    if (k == 3) {
      WEFT_ASSIGN_OR_RETURN(spec.pair_factor, ParseDecimal(what, value));
      if (spec.pair_factor.digits <= 0 || ToDouble(spec.pair_factor) > 1000 || spec.pair_factor.places > 9) {
        return absl::InvalidArgumentError(absl::StrCat(
            what, ": ", value,
            " is not a factor above 0 and up to 1000, with at most 9 decimals; 1 means that running F and B at once gains nothing"));
      }
      continue;
    }
    lists[k]->clear();
    for (const std::string& one : std::vector<std::string>(absl::StrSplit(value, ':'))) {
      bool unit = false;
      WEFT_ASSIGN_OR_RETURN(const Decimal d, ParseDuration(what, one, &unit));
      lists[k]->push_back(d);
      spec.has_unit |= unit;
    }
  }
  for (int k = 0; k < 3; ++k) {
    if (seen[k]) continue;
    if (k > 0 && forward_only) {
      *lists[k] = {{0, 0}};
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("--cost: ", kKeys[k], " is missing, ", kExample, " (0 is the smallest that works)"));
  }
  return spec;
}

Ticks PipelineCosts::Of(const PipelineOp& op) const {
  switch (op.pass) {
    case Pass::kForward:
      return forward[op.stage];
    case Pass::kInputGrad:
      return input[op.stage];
    case Pass::kWeightGrad:
      return weight[op.stage];
    case Pass::kBackward:
      return input[op.stage] + weight[op.stage];
    case Pass::kPair:
      break;
  }
  return Pair(op.stage, op.back_stage);
}

Ticks PipelineCosts::PerMicrobatch(bool forward_only) const {
  Ticks sum = 0;
  for (size_t s = 0; s < forward.size(); ++s) sum += forward[s] + (forward_only ? 0 : input[s] + weight[s]);
  return sum;
}

absl::StatusOr<PipelineCosts> ResolveCosts(const CostSpec& spec, int32_t workers, int32_t stages, int32_t microbatches) {
  bool single = false;
  for (const auto& [name, list] : {std::pair{"F", &spec.forward}, {"I", &spec.input}, {"W", &spec.weight}}) {
    single |= list->size() == 1;
    if (list->size() == 1 || list->size() == static_cast<size_t>(stages)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--cost ", name, " has ", list->size(), " values: give one, or one for each of the ", stages, " stages"));
  }
  if (single && stages % workers != 0) {
    return absl::InvalidArgumentError(absl::StrCat(stages, " stages on ", workers,
                                                   " workers have no even share of a worker's cost: give --cost one value for each stage"));
  }
  const int64_t chunks = single ? stages / workers : 1;

  PipelineCosts out;
  int64_t ten = 1;
  for (int32_t i = 0; i < spec.pair_factor.places; ++i) ten *= 10;
  const int64_t common = std::gcd(spec.pair_factor.digits, ten);
  out.pair_numerator = spec.pair_factor.digits / common;
  out.pair_denominator = ten / common;

  const int32_t wanted = MostPlaces(spec);
  for (int32_t places = wanted; places >= 0; --places) {
    Scaled s;
    // In v-th parts of a unit, times the denominator: a single value needs no division to be shared out.
    const int64_t factor = out.pair_denominator;
    if (!ScaleList(spec.forward, stages, chunks, places, factor, &s.forward) ||
        !ScaleList(spec.input, stages, chunks, places, factor, &s.input) ||
        !ScaleList(spec.weight, stages, chunks, places, factor, &s.weight) || !Scale(spec.hop, places, factor * chunks, &s.hop)) {
      continue;
    }
    if (places < wanted) {
      for (auto* list : {&s.forward, &s.input, &s.weight}) RoundTo(out.pair_denominator, list);
    }
    if (Total(s, microbatches, ToDouble(spec.pair_factor)) > kMaxTotal) continue;
    out.forward = std::move(s.forward);
    out.input = std::move(s.input);
    out.weight = std::move(s.weight);
    out.hop = s.hop;
    out.exact = places == wanted;
    out.ticks_per_unit = static_cast<double>(factor) * static_cast<double>(chunks);
    for (int32_t i = 0; i < places; ++i) out.ticks_per_unit *= 10;
    if (out.PerMicrobatch(false) == 0)
      return absl::InvalidArgumentError("--cost: all passes take no time: give at least one that is above 0");
    return out;
  }
  return absl::InvalidArgumentError("--cost: the times are too large to be counted: use a larger unit, or fewer microbatches");
}

}  // namespace weft
