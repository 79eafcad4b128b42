#include "common/comm/nccl/nccl_capture.h"

#include <chrono>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

// A launch takes some tenths of a millisecond; the first use of a way to a peer, seconds.
constexpr Nanos kLimit = 30 * kNanosPerSecond;
constexpr auto kPoll = std::chrono::microseconds(20);

absl::Status CallAndWait(NcclComm* comm, const std::string& what, const std::function<int(NcclApi*, NcclCommHandle)>& call) {
  const Nanos until = comm->options().clock->Now() + kLimit;
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

}  // namespace

absl::Status CallNcclNow(NcclComm* comm, const std::string& what, const std::function<int(NcclApi*, NcclCommHandle)>& call) {
  comm->Used();
  return CallAndWait(comm, what, call);
}

absl::StatusOr<int> CaptureNccl(NcclComm* comm, const std::string& what, const std::shared_ptr<void>& memory,
                                const std::function<int(NcclApi*, NcclCommHandle, CudaStreamHandle)>& call) {
  CudaDevice* const device = comm->options().device;
  CudaApi* const cuda = device->api();
  const std::string capturing = absl::StrCat(comm->options().label, ": capturing ", what);
  // Of the priority that transfers have.
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<Stream> stream, device->NewStream(v1::LANE_SEND));
  WEFT_RETURN_IF_ERROR(device->Check(cuda->BeginCapture(stream->native()), capturing));
  comm->Begin();
  bool called = false;
  absl::Status s = CallAndWait(comm, what, [&](NcclApi* api, NcclCommHandle handle) {
    called = true;
    return call(api, handle, stream->native());
  });
  CudaGraphHandle graph = nullptr;
  const int ended = cuda->EndCapture(stream->native(), &graph);
  if (!called || comm->cause().ok()) {
    comm->End();
  } else {
    // NCCL's thread may be at the call still, and now that nothing is captured put it on the stream itself. So it counts as on the device, where the
    // communicator's end is not put aside, and what it touches is there until then.
    comm->KeepUntilEnded(stream);
    comm->KeepUntilEnded(memory);
  }
  if (s.ok()) s = device->Check(ended, capturing);
  CudaGraphExecHandle captured = nullptr;
  if (s.ok()) s = device->Check(cuda->GraphInstantiate(graph, &captured), capturing);
  if (graph != nullptr) (void)cuda->GraphDestroy(graph);
  WEFT_RETURN_IF_ERROR(s);
  const int number = comm->AddReplay(captured);
  spdlog::debug("{}: call {} of it is captured, to be replayed: {}", comm->options().label, number, what);
  return number;
}

}  // namespace weft
