#include "common/channel/nccl/capture_ports.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/nccl/announcement.h"
#include "common/comm/nccl/nccl_capture.h"

namespace weft {

NcclCapture::~NcclCapture() {
  for (std::shared_ptr<void>& memory : held_) comm()->KeepUntilEnded(std::move(memory));
}

absl::Status NcclCapture::Named(const absl::Status& s) const {
  return s.ok() ? s : absl::Status(s.code(), absl::StrCat(EdgeLabel(edge_), ": ", std::string(s.message())));
}

absl::StatusOr<size_t> NcclCapture::BytesOf(const Tensor& value, const DeviceStatus* status) const {
  const size_t behind = (value.bytes() + 15) / 16 * 16;
  if (value.bytes() != edge_.bytes || reinterpret_cast<const char*>(status) != value.as<char>() + behind) {
    return Named(absl::InvalidArgumentError(
        "the value does not lie in a planned buffer with its status word behind it: the actor made it elsewhere than "
        "AllocateOutput says"));
  }
  return behind + sizeof(DeviceStatus);
}

absl::Status NcclCaptureSendPort::Capture(int variant, const Value& value, Stream* stream) {
  const void* from = capture_.scratch()->missing();
  size_t bytes = sizeof(DeviceStatus);
  if (value.status != nullptr) {
    from = value.tensor.data();
    WEFT_ASSIGN_OR_RETURN(bytes, capture_.BytesOf(value.tensor, value.status));
    capture_.Hold(value.tensor.owner());
  }
  return capture_.Named(CallNcclNow(capture_.comm(), "sending in a captured iteration", [&](NcclApi* api, NcclCommHandle comm) {
    return api->Send(from, bytes, kNcclUint8, 1, comm, stream->native());
  }));
}

absl::Status NcclCaptureSendPort::Announce(int64_t execution) {
  // That it comes is all it says; the channel counts and checks it.
  NcclAnnouncement a;
  a.header.execution = execution;
  Value v;
  WEFT_ASSIGN_OR_RETURN(v.tensor, Tensor::OnHost(v1::U8, {static_cast<int64_t>(kNcclShortAnnouncement)}));
  std::memcpy(v.tensor.data(), &a, kNcclShortAnnouncement);
  return capture_.Named(header_->Send(execution, v, nullptr).status());
}

absl::Status NcclCaptureSendPort::closed() const {
  WEFT_RETURN_IF_ERROR(capture_.comm()->cause());
  return header_->closed();
}

absl::Status NcclCaptureRecvPort::Capture(int variant, const Tensor& buffer, Value* out, Stream* stream) {
  void* to = capture_.scratch()->unwanted();
  size_t bytes = sizeof(DeviceStatus);
  if (out->status != nullptr) {
    to = buffer.data();
    WEFT_ASSIGN_OR_RETURN(bytes, capture_.BytesOf(buffer, out->status));
    capture_.Hold(buffer.owner());
  }
  out->tensor = buffer;
  return capture_.Named(CallNcclNow(capture_.comm(), "receiving in a captured iteration", [&](NcclApi* api, NcclCommHandle comm) {
    return api->Recv(to, bytes, kNcclUint8, 0, comm, stream->native());
  }));
}

absl::Status NcclCaptureRecvPort::Take(int64_t execution, const std::function<uint64_t(const TaskErrorRef&)>&) {
  Value head;
  WEFT_ASSIGN_OR_RETURN(const EventRef came, header_->Recv(execution, Tensor(), &head, nullptr));
  absl::Status s;
  if (!IsReady(came)) {
    s = absl::InternalError("its announcement is not there, though the host channel said so");
  } else if (head.error != nullptr) {  // errors of tasks travel as status words
    s = absl::Status(head.error->code, absl::StrCat("its announcement: ", head.error->message));
  } else if (head.tensor.bytes() != kNcclShortAnnouncement) {
    s = absl::DataLossError(absl::StrCat("its announcement has ", head.tensor.bytes(), " bytes"));
  }
  header_->Release(execution);
  return capture_.Named(s);
}

absl::Status NcclCaptureRecvPort::closed() const {
  WEFT_RETURN_IF_ERROR(capture_.comm()->cause());
  return header_->closed();
}

}  // namespace weft
