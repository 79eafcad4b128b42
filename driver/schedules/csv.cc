#include "driver/schedules/csv.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "driver/schedules/check.h"

namespace weft {
namespace {

constexpr int32_t kMaxStage = 1 << 16;
constexpr int32_t kMaxMicrobatch = 1 << 24;
constexpr int64_t kMaxCells = 50'000'000;
constexpr char kOverlapSuffix[] = "OVERLAP_F_B";

// Digits at the front, as a number below `limit`.
bool TakeNumber(absl::string_view* text, int32_t limit, int32_t* out) {
  size_t n = 0;
  while (n < text->size() && absl::ascii_isdigit((*text)[n])) ++n;
  if (n == 0 || !absl::SimpleAtoi(text->substr(0, n), out) || *out >= limit) return false;
  text->remove_prefix(n);
  return true;
}

bool ReadPass(absl::string_view text, int32_t row, PipelineOp* op) {
  text = absl::StripAsciiWhitespace(text);
  op->stage = row;
  if (!text.empty() && absl::ascii_isdigit(text[0]) && !TakeNumber(&text, kMaxStage, &op->stage)) return false;
  if (text.empty()) return false;
  const char letter = text[0];
  text.remove_prefix(1);
  if (letter != 'F' && letter != 'I' && letter != 'W' && letter != 'B') return false;
  op->pass = letter == 'F' ? Pass::kForward : letter == 'I' ? Pass::kInputGrad : letter == 'W' ? Pass::kWeightGrad : Pass::kBackward;
  return TakeNumber(&text, kMaxMicrobatch, &op->microbatch) && text.empty();
}

bool ReadCell(absl::string_view text, int32_t row, PipelineOp* op) {
  if (text[0] != '(') return ReadPass(text, row, op);
  text.remove_prefix(1);
  absl::ConsumeSuffix(&text, kOverlapSuffix);
  if (!absl::ConsumeSuffix(&text, ")")) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ';');
  PipelineOp a, b;
  if (parts.size() != 2 || !ReadPass(parts[0], row, &a) || !ReadPass(parts[1], row, &b)) return false;
  if (a.pass == Pass::kBackward) std::swap(a, b);
  if (a.pass != Pass::kForward || b.pass != Pass::kBackward) return false;
  *op = {Pass::kPair, a.stage, a.microbatch, b.stage, b.microbatch};
  return true;
}

// The worker of each stage is the row in which it stands first.
absl::Status PlaceStages(PipelineSchedule* s) {
  int32_t stages = 0;
  s->microbatches = 0;
  const auto see = [&](int32_t stage, int32_t microbatch) {
    stages = std::max(stages, stage + 1);
    s->microbatches = std::max(s->microbatches, microbatch + 1);
  };
  for (const auto& order : s->orders) {
    for (const PipelineOp& op : order) {
      see(op.stage, op.microbatch);
      if (op.pass == Pass::kPair) see(op.back_stage, op.back_microbatch);
    }
  }
  if (static_cast<int64_t>(stages) * s->microbatches > kMaxCells) {
    return absl::InvalidArgumentError(
        absl::StrCat("the grid's numbers make ", stages, " stages and ", s->microbatches, " microbatches: that is too many"));
  }
  s->worker_of.assign(stages, -1);
  for (int32_t w = 0; w < s->workers; ++w) {
    for (const PipelineOp& op : s->orders[w]) {
      for (const int32_t stage : {op.stage, op.back_stage}) {
        if (stage >= 0 && s->worker_of[stage] < 0) s->worker_of[stage] = w;
      }
    }
  }
  for (int32_t stage = 0; stage < stages; ++stage) {
    if (s->worker_of[stage] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("stage ", stage, " stands in no row: stages are numbered from 0 without gaps, up to ", stages - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PipelineSchedule> ReadScheduleGrid(const std::string& text) {
  PipelineSchedule s;
  s.name = "csv";
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  while (!lines.empty() && absl::StripAsciiWhitespace(lines.back()).empty()) lines.pop_back();
  if (lines.empty()) return absl::InvalidArgumentError("the grid is empty: it has a row for each worker, such as \"F0,F1,B0,B1\"");
  s.workers = static_cast<int32_t>(lines.size());
  s.orders.resize(lines.size());
  for (size_t row = 0; row < lines.size(); ++row) {
    size_t column = 0;
    for (absl::string_view cell : absl::StrSplit(lines[row], ',')) {
      ++column;
      cell = absl::StripAsciiWhitespace(cell);
      if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') cell = absl::StripAsciiWhitespace(cell.substr(1, cell.size() - 2));
      if (cell.empty()) continue;
      PipelineOp op;
      if (!ReadCell(cell, static_cast<int32_t>(row), &op)) {
        return absl::InvalidArgumentError(
            absl::StrCat("row ", row + 1, ", cell ", column, ": \"", cell,
                         "\" is no pass: write F3, I3, W3 or B3 (of microbatch 3), 2F3 (of stage 2), or (0F3;7B1) for two at once"));
      }
      s.orders[row].push_back(op);
    }
    if (s.orders[row].empty())
      return absl::InvalidArgumentError(absl::StrCat("row ", row + 1, " has no pass: every worker must have a stage"));
  }
  WEFT_RETURN_IF_ERROR(PlaceStages(&s));
  WEFT_RETURN_IF_ERROR(CheckSchedule(s));
  return s;
}

std::string WriteScheduleGrid(const PipelineSchedule& schedule) {
  std::string out;
  for (const std::vector<PipelineOp>& order : schedule.orders) {
    for (size_t i = 0; i < order.size(); ++i) {
      const PipelineOp& op = order[i];
      if (i > 0) out += ',';
      if (op.pass == Pass::kPair) {
        absl::StrAppend(&out, "(", op.stage, "F", op.microbatch, ";", op.back_stage, "B", op.back_microbatch, ")", kOverlapSuffix);
      } else {
        absl::StrAppend(&out, op.stage, std::string(1, PassLetter(op.pass)), op.microbatch);
      }
    }
    out += '\n';
  }
  return out;
}

}  // namespace weft
