#pragma once

// Edges between CPU workers of different hosts: all that lead from one worker to another share one connection.

#include <memory>

#include "common/channel/doorbell.h"
#include "common/channel/port.h"
#include "common/channel/shm/edge_spec.h"
#include "common/comm/gloo/gloo_mesh.h"

namespace weft {

// One worker's end of the connection from worker A (rank 0 of the mesh) to worker B (rank 1).
//
// Transfers are rendezvous: a send is done when the receiver has taken the value, and both ports are ready for the next op at any
// time; receive buffers are the plan's credits. A header goes ahead of each payload. One thread at each end does the waiting, for
// one transfer after the other in the order in which they were issued, which the plan makes the same at both ends.
//
// Ports may be used until they are destroyed, before or after the link; they are used by one thread.
class GlooLink {
 public:
  // `mesh` is connected, has two ranks and serves no one else. `doorbell` is rung when an event becomes ready or the link closes;
  // outlives the link and its ports.
  GlooLink(std::shared_ptr<GlooMesh> mesh, uint64_t plan_hash, Doorbell* doorbell);
  // Closes the link; every event is ready afterwards.
  ~GlooLink();

  // The end of one edge on this worker, once each: rank 0 sends, rank 1 receives. edge.slots and edge.bytes are not used beyond
  // CheckEdgeSpec; an emulated link is refused. InvalidArgument names the edge.
  absl::StatusOr<std::unique_ptr<SendPort>> NewSendPort(const ShmEdgeSpec& edge);
  absl::StatusOr<std::unique_ptr<RecvPort>> NewRecvPort(const ShmEdgeSpec& edge);

  // Ends all transfers with `cause`. From any thread; the first cause stays.
  void Close(const absl::Status& cause);
  // Why the link is closed; OK while it works. A peer's death is seen at once.
  absl::Status Health() const;

  class Engine;

 private:
  const std::shared_ptr<Engine> engine_;
};

}  // namespace weft
