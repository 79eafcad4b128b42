#pragma once

// The edges of one graph between two places that share no memory, over one ordered stream of messages: the header of each value first,
// then its bytes in pieces of at most 1 MiB. Credits are counted by the sender and come back as release messages, so a reader never
// holds more than the edge's slots. Also carries, from the client's end, the highest admitted execution.

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/channel/doorbell.h"
#include "common/channel/port.h"
#include "common/channel/remote/message_pipe.h"
#include "common/plan/plan.h"

namespace weft {

// Thread-safe; each port is used by one thread. Nothing that the peer sends is relied upon: what breaks the rules closes the link with
// words, what only does not fit the edge becomes an error in the value's place.
class RemoteLink : public std::enable_shared_from_this<RemoteLink> {
 public:
  static constexpr size_t kPieceBytes = 1 << 20;
  // Most bytes of a value of an edge with `?` dimensions, whose declaration bounds nothing.
  static constexpr uint64_t kMaxDynamicBytes = uint64_t{4} << 30;

  struct Options {
    std::shared_ptr<const Plan> plan;  // whole, or this worker's part
    int32_t me = kClient;              // place of this end
    int32_t peer = kClient;
    Doorbell* doorbell = nullptr;      // rung when a value, a credit, an admission or the end comes; outlives the link
  };

  // Carries the plan's REMOTE edges between the two places.
  static std::shared_ptr<RemoteLink> Create(Options options, std::shared_ptr<MessagePipe> pipe);

  // By the thread that reads the stream, in order.
  void OnMessage(const v1::DataMessage& message);
  void OnClosed(const absl::Status& why);

  // Each edge's end once. NotFound when the link does not carry the edge that way. Ports keep the link alive.
  absl::StatusOr<std::unique_ptr<SendPort>> TakeSendPort(int32_t edge);
  absl::StatusOr<std::unique_ptr<RecvPort>> TakeRecvPort(int32_t edge);

  // The client's end publishes, the worker's end reads; -1 before the first.
  void PublishAdmitted(int64_t execution);
  int64_t admitted() const { return admitted_.load(std::memory_order_acquire); }

  // Ends the stream; the first cause stays. What had come can still be received.
  void Close(const absl::Status& cause);
  absl::Status closed() const;

 private:
  class Sender;
  class Receiver;
  struct OutEdge {
    const PlanEdge* edge = nullptr;
    bool taken = false;
    uint64_t sent = 0;
    uint64_t released = 0;
    std::deque<int64_t> unreleased;  // executions, oldest first
  };
  struct Message {
    MessageHeader header;
    int64_t execution = 0;
    Tensor tensor;
  };
  struct InEdge {
    const PlanEdge* edge = nullptr;
    bool port_taken = false;
    bool assembling = false;
    Message current;
    uint64_t current_bytes = 0;
    std::deque<Message> ready;
    uint64_t received = 0;   // messages taken by the port
    std::deque<int64_t> taken;  // executions that the port has and did not release
    int unreleased = 0;      // messages that came and were not released: at most the edge's slots
  };

  RemoteLink(Options options, std::shared_ptr<MessagePipe> pipe);
  absl::Status OnPiece(const v1::DataPiece& piece) WEFT_REQUIRES(mu_);
  absl::Status BeginMessage(const v1::DataPiece& piece, InEdge* in) WEFT_REQUIRES(mu_);
  absl::Status OnRelease(const v1::DataRelease& release) WEFT_REQUIRES(mu_);
  std::string NameOf(const PlanEdge& edge) const { return EdgeName(*options_.plan, edge); }
  std::string PeerName() const { return WorkerName(*options_.plan, options_.peer); }

  const Options options_;
  const uint64_t plan_hash_;
  const std::shared_ptr<MessagePipe> pipe_;
  std::atomic<int64_t> admitted_{-1};
  mutable Mutex mu_;
  std::map<int32_t, OutEdge> out_ WEFT_GUARDED_BY(mu_);
  std::map<int32_t, InEdge> in_ WEFT_GUARDED_BY(mu_);
  absl::Status closed_ WEFT_GUARDED_BY(mu_);
};

}  // namespace weft
