#include "common/classes/mlp_stage.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/classes/infer.h"
#include "common/classes/std_signatures.h"
#include "common/tensor/dtype.h"

namespace weft {
namespace {

constexpr int64_t kMaxWidth = int64_t{1} << 31;
constexpr int64_t kMaxRows = int64_t{1} << 31;
constexpr int64_t kMaxMicrobatches = 1 << 20;
constexpr int kMaxLayers = 4096;

}  // namespace

int64_t MlpStage::parameters() const {
  int64_t n = 0;
  for (int64_t l = 0; l < layers(); ++l) n += widths[l + 1] * widths[l] + widths[l + 1];
  return n;
}

int64_t MlpStage::slot_elements() const {
  int64_t per_row = 0;
  for (const int64_t w : widths) per_row += w;
  for (int64_t l = 1; l < layers(); ++l) per_row += widths[l];
  return per_row * rows;
}

absl::StatusOr<MlpStage> ReadMlpStage(const v1::Config& config) {
  std::string text;
  const auto bad = [&text](const auto&... parts) { absl::StrAppend(&text, text.empty() ? "" : "; ", parts...); };
  const auto in_range = [&](const char* field, int64_t v, int64_t lo, int64_t hi) {
    if (v >= lo && v <= hi) return true;
    bad("config.", field, " is ", v == 0 ? "missing" : absl::StrCat(v), "; set it to ", lo, " to ", hi);
    return false;
  };
  MlpStage s;
  s.dtype = config.dtype() == v1::DTYPE_UNSPECIFIED ? v1::F32 : config.dtype();
  // The halves are for CUDA devices, as std.Linear's.
  if (!IsFloat(s.dtype))
    bad("config.dtype ", DTypeName(s.dtype), " is not F32 or F64, for every device, nor F16 or BF16, for CUDA devices");
  bool sizes = in_range("rows", config.rows(), 1, kMaxRows);
  if (config.widths_size() < 2 || config.widths_size() > kMaxLayers + 1) {
    sizes = false;
    bad("config.widths has ", config.widths_size(), " numbers; give the features of the input and of each of 1 to ", kMaxLayers,
        " layers' outputs");
  }
  for (const int64_t w : config.widths()) {
    if (!in_range("widths", w, 1, kMaxWidth)) sizes = false;
    s.widths.push_back(w);
  }
  s.rows = config.rows();
  if (config.microbatches() != 0) in_range("microbatches", config.microbatches(), 1, kMaxMicrobatches);
  s.microbatches = std::max<int64_t>(1, config.microbatches());
  if (config.slots() != 0) in_range("slots", config.slots(), 1, kMaxMicrobatches);
  s.slots = config.slots() > 0 ? config.slots() : s.microbatches;
  if (config.first_layer() < 0) bad("config.first_layer is ", config.first_layer(), "; layers count from 0");
  s.first_layer = config.first_layer();
  if (!config.loss().empty() && config.loss() != "mse")
    bad("config.loss \"", config.loss().substr(0, 40), "\" is not mse; leave it out but for the last stage");
  s.loss = !config.loss().empty();
  s.learning_rate = config.learning_rate();
  if (!std::isfinite(s.learning_rate)) bad("config.learning_rate is not a finite number");
  const std::string& a = config.activation();
  if (!a.empty() && a != "none" && a != "relu" && a != "tanh" && a != "sigmoid") {
    bad("config.activation \"", a.substr(0, 40), "\" is not one of none, relu, tanh, sigmoid");
  }
  if (const absl::Status p = CheckPrecision(config); !p.ok()) bad(std::string(p.message()));
  if (sizes && IsFloat(s.dtype)) {
    // In double, since the product may be anything.
    double parameters = 0, per_row = 0;
    for (size_t l = 0; l < s.widths.size(); ++l) {
      per_row += 2.0 * static_cast<double>(s.widths[l]);
      if (l > 0) parameters += static_cast<double>(s.widths[l]) * (static_cast<double>(s.widths[l - 1]) + 1);
    }
    const double bytes =
        (parameters + per_row * static_cast<double>(s.rows) * static_cast<double>(s.slots)) * static_cast<double>(SizeOf(s.dtype));
    if (bytes > 1099511627776.0)
      bad("config: the stage's weights and activations are larger than 1 TiB; use more stages, fewer rows or slots");
  }
  if (config.has_microbatch() && (config.microbatch() < 0 || config.microbatch() >= s.microbatches)) {
    bad("config.microbatch is ", config.microbatch(), "; config.microbatches allows 0 to ", s.microbatches - 1);
  }
  if (config.has_slot() && (config.slot() < 0 || config.slot() >= s.slots)) {
    bad("config.slot is ", config.slot(), "; config.slots allows 0 to ", s.slots - 1);
  }
  if (!text.empty()) return absl::InvalidArgumentError(text);
  return s;
}

absl::StatusOr<MlpCall> ReadMlpCall(const v1::Config& config, const MlpStage& stage) {
  if (!config.has_microbatch()) return absl::InvalidArgumentError("config.microbatch is missing; set it for the node, from 0");
  MlpCall call{config.microbatch(), config.has_slot() ? config.slot() : config.microbatch()};
  if (call.microbatch < 0 || call.microbatch >= stage.microbatches || call.slot < 0 || call.slot >= stage.slots) {
    return absl::InvalidArgumentError(absl::StrCat("microbatch ", call.microbatch, " in slot ", call.slot, " is beyond the ",
                                                   stage.microbatches, " microbatches and ", stage.slots,
                                                   " slots of the stage; set config.slot for the node"));
  }
  return call;
}

}  // namespace weft
