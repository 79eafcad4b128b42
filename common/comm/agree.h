#pragma once

// The part of a collective that all communicators on hosts share: what each rank tells the others before any data moves, and what
// all of them conclude from it. Since every rank concludes from the same headers, all conclude the same.

#include <cstdint>
#include <string>
#include <vector>

#include "common/comm/communicator.h"

namespace weft {

// Who is in a group, as each rank knows it.
struct GroupInfo {
  // PlanGroup::id and the collective's name, for messages and error values.
  int32_t id = -1;
  std::string name;
  uint64_t plan_hash = 0;
  // Workers by rank.
  std::vector<std::string> workers;

  int size() const { return static_cast<int>(workers.size()); }
  // "rank 1 (w3)".
  std::string RankName(int rank) const;
};

struct CollectiveHeader {
  MessageHeader message;
  int32_t op = 0;
  int32_t reduce = 0;
  int32_t root = 0;
  int32_t flags = 0;  // the communicator's own
};
static_assert(sizeof(CollectiveHeader) == sizeof(MessageHeader) + 16);

// What this rank says. `sequence` counts the group's calls. A value that is not there, or whose result does not fit into `buffer`,
// becomes an error in its place, so that the other ranks hear of it.
CollectiveHeader MakeCollectiveHeader(const GroupInfo& group, int rank, const CollectiveCall& call, uint64_t sequence, const Value& in,
                                      const Tensor& buffer);

// What all ranks do.
struct Agreement {
  TaskErrorRef error;  // set: no data moves and this is every rank's result
  DType dtype = v1::DTYPE_UNSPECIFIED;
  Dims in;   // of each rank's value
  Dims out;  // of each rank's result
};

// Of all ranks' headers, by rank. In this order: ranks that run different calls, executions or plans; then the error of the lowest
// rank that has one; then ranks that differ in dtype or shape; then calls that cannot be (a sum of BOOL, a size that does not
// divide, a root that is no rank).
Agreement Agree(const GroupInfo& group, const std::vector<CollectiveHeader>& headers);

// The result in `buffer`, cut to the agreed dims.
Tensor ResultIn(const Tensor& buffer, const Agreement& agreed);

// What a rank gets for a collective that ended without a result.
TaskErrorRef CollectiveError(const GroupInfo& group, int rank, int64_t execution, const absl::Status& status);

}  // namespace weft
