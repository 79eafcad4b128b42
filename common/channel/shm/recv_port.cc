#include "common/channel/shm/recv_port.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"

namespace weft {

// What the port shares with the events of receives that are under way, which may outlive it.
class ShmRecvPort::Ring {
 public:
  Ring(std::shared_ptr<ShmSegment> segment, ShmEdgeSpec spec, int index, const Clock* clock)
      : segment_(std::move(segment)), spec_(std::move(spec)), index_(index), clock_(clock), grown_(spec_.slots) {}

  ShmSegment* segment() const { return segment_.get(); }
  const ShmEdgeSpec& spec() const { return spec_; }
  const Clock* clock() const { return clock_; }
  uint64_t slots() const { return static_cast<uint64_t>(spec_.slots); }
  shm::SlotControl* control(uint64_t number) const { return segment_->control(index_, number); }
  shm::EdgeRing* counts() const { return segment_->ring(index_); }
  const void* payload(uint64_t number) const { return segment_->payload(index_, number); }

  // Whether message `number` lies in its slot. What cannot be there closes the segment.
  bool Came(uint64_t number) const {
    const uint64_t sent = control(number)->sent.load(std::memory_order_acquire);
    if (sent == number + 1) return true;
    if (sent != (number < slots() ? 0 : number + 1 - slots())) {
      segment_->Close(absl::DataLossError(absl::StrCat(EdgeLabel(spec_), ": message ", sent, " lies where message ", number + 1,
                                                       " was due: the shared memory is damaged, restart ", segment_->peer())));
    }
    return false;
  }

  // When the transfer of a message that came began on an emulated link.
  Nanos Begin(uint64_t number, Nanos received_at) const { return std::max(control(number)->sent_at, received_at); }
  // When the transfer of a message that came ends, its receive issued at `received_at`.
  Nanos End(uint64_t number, Nanos received_at) const {
    if (!spec_.rendezvous) return 0;
    const shm::SlotControl* slot = control(number);
    const uint64_t bytes = slot->header.error_code != 0 ? spec_.bytes : slot->header.bytes;
    return SaturatingAdd(std::max(slot->sent_at, received_at), TransferTime(spec_, std::min(bytes, kMaxTensorBytes)));
  }

  // Pre: Came(number).
  void Fill(uint64_t number, int64_t execution, Value* out) {
    const absl::Status s = TryFill(number, execution, out);
    if (s.ok()) return;
    out->tensor = Tensor();
    out->error = EdgeError(spec_, execution, s);
  }

 private:
  absl::Status TryFill(uint64_t number, int64_t execution, Value* out) WEFT_EXCLUDES(mu_) {
    const shm::SlotControl* slot = control(number);
    // A copy: what is checked is what is used. The error's texts are only there with an error.
    MessageHeader h;
    constexpr size_t kValuePart = offsetof(MessageHeader, error_execution);
    std::memcpy(static_cast<void*>(&h), &slot->header, kValuePart);
    if (h.error_code != 0) {
      std::memcpy(reinterpret_cast<char*>(&h) + kValuePart, reinterpret_cast<const char*>(&slot->header) + kValuePart,
                  sizeof h - kValuePart);
    }
    WEFT_RETURN_IF_ERROR(CheckHeader(h, segment_->plan_hash(), spec_.edge, execution, number, spec_.spec));
    out->error = ErrorOf(h);
    if (out->error != nullptr) return absl::OkStatus();
    char* data = segment_->payload(index_, number);
    std::shared_ptr<shm::Mapping> place = segment_->base();
    if (spec_.bytes == 0 && h.bytes > 0) {
      const uint64_t offset = slot->grown_offset;
      const uint64_t capacity = slot->grown_capacity;
      if (capacity < h.bytes) {
        return absl::DataLossError(absl::StrCat("a value of ", h.bytes, " bytes came in a slot of ", capacity));
      }
      MutexLock lock(&mu_);
      std::shared_ptr<shm::Mapping>& known = grown_[number % slots()];
      if (known == nullptr || known->offset() != offset || known->bytes() != capacity) {
        WEFT_ASSIGN_OR_RETURN(known, segment_->MapGrown(offset, capacity));
      }
      place = known;
      data = known->data();
    } else if (h.bytes > spec_.bytes) {
      return absl::OutOfRangeError(absl::StrCat("a value of ", h.bytes, " bytes came, ", spec_.bytes, " are reserved"));
    }
    out->tensor = Tensor(static_cast<DType>(h.dtype), DimsOf(h), data, std::move(place));
    return absl::OkStatus();
  }

  const std::shared_ptr<ShmSegment> segment_;
  const ShmEdgeSpec spec_;
  const int index_;
  const Clock* const clock_;
  Mutex mu_;
  std::vector<std::shared_ptr<shm::Mapping>> grown_ WEFT_GUARDED_BY(mu_);  // of each slot
};

// A receive that was issued before its transfer ended. Fills the value on the first Ready() after it.
class ShmRecvPort::RecvEvent : public Event {
 public:
  RecvEvent(std::shared_ptr<Ring> ring, uint64_t number, int64_t execution, Nanos received_at, Value* out)
      : ring_(std::move(ring)), number_(number), execution_(execution), received_at_(received_at), out_(out) {}

  bool Ready() const override {
    if (over_.load(std::memory_order_acquire)) return true;
    MutexLock lock(&mu_);
    if (over_.load(std::memory_order_relaxed)) return true;
    if (ring_->Came(number_)) {
      if (ring_->clock()->Now() < ring_->End(number_, received_at_)) return false;
      if (ring_->spec().rendezvous) started_.store(ring_->Begin(number_, received_at_), std::memory_order_relaxed);
      ring_->Fill(number_, execution_, out_);
    } else if (ring_->segment()->is_closed()) {
      if (ring_->Came(number_)) return false;  // it came just before: next time
      out_->error = EdgeError(ring_->spec(), execution_, ring_->segment()->closed());
    } else {
      return false;
    }
    over_.store(true, std::memory_order_release);
    return true;
  }
  Nanos ReadyAt() const override {
    if (over_.load(std::memory_order_acquire)) return 0;
    return ring_->Came(number_) ? ring_->End(number_, received_at_) : kUnknown;
  }

  Nanos StartedAt() const override { return started_.load(std::memory_order_relaxed); }

  // The port is gone, and with it whoever waits for the value: `out` may be too.
  void Cancel() {
    MutexLock lock(&mu_);
    over_.store(true, std::memory_order_release);
  }

 private:
  const std::shared_ptr<Ring> ring_;
  const uint64_t number_;
  const int64_t execution_;
  const Nanos received_at_;
  Value* const out_;
  mutable Mutex mu_;
  mutable std::atomic<bool> over_{false};
  mutable std::atomic<Nanos> started_{-1};
};

absl::StatusOr<std::unique_ptr<ShmRecvPort>> ShmRecvPort::Create(std::shared_ptr<ShmSegment> segment, const ShmEdgeSpec& expected,
                                                                 const Clock* clock) {
  if (segment->is_writer()) return absl::InvalidArgumentError("a receiving port needs the reader's end of the shared memory");
  WEFT_RETURN_IF_ERROR(CheckEdgeSpec(expected));
  WEFT_ASSIGN_OR_RETURN(const int index, segment->Find(expected.edge));
  const ShmEdgeSpec& made = segment->edges()[index];
  const auto differs = [&](const std::string& field, const std::string& theirs, const std::string& ours) {
    return absl::FailedPreconditionError(absl::StrCat(EdgeLabel(expected), ": ", segment->peer(), " made it with ", field, " ", theirs,
                                                      ", the plan here says ", ours, ": compile the graph again"));
  };
  if (made.slots != expected.slots) return differs("slots", absl::StrCat(made.slots), absl::StrCat(expected.slots));
  if (made.bytes != expected.bytes) return differs("bytes", absl::StrCat(made.bytes), absl::StrCat(expected.bytes));
  if (!(made.spec == expected.spec)) return differs("value", made.spec.ToString(), expected.spec.ToString());
  if (made.rendezvous != expected.rendezvous || made.latency_s != expected.latency_s || made.bandwidth != expected.bandwidth) {
    return differs("link", absl::StrCat(made.latency_s, " s, ", made.bandwidth, " B/s"),
                   absl::StrCat(expected.latency_s, " s, ", expected.bandwidth, " B/s"));
  }
  return std::unique_ptr<ShmRecvPort>(new ShmRecvPort(std::make_shared<Ring>(std::move(segment), expected, index, clock)));
}

ShmRecvPort::ShmRecvPort(std::shared_ptr<Ring> ring) : ring_(std::move(ring)) {}

ShmRecvPort::~ShmRecvPort() {
  for (const std::weak_ptr<RecvEvent>& e : pending_) {
    if (const std::shared_ptr<RecvEvent> event = e.lock()) event->Cancel();
  }
}

PortState ShmRecvPort::Poll(int64_t execution) {
  polled_ = execution;
  // Asked before: a message that came before the end was closed is seen.
  const bool closed = ring_->segment()->is_closed();
  const bool place = received_ - released_ < ring_->slots();
  if (place && ring_->Came(received_)) return PortState::kReady;
  if (closed || ring_->segment()->is_closed()) return PortState::kClosed;
  return place && ring_->spec().rendezvous ? PortState::kReady : PortState::kWaiting;
}

absl::StatusOr<EventRef> ShmRecvPort::Recv(int64_t execution, const Tensor&, Value* out, Stream*) {
  const PortState state = Poll(execution);
  if (state == PortState::kClosed) return closed();
  if (state == PortState::kWaiting) {
    return absl::InternalError(absl::StrCat(EdgeLabel(ring_->spec()), ": receive of execution ", execution, " too early"));
  }
  *out = Value();
  const uint64_t number = received_++;
  if (!ring_->spec().rendezvous) {
    ring_->Fill(number, execution, out);
    return EventRef();
  }
  const Nanos now = ring_->clock()->Now();
  shm::SlotControl* const slot = ring_->control(number);
  slot->received_at.store(now, std::memory_order_relaxed);
  slot->received.store(number + 1, std::memory_order_release);
  ring_->segment()->RingPeer();
  auto event = std::make_shared<RecvEvent>(ring_, number, execution, now, out);
  pending_.resize(ring_->slots());
  executions_.resize(ring_->slots());
  pending_[number % ring_->slots()] = event;
  executions_[number % ring_->slots()] = execution;
  return EventRef(std::move(event));
}

void ShmRecvPort::Release(int64_t) {
  if (released_ == received_) return;
  shm::EdgeRing* const counts = ring_->counts();
  counts->released.store(++released_, std::memory_order_seq_cst);
  if (counts->starved.load(std::memory_order_seq_cst) != 0) ring_->segment()->RingPeer();
}

absl::StatusOr<const void*> ShmRecvPort::Place(int ahead, size_t bytes) {
  if (bytes > ring_->spec().bytes) return nullptr;
  return ring_->payload(received_ + static_cast<uint64_t>(ahead));
}

std::string ShmRecvPort::WaitsFor() const {
  const ShmEdgeSpec& spec = ring_->spec();
  if (!spec.rendezvous) return absl::StrCat(spec.src_worker, " to write execution ", polled_);
  for (uint64_t n = released_; n < received_; ++n) {
    if (!ring_->Came(n)) return absl::StrCat(spec.src_worker, " to send execution ", executions_[n % ring_->slots()]);
  }
  const uint64_t held = received_ - released_;
  if (held >= ring_->slots()) {
    return absl::StrCat("a value received here to be released (", held, " of ", ring_->slots(), " slots taken)");
  }
  return absl::StrCat(spec.src_worker, " to send execution ", polled_);
}

absl::Status ShmRecvPort::closed() const { return ring_->segment()->closed(); }

}  // namespace weft
