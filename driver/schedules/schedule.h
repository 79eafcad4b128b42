#pragma once

// A pipeline schedule as data: for each worker the list of passes that it runs, strictly in this order.

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

enum class Pass : uint8_t {
  kForward,     // F
  kInputGrad,   // I
  kWeightGrad,  // W
  kBackward,    // B: I and W at once
  kPair,        // F of one stage and B of another, run at once
};

struct PipelineOp {
  Pass pass = Pass::kForward;
  int32_t stage = 0;
  int32_t microbatch = 0;
  // Of the B of a kPair.
  int32_t back_stage = -1;
  int32_t back_microbatch = -1;

  bool operator==(const PipelineOp&) const = default;
};

struct PipelineSchedule {
  std::string name;
  int32_t workers = 0;
  int32_t microbatches = 0;
  std::vector<int32_t> worker_of;               // by stage
  std::vector<std::vector<PipelineOp>> orders;  // by worker

  int32_t stages() const { return static_cast<int32_t>(worker_of.size()); }
};

// Stage s on worker s mod p, v stages a worker; with v = 1 the plain pipeline.
std::vector<int32_t> LoopPlacement(int32_t workers, int32_t chunks);
// Two stages a worker: worker r holds stages r and 2p-1-r.
std::vector<int32_t> VPlacement(int32_t workers);

// 'F', 'I', 'W' or 'B'. Pre: not kPair.
char PassLetter(Pass pass);

// "F3" where every worker has one stage, otherwise "5F3" with the stage in front; a pair is "(0F5;7B2)".
std::string PassName(const PipelineSchedule& schedule, const PipelineOp& op);

// Every B becomes I and W right behind it, pairs stay: never slower, since the stage before need not wait for W.
PipelineSchedule SplitBackward(PipelineSchedule schedule);

int64_t CountOps(const PipelineSchedule& schedule);

}  // namespace weft
