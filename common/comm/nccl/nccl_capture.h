#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/comm/nccl/nccl_comm.h"

namespace weft {

// One call of NCCL, or one group of calls, on a stream that is being captured, or by a thread that may wait: returns once NCCL has put it
// there, since what comes next on the stream comes behind it. NCCL takes a moment for it, on a thread of its own. Besides the errors of
// NcclComm::Call: DeadlineExceeded names `what` when that does not end; then the communicator has ended.
absl::Status CallNcclNow(NcclComm* comm, const std::string& what, const std::function<int(NcclApi*, NcclCommHandle)>& call);

}  // namespace weft
