#pragma once

#include <memory>
#include <string>

#include "common/channel/gloo/engine.h"

namespace weft {

// The receiving end of one edge; made by GlooLink.
class GlooRecvPort : public RecvPort {
 public:
  GlooRecvPort(std::shared_ptr<GlooLink::Engine> engine, ShmEdgeSpec edge) : engine_(std::move(engine)), edge_(std::move(edge)) {}

  PortState Poll(int64_t) override { return closed().ok() ? PortState::kReady : PortState::kClosed; }
  // Without `buffer` (shapes with `?`) memory is allocated as the header says.
  absl::StatusOr<EventRef> Recv(int64_t execution, const Tensor& buffer, Value* out, Stream* stream) override;
  // The plan's buffers are the credits: nothing to give back.
  void Release(int64_t) override {}
  bool ZeroCopy() const override { return false; }
  std::string WaitsFor() const override;
  absl::Status closed() const override { return engine_->mesh().Health(); }

 private:
  const std::shared_ptr<GlooLink::Engine> engine_;
  const ShmEdgeSpec edge_;
  uint64_t sequence_ = 0;
  int64_t last_ = 0;  // execution of the last receive
};

}  // namespace weft
