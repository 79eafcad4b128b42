#pragma once

#include <map>
#include <memory>
#include <vector>

#include "common/base/mutex.h"
#include "common/channel/doorbell.h"
#include "common/comm/agree.h"
#include "common/comm/communicator.h"

namespace weft {

// All ranks of a group within one process, for tests. A collective happens within the call of the rank that comes last; results are
// bit for bit those of the Gloo communicator. Each rank may be used by a thread of its own. Faults on request.
class FakeGroup {
 public:
  struct Options {
    // Rung for a rank when one of its events becomes ready; may be empty or hold nullptr. They outlive the group.
    std::vector<Doorbell*> doorbells;
    // Rank `fail_rank`'s call number `fail_call` (from 0) returns Internal and does not take part.
    int fail_rank = -1;
    uint64_t fail_call = 0;
    // This rank's calls are swallowed: the other ranks wait, until someone aborts.
    int absent_rank = -1;
    // When a call of this number has some but not all of its ranks, the group ends as if rank `dying_rank` had died.
    int64_t die_at = -1;
    int dying_rank = 0;
  };

  explicit FakeGroup(GroupInfo info) : FakeGroup(std::move(info), Options()) {}
  FakeGroup(GroupInfo info, Options options);
  ~FakeGroup();

  // Once for each rank. It may outlive the group.
  std::unique_ptr<Communicator> Take(int rank);

 private:
  struct Pending;
  struct State;
  class Member;
  const std::shared_ptr<State> state_;
};

}  // namespace weft
