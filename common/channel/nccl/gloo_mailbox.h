#pragma once

// Announcements between workers of different hosts: small messages of many edges over one connection, in the order in which they are sent,
// whatever the order in which they are taken.

#include <cstdint>
#include <memory>
#include <vector>

#include "common/channel/doorbell.h"
#include "common/channel/port.h"
#include "common/channel/shm/edge_spec.h"
#include "common/comm/gloo/gloo_mesh.h"

namespace weft {

// One worker's end of the connection from worker A (rank 0 of the mesh) to worker B (rank 1). Unlike the edges of a GlooLink, messages are
// buffered where they arrive, so that one end may send in another order than the other takes: an announcement goes when its value is
// ready. A send is done at once; Poll at the receiver tells what has come.
//
// Credits are the sender's: as many messages of an edge as it has slots may be on their way to the socket. What lies at the receiver is bounded
// by the executions in flight; a peer that sends more than kMaxWaiting of an edge closes the mailbox.
//
// One thread at each end waits for the mesh. Ports are used by one thread, and may be used until they are destroyed, before or after the mailbox.
class GlooMailbox {
 public:
  static constexpr size_t kMaxBytes = 1024;     // of a message's payload
  static constexpr size_t kMaxWaiting = 65536;

  // `mesh` is connected, has two ranks and serves no one else. `edges` are all that will have ports: their messages may come before those are
  // made, a message of another edge closes the mailbox. `doorbell` is rung when a message comes, one has gone, or it closes; outlives it.
  GlooMailbox(std::shared_ptr<GlooMesh> mesh, uint64_t plan_hash, const std::vector<int32_t>& edges, Doorbell* doorbell);
  // Closes it.
  ~GlooMailbox();

  // The end of one edge on this worker, once each: rank 0 sends, rank 1 receives. InvalidArgument names the edge: more than kMaxBytes, another
  // end, an emulated link, an edge that was not named, a second port.
  absl::StatusOr<std::unique_ptr<SendPort>> NewSendPort(const ShmEdgeSpec& edge);
  absl::StatusOr<std::unique_ptr<RecvPort>> NewRecvPort(const ShmEdgeSpec& edge);

  // Ends it with `cause`; what has come can still be taken. From any thread; the first cause stays.
  void Close(const absl::Status& cause);
  // Why it is closed; OK while it works. A peer's death is seen at once.
  absl::Status Health() const;

 private:
  class Engine;
  class Sender;
  class Receiver;
  absl::Status CheckEdge(const ShmEdgeSpec& edge, int rank) const;

  const std::shared_ptr<Engine> engine_;
};

}  // namespace weft
