#pragma once

#include <memory>
#include <string>

#include "common/channel/gloo/engine.h"

namespace weft {

// The sending end of one edge; made by GlooLink.
class GlooSendPort : public SendPort {
 public:
  GlooSendPort(std::shared_ptr<GlooLink::Engine> engine, ShmEdgeSpec edge) : engine_(std::move(engine)), edge_(std::move(edge)) {}

  PortState Poll(int64_t) override { return closed().ok() ? PortState::kReady : PortState::kClosed; }
  // Pre: the value's event is ready.
  absl::StatusOr<EventRef> Send(int64_t execution, const Value& value, Stream* stream) override;
  std::string WaitsFor() const override;
  absl::Status closed() const override { return engine_->mesh().Health(); }

 private:
  const std::shared_ptr<GlooLink::Engine> engine_;
  const ShmEdgeSpec edge_;
  uint64_t sequence_ = 0;
  int64_t last_ = 0;  // execution of the last send
};

}  // namespace weft
