#include "common/channel/staged/capture_ports.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

absl::Status OfEdge(const ShmEdgeSpec& edge, const absl::Status& s) {
  return s.ok() ? s : absl::Status(s.code(), absl::StrCat(EdgeLabel(edge), ": ", std::string(s.message())));
}

absl::StatusOr<std::shared_ptr<void>> NewWords(const ShmEdgeSpec& edge, CudaDevice* device) {
  const size_t bytes = sizeof(DeviceStatus) * static_cast<size_t>(edge.slots);
  absl::StatusOr<std::shared_ptr<void>> words = device->AllocateHost(bytes);
  if (!words.ok()) return OfEdge(edge, words.status());
  std::memset(words->get(), 0, bytes);
  return words;
}

absl::Status NoPlace(const ShmEdgeSpec& edge) {
  return absl::InvalidArgumentError(
      absl::StrCat(EdgeLabel(edge),
                   ": its values lie in no memory that stays, so that no captured iteration can copy them: use "
                   "transport SHM and a fixed shape, or set options.launch STREAM"));
}

absl::Status OutOfPlace(const ShmEdgeSpec& edge, int64_t execution) {
  return absl::InternalError(
      absl::StrCat(EdgeLabel(edge), ": the value of execution ", execution,
                   " lies in another slot than the captured iteration uses: the two ends have lost count of each other"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<CaptureSendPort>> StagedCaptureSendPort::Create(std::shared_ptr<SendPort> inner, const ShmEdgeSpec& edge,
                                                                               CudaDevice* device) {
  std::shared_ptr<StagedCaptureSendPort> port(new StagedCaptureSendPort(std::move(inner), edge, device));
  WEFT_ASSIGN_OR_RETURN(port->words_, NewWords(edge, device));
  return std::shared_ptr<CaptureSendPort>(std::move(port));
}

absl::Status StagedCaptureSendPort::Capture(int variant, const Value& value, Stream* stream) {
  const size_t bytes = value.tensor.bytes();
  if (bytes != edge_.bytes) return NoPlace(edge_);
  // Nothing was sent since the trial: this many sends ahead, the variant's first execution is due.
  WEFT_ASSIGN_OR_RETURN(void* const to, inner_->Reserve(variant, bytes));
  if (to == nullptr && bytes > 0) return NoPlace(edge_);
  CudaApi* const api = device_->api();
  if (bytes > 0) {
    WEFT_RETURN_IF_ERROR(
        OfEdge(edge_, device_->Check(api->MemcpyAsync(to, value.tensor.data(), bytes, stream->native()), "copying from the GPU")));
  }
  with_status_[variant] = value.status != nullptr;
  if (value.status != nullptr) {
    DeviceStatus* const word = static_cast<DeviceStatus*>(words_.get()) + variant;
    WEFT_RETURN_IF_ERROR(
        OfEdge(edge_, device_->Check(api->MemcpyAsync(word, value.status, sizeof *word, stream->native()), "copying a status word")));
  }
  values_[variant] = Tensor(value.tensor.dtype(), value.tensor.dims(), to, nullptr);
  return absl::OkStatus();
}

PortState StagedCaptureSendPort::Poll(int64_t execution) {
  return inner_->PollAhead(execution, static_cast<int>(execution - finished_));
}

absl::StatusOr<bool> StagedCaptureSendPort::Finish(int64_t execution, const std::function<TaskErrorRef(uint64_t)>& error_of) {
  const size_t variant = static_cast<size_t>(execution % edge_.slots);
  finished_ = execution + 1;
  Value out;
  const uint64_t word = with_status_[variant] ? static_cast<const DeviceStatus*>(words_.get())[variant].word : 0;
  if (word != 0) {
    out.error = error_of(word);
  } else {
    out.tensor = values_[variant];
    WEFT_ASSIGN_OR_RETURN(void* const due, inner_->Reserve(0, out.tensor.bytes()));
    if (due != out.tensor.data()) return OutOfPlace(edge_, execution);
  }
  // The payload is there, so this is over at once.
  WEFT_RETURN_IF_ERROR(inner_->Send(execution, out, nullptr).status());
  return word != 0;
}

absl::StatusOr<std::shared_ptr<CaptureRecvPort>> StagedCaptureRecvPort::Create(RecvPort* inner, const ShmEdgeSpec& edge, CudaDevice* device,
                                                                               size_t in_place) {
  std::shared_ptr<StagedCaptureRecvPort> port(new StagedCaptureRecvPort(inner, edge, device, in_place));
  WEFT_ASSIGN_OR_RETURN(port->words_, NewWords(edge, device));
  return std::shared_ptr<CaptureRecvPort>(std::move(port));
}

absl::Status StagedCaptureRecvPort::Capture(int variant, const Tensor& buffer, Value* out, Stream* stream) {
  const size_t bytes = buffer.bytes();
  if (bytes != edge_.bytes) return NoPlace(edge_);
  WEFT_ASSIGN_OR_RETURN(places_[variant], inner_->Place(variant, bytes));
  if (places_[variant] == nullptr && bytes > 0) return NoPlace(edge_);
  if (bytes > 0 && bytes <= in_place_) {
    // The slot and the word are this iteration's until it is done. Nothing writes to what is read.
    if (out->status != nullptr) out->status = static_cast<DeviceStatus*>(words_.get()) + variant;
    out->tensor = Tensor(buffer.dtype(), buffer.dims(), const_cast<void*>(places_[variant]), nullptr);
    return absl::OkStatus();
  }
  CudaApi* const api = device_->api();
  if (bytes > 0) {
    WEFT_RETURN_IF_ERROR(
        OfEdge(edge_, device_->Check(api->MemcpyAsync(buffer.data(), places_[variant], bytes, stream->native()), "copying to the GPU")));
  }
  if (out->status != nullptr) {
    const DeviceStatus* const word = static_cast<const DeviceStatus*>(words_.get()) + variant;
    WEFT_RETURN_IF_ERROR(
        OfEdge(edge_, device_->Check(api->MemcpyAsync(out->status, word, sizeof *word, stream->native()), "copying a status word")));
  }
  out->tensor = buffer;
  return absl::OkStatus();
}

absl::Status StagedCaptureRecvPort::Take(int64_t execution, const std::function<uint64_t(const TaskErrorRef&)>& word_of) {
  const size_t variant = static_cast<size_t>(execution % edge_.slots);
  Value host;
  WEFT_ASSIGN_OR_RETURN(const EventRef event, inner_->Recv(execution, Tensor(), &host, nullptr));
  if (!IsReady(event)) return OutOfPlace(edge_, execution);  // not with a channel whose Place is known
  // Of a value that is an error the payload is what was there before: it is computed with, and poisoned all the way.
  if (host.error == nullptr && host.tensor.bytes() > 0 && host.tensor.data() != places_[variant]) return OutOfPlace(edge_, execution);
  static_cast<DeviceStatus*>(words_.get())[variant].word = host.error != nullptr ? word_of(host.error) : 0;
  return absl::OkStatus();
}

}  // namespace weft
