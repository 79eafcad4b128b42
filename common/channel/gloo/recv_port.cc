#include "common/channel/gloo/recv_port.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

// One receive, on the engine's thread.
struct Receive {
  GlooMesh* mesh;
  uint64_t plan_hash;
  ShmEdgeSpec edge;
  int64_t execution;
  uint64_t sequence;
  Tensor buffer;
  Value* out;

  void Refuse(const absl::Status& why) const {
    out->tensor = Tensor();
    out->error = EdgeError(edge, execution, why);
  }

  // Takes the payload and throws it away: the sender waits until it is taken.
  absl::Status Drain(uint64_t bytes) const {
    std::vector<char> scratch(std::min(bytes, kGlooPieceBytes));
    for (uint64_t at = 0; at < bytes; at += kGlooPieceBytes) {
      const size_t n = std::min(kGlooPieceBytes, bytes - at);
      WEFT_RETURN_IF_ERROR(mesh->Exchange({}, {{0, GlooPayloadSlot(edge.edge), scratch.data(), n}}));
    }
    return absl::OkStatus();
  }

  absl::Status Payload(const MessageHeader& h) const {
    Tensor to = buffer;
    if (!to.defined() && h.bytes > 0) {
      absl::StatusOr<Tensor> made = Tensor::OnHost(static_cast<DType>(h.dtype), DimsOf(h));
      if (!made.ok()) {
        WEFT_RETURN_IF_ERROR(Drain(h.bytes));
        Refuse(made.status());
        return absl::OkStatus();
      }
      to = *made;
    }
    if (h.bytes > to.bytes()) {
      WEFT_RETURN_IF_ERROR(Drain(h.bytes));
      Refuse(absl::OutOfRangeError(absl::StrCat("a value of ", h.bytes, " bytes came, ", to.bytes(), " are reserved")));
      return absl::OkStatus();
    }
    std::vector<GlooMesh::Piece> pieces;
    for (uint64_t at = 0; at < h.bytes; at += kGlooPieceBytes) {
      pieces.push_back({0, GlooPayloadSlot(edge.edge), to.as<char>() + at, std::min(kGlooPieceBytes, h.bytes - at)});
    }
    WEFT_RETURN_IF_ERROR(mesh->Exchange({}, pieces));
    out->tensor = Tensor(static_cast<DType>(h.dtype), DimsOf(h), to.data(), to.owner());
    out->error = nullptr;
    return absl::OkStatus();
  }

  absl::Status Run() const {
    MessageHeader h;
    WEFT_RETURN_IF_ERROR(mesh->Exchange({}, {{0, GlooHeaderSlot(edge.edge), &h, sizeof h}}));
    absl::Status fits = CheckHeader(h, plan_hash, edge.edge, execution, sequence, edge.spec);
    if (h.bytes > kMaxTensorBytes) fits = absl::DataLossError(absl::StrCat("a message of ", h.bytes, " bytes is announced"));
    // Of a header that is damaged or of another format nothing can be believed, its length included.
    if (fits.code() == absl::StatusCode::kDataLoss) {
      mesh->Abort(absl::DataLossError(absl::StrCat(EdgeLabel(edge), ": ", std::string(fits.message()))));
      return fits;
    }
    if (!fits.ok()) {
      WEFT_RETURN_IF_ERROR(Drain(h.bytes));
      Refuse(fits);
      return absl::OkStatus();
    }
    const TaskErrorRef error = ErrorOf(h);
    if (error != nullptr) {
      out->tensor = Tensor();
      out->error = error;
      return absl::OkStatus();
    }
    return Payload(h);
  }
};

}  // namespace

absl::StatusOr<EventRef> GlooRecvPort::Recv(int64_t execution, const Tensor& buffer, Value* out, Stream*) {
  WEFT_RETURN_IF_ERROR(closed());
  last_ = execution;
  const Receive r{&engine_->mesh(), engine_->plan_hash(), edge_, execution, sequence_++, buffer, out};
  return engine_->Post([r](const absl::Status& cause) {
    const absl::Status s = cause.ok() ? r.Run() : cause;
    if (!s.ok()) r.Refuse(s);
  });
}

std::string GlooRecvPort::WaitsFor() const { return absl::StrCat(engine_->peer(), " to send execution ", last_); }

}  // namespace weft
