#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/comm/nccl/nccl_comm.h"

namespace weft {

// One call of NCCL, or one group of calls, on a stream that is being captured, or by a thread that may wait: returns once NCCL has put it
// there, since what comes next on the stream comes behind it. NCCL takes a moment for it, on a thread of its own. Besides the errors of
// NcclComm::Call: DeadlineExceeded names `what` when that does not end; then the communicator has ended.
absl::Status CallNcclNow(NcclComm* comm, const std::string& what, const std::function<int(NcclApi*, NcclCommHandle)>& call);

// Captures one call of NCCL, or one group of calls, for NcclComm::Replay: `call` puts it on the stream that it gets. NCCL launches what it is asked of a
// non-blocking communicator on a thread that it makes for it, which takes longer than many a transfer; a captured call goes out at once. It is always the
// same transfer between the same memory, with a way that NCCL has connected before. `memory` holds what it touches, which the caller keeps for as long
// as it replays it; when the communicator ends meanwhile it is kept here until that is over. The thread that makes calls. Errors as CallNcclNow, and CUDA's.
absl::StatusOr<int> CaptureNccl(NcclComm* comm, const std::string& what, const std::shared_ptr<void>& memory,
                                const std::function<int(NcclApi*, NcclCommHandle, CudaStreamHandle)>& call);

}  // namespace weft
