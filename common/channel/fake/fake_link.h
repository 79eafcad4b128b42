#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "common/base/clock.h"
#include "common/channel/doorbell.h"
#include "common/channel/port.h"
#include "common/channel/shm/edge_spec.h"

namespace weft {

// Both ends of one edge within one process, for tests: the semantics of the shared-memory channel, buffered and rendezvous, with an
// injected clock and faults on request. Each end may be used by a thread of its own.
//
// Stricter than the real one where that finds bugs: a payload is copied as late as the contract allows, so a buffer that is
// overwritten before its send is done shows; and a slot is overwritten when it is released, so a late reader shows.
class FakeLink {
 public:
  struct Options {
    Clock* clock = Clock::Real();
    uint64_t plan_hash = 0;
    // Rung as the real channel rings; either may be nullptr. They outlive the ports.
    Doorbell* send_doorbell = nullptr;
    Doorbell* recv_doorbell = nullptr;
    // Asked once for each message: by how much its transfer is later than it would be. Called under the link's lock.
    std::function<Nanos()> delay;
    // Faults, by message number from 0; -1: never.
    int64_t fail_send = -1;      // this Send returns Internal and moves nothing
    int64_t close_at_send = -1;  // this Send finds the peer gone: the link closes, as a killed peer's does
    int64_t corrupt = -1;        // this message's header is of another plan
    int64_t drop_credit = -1;    // this Release is lost for the sender
  };

  // Pre: CheckEdgeSpec(spec) is OK.
  FakeLink(ShmEdgeSpec spec, Options options);
  ~FakeLink();

  // Each end once; they keep what they share alive without the link.
  std::unique_ptr<SendPort> TakeSendPort();
  std::unique_ptr<RecvPort> TakeRecvPort();

  // As if the link broke: both ends see it, messages that had come can still be received. The first cause stays. From any thread.
  void Close(const absl::Status& cause);

  // Both ends of a link without the link.
  static std::pair<std::unique_ptr<SendPort>, std::unique_ptr<RecvPort>> Make(ShmEdgeSpec spec, Options options);

 private:
  struct State;
  class Sender;
  class Receiver;
  class SendEvent;
  class RecvEvent;
  const std::shared_ptr<State> state_;
};

}  // namespace weft
