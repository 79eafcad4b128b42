#include "driver/schedules/schedule.h"

#include "absl/strings/str_cat.h"

namespace weft {

std::vector<int32_t> LoopPlacement(int32_t workers, int32_t chunks) {
  std::vector<int32_t> out(static_cast<size_t>(workers) * chunks);
  for (size_t s = 0; s < out.size(); ++s) out[s] = static_cast<int32_t>(s % workers);
  return out;
}

std::vector<int32_t> VPlacement(int32_t workers) {
  std::vector<int32_t> out(2 * static_cast<size_t>(workers));
  for (int32_t r = 0; r < workers; ++r) out[r] = out[2 * workers - 1 - r] = r;
  return out;
}

char PassLetter(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return 'F';
    case Pass::kInputGrad:
      return 'I';
    case Pass::kWeightGrad:
      return 'W';
    case Pass::kBackward:
      return 'B';
    case Pass::kPair:
      break;
  }
  return '?';
}

std::string PassName(const PipelineSchedule& schedule, const PipelineOp& op) {
  const bool plain = schedule.stages() == schedule.workers;
  const auto one = [plain](int32_t stage, char letter, int32_t microbatch) {
    const std::string letters(1, letter);
    return plain ? absl::StrCat(letters, microbatch) : absl::StrCat(stage, letters, microbatch);
  };
  if (op.pass != Pass::kPair) return one(op.stage, PassLetter(op.pass), op.microbatch);
  return absl::StrCat("(", one(op.stage, 'F', op.microbatch), ";", one(op.back_stage, 'B', op.back_microbatch), ")");
}

PipelineSchedule SplitBackward(PipelineSchedule schedule) {
  for (std::vector<PipelineOp>& order : schedule.orders) {
    std::vector<PipelineOp> split;
    split.reserve(order.size() * 3 / 2 + 1);
    for (const PipelineOp& op : order) {
      if (op.pass != Pass::kBackward) {
        split.push_back(op);
        continue;
      }
      split.push_back({Pass::kInputGrad, op.stage, op.microbatch});
      split.push_back({Pass::kWeightGrad, op.stage, op.microbatch});
    }
    order = std::move(split);
  }
  return schedule;
}

int64_t CountOps(const PipelineSchedule& schedule) {
  int64_t n = 0;
  for (const auto& order : schedule.orders) n += static_cast<int64_t>(order.size());
  return n;
}

}  // namespace weft
