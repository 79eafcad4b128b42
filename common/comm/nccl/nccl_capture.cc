#include "common/comm/nccl/nccl_capture.h"

#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

// A launch takes some tenths of a millisecond; the first use of a way to a peer, seconds.
constexpr Nanos kLimit = 30 * kNanosPerSecond;
constexpr auto kPoll = std::chrono::microseconds(20);

}  // namespace

absl::Status CallNcclNow(NcclComm* comm, const std::string& what, const std::function<int(NcclApi*, NcclCommHandle)>& call) {
  const Nanos until = comm->options().clock->Now() + kLimit;
  comm->Used();
  WEFT_RETURN_IF_ERROR(comm->Call(what, call));
  while (!comm->Settled()) {
    if (comm->options().clock->Now() > until) {
      comm->Abort(absl::DeadlineExceededError(absl::StrCat(comm->options().label, ": ", what, " with ", comm->others(),
                                                           ": NCCL has not launched it after ", ToSeconds(kLimit),
                                                           " s; NCCL_DEBUG=INFO on the workers says what it does")));
    }
    std::this_thread::sleep_for(kPoll);
  }
  return comm->cause();
}

}  // namespace weft
