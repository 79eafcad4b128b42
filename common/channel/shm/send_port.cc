#include "common/channel/shm/send_port.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

// Done when the copy is and, on an emulated link, when the transfer has ended.
class SendEvent : public Event {
 public:
  SendEvent(std::shared_ptr<ShmSegment> segment, const shm::SlotControl* slot, const shm::EdgeRing* ring, uint64_t number, Nanos sent_at,
            Nanos duration, const Clock* clock, EventRef copied)
      : segment_(std::move(segment)),
        slot_(slot),
        ring_(ring),
        number_(number),
        sent_at_(sent_at),
        duration_(duration),
        clock_(clock),
        copied_(std::move(copied)) {}

  bool Ready() const override {
    if (!IsReady(copied_)) return false;
    const Nanos end = duration_ > 0 ? End() : kUnknown;
    if (end != kUnknown && !Over()) started_.store(end - duration_, std::memory_order_relaxed);
    if (Over() || segment_->is_closed()) return true;
    const Nanos at = duration_ > 0 ? end : End();
    return at != kUnknown && clock_->Now() >= at;
  }
  Nanos StartedAt() const override { return started_.load(std::memory_order_relaxed); }
  Nanos ReadyAt() const override {
    if (!IsReady(copied_)) return copied_->ReadyAt();
    return Over() ? 0 : End();
  }

 private:
  // The reader gave the slot back, so it has had the value; the slot may carry another message already.
  bool Over() const { return ring_->released.load(std::memory_order_acquire) > number_; }
  Nanos End() const {
    if (slot_->received.load(std::memory_order_acquire) != number_ + 1) return kUnknown;
    return SaturatingAdd(std::max(sent_at_, slot_->received_at.load(std::memory_order_relaxed)), duration_);
  }

  const std::shared_ptr<ShmSegment> segment_;  // keeps slot and ring
  const shm::SlotControl* const slot_;
  const shm::EdgeRing* const ring_;
  const uint64_t number_;
  const Nanos sent_at_;
  const Nanos duration_;
  const Clock* const clock_;
  const EventRef copied_;
  mutable std::atomic<Nanos> started_{-1};
};

// Ready when the reader has given message `number`'s slot back.
class ReleasedEvent : public Event {
 public:
  ReleasedEvent(std::shared_ptr<ShmSegment> segment, const shm::EdgeRing* ring, uint64_t number)
      : segment_(std::move(segment)), ring_(ring), number_(number) {}
  bool Ready() const override { return ring_->released.load(std::memory_order_acquire) > number_ || segment_->is_closed(); }

 private:
  const std::shared_ptr<ShmSegment> segment_;
  const shm::EdgeRing* const ring_;
  const uint64_t number_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ShmSendPort>> ShmSendPort::Create(std::shared_ptr<ShmSegment> segment, int32_t edge, const Clock* clock) {
  if (!segment->is_writer()) return absl::InvalidArgumentError("a sending port needs the writer's end of the shared memory");
  WEFT_ASSIGN_OR_RETURN(const int index, segment->Find(edge));
  return std::unique_ptr<ShmSendPort>(new ShmSendPort(std::move(segment), index, clock));
}

ShmSendPort::ShmSendPort(std::shared_ptr<ShmSegment> segment, int index, const Clock* clock)
    : segment_(std::move(segment)), index_(index), clock_(clock), executions_(spec().slots), grown_(spec().slots) {}

uint64_t ShmSendPort::ReleasedCount() const {
  const uint64_t now = segment_->ring(index_)->released.load(std::memory_order_seq_cst);
  if (now < released_ || now > sent_) {
    segment_->Close(absl::DataLossError(absl::StrCat(EdgeLabel(spec()), ": ", segment_->peer(), " claims to have released ", now,
                                                     " values after ", released_, ", ", sent_, " were sent: restart that worker")));
  } else {
    released_ = now;
  }
  return released_;
}

// Here the flag is set before the count is read; in Release the count is written before the flag is read. In one total order one
// of the two sees the other's, so no waking is lost.
void ShmSendPort::SetStarved(bool starved) {
  if (starved == starved_) return;
  starved_ = starved;
  segment_->ring(index_)->starved.store(starved ? 1 : 0, std::memory_order_seq_cst);
}

PortState ShmSendPort::PollAhead(int64_t, int ahead) {
  if (segment_->is_closed()) return PortState::kClosed;
  const uint64_t slots = static_cast<uint64_t>(spec().slots);
  const uint64_t next = sent_ + static_cast<uint64_t>(ahead);
  bool credit = next - released_ < slots;  // as known, without touching the reader's line
  if (!credit) credit = next - ReleasedCount() < slots;
  if (!credit && !starved_) {
    SetStarved(true);
    credit = next - ReleasedCount() < slots;
  }
  if (credit) SetStarved(false);
  return segment_->is_closed() ? PortState::kClosed : credit ? PortState::kReady : PortState::kWaiting;
}

PortState ShmSendPort::Poll(int64_t execution) { return PollAhead(execution, 0); }

absl::StatusOr<void*> ShmSendPort::Reserve(int ahead, size_t bytes) {
  if (bytes > spec().bytes) return nullptr;
  return segment_->payload(index_, sent_ + static_cast<uint64_t>(ahead));
}

EventRef ShmSendPort::Released() {
  return std::make_shared<ReleasedEvent>(segment_, segment_->ring(index_), sent_ - 1);
}

absl::StatusOr<std::shared_ptr<shm::Mapping>> ShmSendPort::PlaceFor(uint64_t number, uint64_t bytes, char** data) {
  if (spec().bytes > 0 || bytes == 0) {
    *data = segment_->payload(index_, number);
    return segment_->base();
  }
  std::shared_ptr<shm::Mapping>& place = grown_[number % grown_.size()];
  if (place == nullptr || place->bytes() < bytes) {
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<shm::Mapping> larger, segment_->Grow(bytes));
    if (place != nullptr) segment_->Punch(place->offset(), place->bytes());
    place = std::move(larger);
  }
  *data = place->data();
  return place;
}

absl::StatusOr<EventRef> ShmSendPort::Send(int64_t execution, const Value& value, Stream* stream) {
  WEFT_RETURN_IF_ERROR(CheckSendable(spec(), value));
  const PortState state = Poll(execution);
  if (state == PortState::kClosed) return closed();
  if (state == PortState::kWaiting) {
    return absl::InternalError(absl::StrCat(EdgeLabel(spec()), ": send of execution ", execution, " without credit"));
  }
  const uint64_t number = sent_;
  const size_t bytes = value.error != nullptr ? 0 : value.tensor.bytes();
  char* to = nullptr;
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<shm::Mapping> place, PlaceFor(number, bytes, &to));

  shm::SlotControl* const slot = segment_->control(index_, number);
  const MessageHeader header = MakeHeader(segment_->plan_hash(), spec().edge, execution, number, value.tensor, value.error);
  // A value's header ends before the error's texts: they would be most of what crosses between the processors.
  std::memcpy(&slot->header, &header, value.error != nullptr ? sizeof header : offsetof(MessageHeader, error_execution));
  slot->grown_offset = place == segment_->base() ? 0 : place->offset();
  slot->grown_capacity = place == segment_->base() ? 0 : place->bytes();
  const Nanos now = spec().rendezvous ? clock_->Now() : 0;
  slot->sent_at = now;
  executions_[number % executions_.size()] = execution;
  ++sent_;

  EventRef copied;
  const bool there = bytes > 0 && value.tensor.data() == to;  // made in the slot itself
  if (there || bytes <= kInlineCopyBytes || stream == nullptr) {
    if (bytes > 0 && !there) std::memcpy(to, value.tensor.data(), bytes);
    slot->sent.store(number + 1, std::memory_order_release);
    segment_->RingPeer();
  } else {
    Work work;
    work.where = Work::kThread;
    work.run = [segment = segment_, place, slot, number, to, bytes, tensor = value.tensor] {
      std::memcpy(to, tensor.data(), bytes);
      slot->sent.store(number + 1, std::memory_order_release);
      segment->RingPeer();
      return absl::OkStatus();
    };
    absl::StatusOr<EventRef> launched = stream->Launch(std::move(work));
    if (!launched.ok()) {
      --sent_;
      return launched.status();
    }
    copied = *std::move(launched);
  }
  if (!spec().rendezvous) return copied;
  const Nanos duration = TransferTime(spec(), value.error != nullptr ? spec().bytes : bytes);
  return EventRef(
      std::make_shared<SendEvent>(segment_, slot, segment_->ring(index_), number, now, duration, clock_, std::move(copied)));
}

std::string ShmSendPort::WaitsFor() const {
  const uint64_t released = ReleasedCount();
  const uint64_t slots = static_cast<uint64_t>(spec().slots);
  const std::string& peer = spec().dst_worker;
  if (spec().rendezvous) {
    for (uint64_t n = released; n < sent_; ++n) {
      if (segment_->control(index_, n)->received.load(std::memory_order_acquire) != n + 1) {
        return absl::StrCat(peer, " to receive execution ", executions_[n % slots]);
      }
    }
  }
  if (released == sent_) return absl::StrCat(peer, " to take a value");
  return absl::StrCat(peer, " to release execution ", executions_[released % slots], " (", sent_ - released, " of ", slots,
                      " slots taken)");
}

}  // namespace weft
