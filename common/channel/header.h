#pragma once

// What goes ahead of every payload on every edge, so that a mismatch is an error at both ends and never a hang, and a failed
// task's error reaches its consumers in the value's place. Fixed size, little-endian, no pointers: it may cross process and host.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/tensor/shape.h"
#include "common/tensor/tensor.h"

namespace weft {

// A task's error as a value. Immutable once made; shared by all values it poisons.
struct TaskError {
  std::string worker;
  std::string node;
  int64_t execution = 0;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  std::string message;

  // "node square0 on w3, execution 5: message".
  std::string ToString() const;
};
using TaskErrorRef = std::shared_ptr<const TaskError>;

struct MessageHeader {
  static constexpr uint32_t kMagic = 0x74666577;  // "weft"

  uint32_t magic = kMagic;
  uint16_t version = 1;
  uint8_t dtype = 0;
  uint8_t rank = 0;
  uint64_t plan_hash = 0;  // Plan::hash as a number
  int32_t edge = -1;
  int32_t error_code = 0;  // absl::StatusCode; 0: a value follows. Otherwise it is poisoned and the error fields are set
  int64_t execution = 0;
  uint64_t sequence = 0;   // counts messages on the edge, self-test included
  uint64_t bytes = 0;      // of the payload
  int64_t dims[kMaxRank] = {};
  int64_t error_execution = 0;
  char error_worker[64] = {};
  char error_node[64] = {};
  char error_message[728] = {};  // longer ones are cut, with "..."
};
static_assert(sizeof(MessageHeader) == 976);

// For a value, or for its error when `error` is set (then bytes is 0 and dims are empty).
MessageHeader MakeHeader(uint64_t plan_hash, int32_t edge, int64_t execution, uint64_t sequence, const Tensor& tensor,
                         const TaskErrorRef& error);

// Compares with what the receiving end expects; the message says what came and what was expected (DataLoss for a foreign or damaged
// header, FailedPrecondition for another plan, OutOfRange for a shape or size beyond `spec`, Internal for a wrong order).
absl::Status CheckHeader(const MessageHeader& h, uint64_t plan_hash, int32_t edge, int64_t execution, uint64_t sequence,
                         const Spec& spec);

// The error it carries; nullptr for none. Strings are bounded whatever the sender wrote.
TaskErrorRef ErrorOf(const MessageHeader& h);
Dims DimsOf(const MessageHeader& h);

// Text from a field that another process wrote: ends within `size` bytes and is valid UTF-8 (else '?'), whatever it holds.
std::string SafeText(const char* field, size_t size);

uint64_t HashAsNumber(const std::string& plan_hash);

}  // namespace weft
