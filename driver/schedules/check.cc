#include "driver/schedules/check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

class Checker {
 public:
  explicit Checker(const PipelineSchedule& s) : s_(s), cells_(static_cast<size_t>(s.stages()) * s.microbatches) {}

  absl::Status Run() {
    for (int32_t w = 0; w < s_.workers; ++w) {
      for (const PipelineOp& op : s_.orders[w]) {
        if (op.pass == Pass::kPair) {
          See(w, op, {Pass::kForward, op.stage, op.microbatch});
          See(w, op, {Pass::kBackward, op.back_stage, op.back_microbatch});
        } else {
          See(w, op, op);
        }
      }
    }
    const bool trains = std::any_of(cells_.begin(), cells_.end(), [](const Cell& c) { return c.backward || c.input || c.weight; });
    for (int32_t s = 0; s < s_.stages(); ++s) {
      for (int32_t k = 0; k < s_.microbatches; ++k) Missing(s, k, trains);
    }
    if (problems_.empty()) return absl::OkStatus();
    const std::string more = count_ > problems_.size() ? absl::StrCat("\nand ", count_ - problems_.size(), " more") : "";
    return absl::InvalidArgumentError(absl::StrCat(absl::StrJoin(problems_, "\n"), more));
  }

 private:
  struct Cell {
    bool forward = false, input = false, weight = false, backward = false;
  };

  void Problem(const std::string& text) {
    if (++count_ <= 20) problems_.push_back(text);
  }

  // One F, I, W or B, which is `whole` or a part of it.
  void See(int32_t w, const PipelineOp& whole, const PipelineOp& op) {
    const std::string at = absl::StrCat("w", w, ": ", PassName(s_, whole));
    if (op.stage < 0 || op.stage >= s_.stages() || op.microbatch < 0 || op.microbatch >= s_.microbatches) {
      Problem(absl::StrCat(at, " is of stage ", op.stage, " and microbatch ", op.microbatch, ", there are stages 0 to ", s_.stages() - 1,
                           " and microbatches 0 to ", s_.microbatches - 1));
      return;
    }
    if (s_.worker_of[op.stage] != w) {
      Problem(absl::StrCat(at, ": stage ", op.stage, " is on w", s_.worker_of[op.stage], ", a stage cannot be on two workers"));
      return;
    }
    Cell& cell = cells_[static_cast<size_t>(op.stage) * s_.microbatches + op.microbatch];
    bool* done = op.pass == Pass::kForward      ? &cell.forward
                 : op.pass == Pass::kInputGrad  ? &cell.input
                 : op.pass == Pass::kWeightGrad ? &cell.weight
                                                : &cell.backward;
    if (*done) {
      Problem(absl::StrCat(at, " stands twice: each pass of a stage and microbatch runs once"));
      return;
    }
    *done = true;
    if (op.pass != Pass::kForward && !cell.forward) Problem(absl::StrCat(at, " stands before F of the same stage and microbatch"));
    if (op.pass == Pass::kWeightGrad && !cell.input) Problem(absl::StrCat(at, " stands before I of the same stage and microbatch"));
  }

  void Missing(int32_t s, int32_t k, bool trains) {
    const Cell& c = cells_[static_cast<size_t>(s) * s_.microbatches + k];
    const std::string of = absl::StrCat(" of stage ", s, " (w", s_.worker_of[s], ") and microbatch ", k);
    if (!c.forward) Problem(absl::StrCat("F", of, " is missing"));
    if (c.backward && (c.input || c.weight)) Problem(absl::StrCat("the backward", of, " stands twice: either B, or I and W"));
    if (!trains || c.backward) return;
    if (!c.input) Problem(absl::StrCat("the backward", of, " is missing: B, or I and W"));
    if (c.input && !c.weight) Problem(absl::StrCat("W", of, " is missing"));
  }

  const PipelineSchedule& s_;
  std::vector<Cell> cells_;
  std::vector<std::string> problems_;
  size_t count_ = 0;
};

}  // namespace

absl::Status CheckSchedule(const PipelineSchedule& schedule) { return Checker(schedule).Run(); }

}  // namespace weft
