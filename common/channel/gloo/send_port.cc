#include "common/channel/gloo/send_port.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {

absl::StatusOr<EventRef> GlooSendPort::Send(int64_t execution, const Value& value, Stream*) {
  WEFT_RETURN_IF_ERROR(closed());
  if (!IsReady(value.event)) return absl::FailedPreconditionError(absl::StrCat(EdgeLabel(edge_), ": the value is not ready"));
  WEFT_RETURN_IF_ERROR(CheckSendable(edge_, value));
  auto header = std::make_shared<MessageHeader>(
      MakeHeader(engine_->plan_hash(), edge_.edge, execution, sequence_++, value.tensor, value.error));
  last_ = execution;
  GlooMesh* const mesh = &engine_->mesh();
  const int32_t edge = edge_.edge;
  // The header says how much follows, so both go at once. The tensor is held until it is sent.
  return engine_->Post([mesh, edge, header, tensor = value.tensor](const absl::Status& cause) {
    if (!cause.ok()) return;  // the receiver sees the link close
    std::vector<GlooMesh::Piece> pieces = {{1, GlooHeaderSlot(edge), header.get(), sizeof(MessageHeader)}};
    for (uint64_t at = 0; at < header->bytes; at += kGlooPieceBytes) {
      pieces.push_back({1, GlooPayloadSlot(edge), tensor.as<char>() + at, std::min(kGlooPieceBytes, header->bytes - at)});
    }
    (void)mesh->Exchange(pieces, {});  // the mesh keeps its failure, and closed() tells it
  });
}

std::string GlooSendPort::WaitsFor() const { return absl::StrCat(engine_->peer(), " to receive execution ", last_); }

}  // namespace weft
