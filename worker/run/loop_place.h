#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "common/base/clock.h"

namespace weft {

// What the loop's thread may be inside of.
enum class LoopCall : uint8_t {
  kNone,          // nothing that could hang: asleep, or between two things
  kCommand,       // what other threads have asked for
  kHold,          // Executor::Options::holds_device
  kHealth,        // Device::Health
  kTiming,        // Device::SetTiming
  kGraph,         // a graph, none of its ops
  kPoll,          // whether an op may be issued: its channel
  kIssue,         // issuing an op; for a COMPUTE on the loop's thread: its method
  kComplete,      // whether an op is done, and what follows from that
  kIterations,    // captured iterations
  kFail,          // ending a graph: closing its links, aborting its communicators
  kReplan,        // another plan for a graph
  kRemove,        // destroying a graph
};

// Where the loop's thread is, told by it with a few plain stores and read by any thread: a call that does not return takes with it the thread that
// could say so. A sequence lock whose words are all atomic.
class LoopPlace {
 public:
  static constexpr int kMaxGraph = 0xFFFFFF;

  struct View {
    LoopCall call = LoopCall::kNone;
    int graph = 0;  // as LoopWatch numbers them; 0: none
    int op = -1;    // index into the graph's Program::ops; -1: none
    int64_t execution = 0;
    // When the loop last looked at its clock before it went there: at the start of the turn, of an issue, or at the end of an op.
    Nanos since = 0;
    // Changes with every move.
    uint64_t sequence = 0;
  };

  // --- the loop's thread

  void Enter(LoopCall call, int graph = 0, int op = -1, int64_t execution = 0) {
    sequence_.store(++moves_, std::memory_order_relaxed);
    // Who sees one of these sees the odd number as well.
    what_.store(static_cast<uint64_t>(call) << 56 | static_cast<uint64_t>(graph) << 32 | static_cast<uint32_t>(op), std::memory_order_release);
    execution_.store(execution, std::memory_order_release);
    since_.store(now_, std::memory_order_release);
    sequence_.store(++moves_, std::memory_order_release);
  }
  // The time is known here anyway.
  void SetNow(Nanos now) { now_ = now; }
  void Leave() { Enter(LoopCall::kNone); }

  // --- any thread

  // nullopt: it moves on too fast to be seen, so it is stuck nowhere.
  std::optional<View> Read() const {
    constexpr int kTries = 64;
    for (int i = 0; i < kTries; ++i) {
      const uint64_t before = sequence_.load(std::memory_order_acquire);
      const uint64_t what = what_.load(std::memory_order_acquire);
      View v;
      v.execution = execution_.load(std::memory_order_acquire);
      v.since = since_.load(std::memory_order_acquire);
      if (before % 2 != 0 || sequence_.load(std::memory_order_relaxed) != before) continue;
      v.call = static_cast<LoopCall>(what >> 56);
      v.graph = static_cast<int>(what >> 32 & kMaxGraph);
      v.op = static_cast<int>(static_cast<uint32_t>(what));
      v.sequence = before;
      return v;
    }
    return std::nullopt;
  }

 private:
  std::atomic<uint64_t> sequence_{0};  // odd while the others change
  std::atomic<uint64_t> what_{0};      // call, graph, op: 8, 24, 32 bits
  std::atomic<int64_t> execution_{0};
  std::atomic<Nanos> since_{0};
  Nanos now_ = 0;       // the loop's thread
  uint64_t moves_ = 0;  // the loop's thread: as sequence_, which it need not read
};

}  // namespace weft
