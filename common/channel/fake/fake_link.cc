#include "common/channel/fake/fake_link.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"

namespace weft {
namespace {

constexpr Nanos kUnissued = std::numeric_limits<Nanos>::min();
constexpr int kReleasedPattern = 0xDB;

void Ring(Doorbell* bell) {
  if (bell != nullptr) bell->Ring();
}

}  // namespace

struct FakeLink::State {
  struct Slot {
    MessageHeader header;
    Tensor source;                 // not copied yet while defined
    std::shared_ptr<void> memory;  // as large as the largest payload so far
    size_t capacity = 0;
    Nanos sent_at = kUnissued;
    Nanos received_at = kUnissued;
    int64_t received_execution = 0;
    Nanos delay = 0;
  };

  State(ShmEdgeSpec s, Options o) : spec(std::move(s)), options(std::move(o)), slots(spec.slots) {}

  Slot& At(uint64_t number) WEFT_REQUIRES(mu) { return slots[number % slots.size()]; }

  // When the transfer of `number` ends; kUnknown while an end has not issued it.
  Nanos End(uint64_t number) WEFT_REQUIRES(mu) {
    const Slot& s = At(number);
    if (s.sent_at == kUnissued || (spec.rendezvous && s.received_at == kUnissued)) return Event::kUnknown;
    Nanos end = s.sent_at;
    if (spec.rendezvous) {
      const uint64_t bytes = s.header.error_code != 0 ? spec.bytes : s.header.bytes;
      end = SaturatingAdd(std::max(end, s.received_at), TransferTime(spec, bytes));
    }
    return SaturatingAdd(end, s.delay);
  }

  void Copy(Slot* s) WEFT_REQUIRES(mu) {
    if (!s->source.defined()) return;
    const size_t bytes = s->source.bytes();
    if (s->memory == nullptr || s->capacity < bytes) {
      s->capacity = std::max<size_t>(64, (bytes + 63) / 64 * 64);
      s->memory = std::shared_ptr<void>(std::aligned_alloc(64, s->capacity), std::free);
    }
    if (bytes > 0) std::memcpy(s->memory.get(), s->source.data(), bytes);
    s->source = Tensor();
  }

  void CloseLocked(const absl::Status& cause) WEFT_REQUIRES(mu) {
    if (closed.ok()) closed = cause.ok() ? absl::CancelledError("the link was closed") : cause;
  }

  const ShmEdgeSpec spec;
  const Options options;
  Mutex mu;
  std::vector<Slot> slots WEFT_GUARDED_BY(mu);
  uint64_t sent WEFT_GUARDED_BY(mu) = 0;      // messages issued by the sender
  uint64_t received WEFT_GUARDED_BY(mu) = 0;  // receives issued
  uint64_t released WEFT_GUARDED_BY(mu) = 0;
  uint64_t credited WEFT_GUARDED_BY(mu) = 0;  // == released but for dropped credits
  bool credit_dropped WEFT_GUARDED_BY(mu) = false;
  bool starved WEFT_GUARDED_BY(mu) = false;   // the sender was told to wait, so it is rung
  absl::Status closed WEFT_GUARDED_BY(mu);
};

class FakeLink::SendEvent : public Event {
 public:
  SendEvent(std::shared_ptr<State> state, uint64_t number) : state_(std::move(state)), number_(number) {}

  bool Ready() const override {
    MutexLock lock(&state_->mu);
    if (number_ < state_->released) return true;  // the slot may serve another message already
    const bool over = !state_->closed.ok() || state_->options.clock->Now() >= state_->End(number_);
    if (over) state_->Copy(&state_->At(number_));
    return over;
  }
  Nanos ReadyAt() const override {
    MutexLock lock(&state_->mu);
    return number_ < state_->released ? 0 : state_->End(number_);
  }

 private:
  const std::shared_ptr<State> state_;
  const uint64_t number_;
};

class FakeLink::Sender : public SendPort {
 public:
  explicit Sender(std::shared_ptr<State> state) : state_(std::move(state)) {}

  EventRef Released() override {
    class ReleasedEvent : public Event {
     public:
      ReleasedEvent(std::shared_ptr<State> state, uint64_t number) : state_(std::move(state)), number_(number) {}
      bool Ready() const override {
        MutexLock lock(&state_->mu);
        return !state_->closed.ok() || state_->credited > number_;
      }

     private:
      const std::shared_ptr<State> state_;
      const uint64_t number_;
    };
    MutexLock lock(&state_->mu);
    return std::make_shared<ReleasedEvent>(state_, state_->sent - 1);
  }

  PortState Poll(int64_t) override {
    MutexLock lock(&state_->mu);
    if (!state_->closed.ok()) return PortState::kClosed;
    state_->starved = state_->sent - state_->credited >= state_->slots.size();
    return state_->starved ? PortState::kWaiting : PortState::kReady;
  }

  absl::StatusOr<EventRef> Send(int64_t execution, const Value& value, Stream*) override {
    const Options& o = state_->options;
    const absl::Status fits = CheckSendable(state_->spec, value);
    if (!fits.ok()) return fits;
    bool at_once = false;
    uint64_t number = 0;
    {
      MutexLock lock(&state_->mu);
      number = state_->sent;
      if (static_cast<int64_t>(number) == o.fail_send && !failed_) {
        failed_ = true;
        return absl::InternalError(absl::StrCat(EdgeLabel(state_->spec), ": send ", number, " fails as the test wants"));
      }
      if (static_cast<int64_t>(number) == o.close_at_send) {
        state_->CloseLocked(absl::UnavailableError(absl::StrCat(state_->spec.dst_worker, " is gone")));
      }
      if (!state_->closed.ok()) return state_->closed;
      if (number - state_->credited >= state_->slots.size()) {
        return absl::InternalError(absl::StrCat(EdgeLabel(state_->spec), ": send of execution ", execution, " without credit"));
      }
      ++state_->sent;
      State::Slot& s = state_->At(number);
      s.header = MakeHeader(o.plan_hash, state_->spec.edge, execution, number, value.tensor, value.error);
      if (static_cast<int64_t>(number) == o.corrupt) ++s.header.plan_hash;
      s.source = value.error == nullptr ? value.tensor : Tensor();
      s.sent_at = o.clock->Now();
      s.delay = o.delay ? std::max<Nanos>(0, o.delay()) : 0;
      if (!state_->spec.rendezvous && s.delay == 0) {
        state_->Copy(&s);
        at_once = true;
      }
    }
    Ring(o.recv_doorbell);
    return at_once ? EventRef() : EventRef(std::make_shared<SendEvent>(state_, number));
  }

  std::string WaitsFor() const override {
    MutexLock lock(&state_->mu);
    const std::string& peer = state_->spec.dst_worker;
    if (state_->spec.rendezvous && state_->sent > state_->received) {
      return absl::StrCat(peer, " to receive execution ", state_->At(state_->received).header.execution);
    }
    const uint64_t taken = state_->sent - state_->credited;
    if (taken == 0) return absl::StrCat(peer, " to take a value");
    return absl::StrCat(peer, " to release execution ", state_->At(state_->credited).header.execution, " (", taken, " of ",
                        state_->slots.size(), " slots taken)");
  }

  absl::Status closed() const override {
    MutexLock lock(&state_->mu);
    return state_->closed;
  }

 private:
  const std::shared_ptr<State> state_;
  bool failed_ = false;
};

class FakeLink::RecvEvent : public Event {
 public:
  RecvEvent(std::shared_ptr<State> state, uint64_t number, int64_t execution, Value* out)
      : state_(std::move(state)), number_(number), execution_(execution), out_(out) {}

  bool Ready() const override {
    MutexLock lock(&state_->mu);
    if (filled_) return true;
    const bool came = state_->sent > number_;
    if (came && state_->options.clock->Now() >= state_->End(number_)) {
      Fill(&state_->At(number_));
    } else if (!came && !state_->closed.ok()) {
      out_->error = EdgeError(state_->spec, execution_, state_->closed);
    } else {
      return false;
    }
    filled_ = true;
    return true;
  }
  Nanos ReadyAt() const override {
    MutexLock lock(&state_->mu);
    return filled_ ? 0 : state_->End(number_);
  }

 private:
  void Fill(State::Slot* s) const WEFT_REQUIRES(state_->mu) {
    state_->Copy(s);
    const absl::Status ok =
        CheckHeader(s->header, state_->options.plan_hash, state_->spec.edge, execution_, number_, state_->spec.spec);
    out_->error = ok.ok() ? ErrorOf(s->header) : EdgeError(state_->spec, execution_, ok);
    if (out_->error == nullptr) {
      out_->tensor = Tensor(static_cast<DType>(s->header.dtype), DimsOf(s->header), s->memory.get(), s->memory);
    }
  }

  const std::shared_ptr<State> state_;
  const uint64_t number_;
  const int64_t execution_;
  Value* const out_;
  mutable bool filled_ = false;  // guarded by the state's mutex
};

class FakeLink::Receiver : public RecvPort {
 public:
  explicit Receiver(std::shared_ptr<State> state) : state_(std::move(state)) {}

  PortState Poll(int64_t execution) override {
    MutexLock lock(&state_->mu);
    polled_ = execution;
    if (state_->sent > state_->received) return PortState::kReady;
    if (!state_->closed.ok()) return PortState::kClosed;
    const bool place = state_->received - state_->released < state_->slots.size();
    return state_->spec.rendezvous && place ? PortState::kReady : PortState::kWaiting;
  }

  absl::StatusOr<EventRef> Recv(int64_t execution, const Tensor&, Value* out, Stream*) override {
    uint64_t number = 0;
    {
      MutexLock lock(&state_->mu);
      number = state_->received;
      if (state_->sent <= number) {
        if (!state_->closed.ok()) return state_->closed;
        if (!state_->spec.rendezvous || number - state_->released >= state_->slots.size()) {
          return absl::InternalError(absl::StrCat(EdgeLabel(state_->spec), ": receive of execution ", execution, " too early"));
        }
      }
      ++state_->received;
      state_->At(number).received_at = state_->options.clock->Now();
      state_->At(number).received_execution = execution;
    }
    *out = Value();
    if (state_->spec.rendezvous) Ring(state_->options.send_doorbell);
    auto event = std::make_shared<RecvEvent>(state_, number, execution, out);
    return !state_->spec.rendezvous && event->Ready() ? EventRef() : EventRef(event);
  }

  void Release(int64_t) override {
    bool starved = false;
    {
      MutexLock lock(&state_->mu);
      if (state_->released == state_->received) return;
      State::Slot& s = state_->At(state_->released);
      if (s.memory != nullptr && s.capacity > 0) std::memset(s.memory.get(), kReleasedPattern, s.capacity);
      s.source = Tensor();
      s.sent_at = s.received_at = kUnissued;
      if (static_cast<int64_t>(state_->released) == state_->options.drop_credit) state_->credit_dropped = true;
      ++state_->released;
      state_->credited = state_->released - (state_->credit_dropped ? 1 : 0);
      starved = state_->starved;
    }
    if (starved) Ring(state_->options.send_doorbell);
  }

  bool ZeroCopy() const override { return true; }

  std::string WaitsFor() const override {
    MutexLock lock(&state_->mu);
    const std::string verb = state_->spec.rendezvous ? " to send" : " to write";
    const uint64_t held = state_->received - state_->released;
    if (state_->spec.rendezvous && held >= state_->slots.size() && state_->sent >= state_->received) {
      return absl::StrCat("a value received here to be released (", held, " of ", state_->slots.size(), " slots taken)");
    }
    const int64_t execution = state_->sent < state_->received ? state_->At(state_->sent).received_execution : polled_;
    return absl::StrCat(state_->spec.src_worker, verb, " execution ", execution);
  }

  absl::Status closed() const override {
    MutexLock lock(&state_->mu);
    return state_->closed;
  }

 private:
  const std::shared_ptr<State> state_;
  int64_t polled_ = 0;
};

FakeLink::FakeLink(ShmEdgeSpec spec, Options options) : state_(std::make_shared<State>(std::move(spec), std::move(options))) {}
FakeLink::~FakeLink() = default;

std::unique_ptr<SendPort> FakeLink::TakeSendPort() { return std::make_unique<Sender>(state_); }
std::unique_ptr<RecvPort> FakeLink::TakeRecvPort() { return std::make_unique<Receiver>(state_); }

void FakeLink::Close(const absl::Status& cause) {
  {
    MutexLock lock(&state_->mu);
    state_->CloseLocked(cause);
  }
  Ring(state_->options.send_doorbell);
  Ring(state_->options.recv_doorbell);
}

std::pair<std::unique_ptr<SendPort>, std::unique_ptr<RecvPort>> FakeLink::Make(ShmEdgeSpec spec, Options options) {
  FakeLink link(std::move(spec), std::move(options));
  return {link.TakeSendPort(), link.TakeRecvPort()};
}

}  // namespace weft
