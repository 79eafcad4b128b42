#include "common/channel/nccl/send_port.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/nccl/announcement.h"
#include "common/channel/nccl/capture_ports.h"
#include "common/channel/nccl/transfer.h"
#include "common/comm/nccl/nccl_capture.h"
#include "common/session/edge_trial.h"

namespace weft {

namespace {

// A value and its status word, where it has one, as one transfer.
int PutSend(NcclApi* api, NcclCommHandle comm, const Tensor& value, const DeviceStatus* status, CudaStreamHandle s) {
  return NcclTransfer::Transfer(api, [&](NcclTransfer::Calls* calls) {
    if (value.bytes() > 0) calls->Note(api->Send(value.data(), value.bytes(), kNcclUint8, 1, comm, s));
    if (status != nullptr) calls->Note(api->Send(status, sizeof(DeviceStatus), kNcclUint8, 1, comm, s));
  });
}

}  // namespace

// An announcement that may have to wait for its value.
class NcclSendPort::Announcing {
 public:
  // `moves`: a transfer follows, and orders the ends by itself.
  Announcing(NcclSendPort* port, int64_t execution, bool moves, EventRef value, EventRef ahead)
      : port_(port), execution_(execution), moves_(moves), value_(std::move(value)), ahead_(std::move(ahead)) {}

  NcclAnnouncement announcement;

  bool waits() const { return waits_; }
  // Given to the host channel, which reads it no more; or it never will be.
  bool Over() const { return !waits_ && IsReady(sent_); }
  // The receiver is at it, and will launch its part.
  bool Taken() const { return !waits_ && IsReady(taken_); }
  int64_t execution() const { return execution_; }
  void Cancel() { waits_ = false; }

  // True when there is nothing left to do.
  bool Try() {
    if (!waits_) return true;
    NcclComm* const comm = port_->link_->comm();
    if (!comm->cause().ok()) {
      waits_ = false;
      return true;
    }
    if ((!IsReady(value_) || !IsReady(ahead_)) && !(moves_ && port_->link_->AtOnce())) return false;
    waits_ = false;
    const absl::Status s = Give();
    if (!s.ok()) comm->Abort(absl::Status(s.code(), absl::StrCat(EdgeLabel(port_->edge_), ": its announcement: ", std::string(s.message()))));
    return true;
  }

 private:
  absl::Status Give() {
    const size_t bytes = announcement.header.error_code != 0 ? sizeof announcement : kNcclShortAnnouncement;
    Value v;
    WEFT_ASSIGN_OR_RETURN(v.tensor, Tensor::OnHost(v1::U8, {static_cast<int64_t>(bytes)}));
    std::memcpy(v.tensor.data(), &announcement, bytes);
    WEFT_ASSIGN_OR_RETURN(sent_, port_->header_port_->Send(execution_, v, nullptr));
    if (port_->link_->options_.send_when_taken) taken_ = port_->header_port_->Released();
    return absl::OkStatus();
  }

  NcclSendPort* const port_;  // not used after Cancel
  const int64_t execution_;
  const bool moves_;
  const EventRef value_, ahead_;
  bool waits_ = true;
  EventRef sent_, taken_;
};

// Of a value that moves nothing but its announcement.
class NcclSendPort::AnnouncedEvent : public Event {
 public:
  AnnouncedEvent(std::shared_ptr<Announcing> announcing, std::weak_ptr<NcclQueue> queue)
      : announcing_(std::move(announcing)), queue_(std::move(queue)) {}
  bool Ready() const override {
    Pump();
    return announcing_->Over();
  }
  void MoveOn() override { Pump(); }

 private:
  void Pump() const {
    if (!announcing_->waits()) return;
    if (const std::shared_ptr<NcclQueue> queue = queue_.lock()) queue->Pump();
  }

  const std::shared_ptr<Announcing> announcing_;
  const std::weak_ptr<NcclQueue> queue_;
};

class NcclSendPort::Sending : public NcclTransfer {
 public:
  // A value with an error is the trial's. `replay`: of a captured call; below 0: none.
  Sending(const std::shared_ptr<NcclLink>& link, const ShmEdgeSpec& edge, int64_t execution, Stream* stream, Value value,
          std::shared_ptr<Announcing> announcing, int replay)
      : NcclTransfer(link, edge, execution, stream),
        replay_(replay),
        value_(std::move(value)),
        announcing_(std::move(announcing)),
        when_taken_(link->options_.send_when_taken && edge.bytes >= NcclLink::kLateBytes && value_.error == nullptr) {
    Hold(value_.tensor.owner());
  }

 private:
  bool Promised() const override { return !announcing_->waits(); }
  Turn MyTurn() override {
    const Turn turn = NcclTransfer::MyTurn();
    if (when_taken_ && !link()->AtOnce() && !announcing_->Taken()) return Turn::kWait;
    return turn == Turn::kLaunch && !InputIsOrdered(value_.event) ? Turn::kWait : turn;
  }

  absl::Status Launch() override {
    if (value_.error != nullptr) return LaunchTrial();
    if (replay_ >= 0) return ReplayNccl("sending", replay_);
    return CallNccl("sending", [this](NcclApi* api, NcclCommHandle comm) {
      return PutSend(api, comm, value_.tensor, value_.status, stream()->native());
    });
  }

  absl::Status LaunchTrial() {
    FillTrialPattern(edge().edge, scratch().pattern());
    void* const s = stream()->native();
    WEFT_RETURN_IF_ERROR(Named(device()->Check(device()->api()->MemcpyAsync(scratch().trial(), scratch().pattern(), NcclLink::kTrialBytes, s), "copying to the GPU")));
    return CallNccl("the trial", [&](NcclApi* api, NcclCommHandle comm) {
      return api->Send(scratch().trial(), NcclLink::kTrialBytes, kNcclUint8, 1, comm, s);
    });
  }

  // The device may be done before the receiver was told: small values go into NCCL's own buffers.
  bool MayFinish() override { return announcing_->Over(); }
  void Finish(const absl::Status&) override { value_ = Value(); }  // the receiver sees the link fail

  const int replay_;
  Value value_;
  const std::shared_ptr<Announcing> announcing_;
  const bool when_taken_;
};

NcclSendPort::NcclSendPort(std::shared_ptr<NcclLink> link, ShmEdgeSpec edge, std::unique_ptr<SendPort> header_port)
    : link_(std::move(link)), edge_(std::move(edge)), header_port_(std::move(header_port)) {}

NcclSendPort::~NcclSendPort() {
  if (announcing_ != nullptr) announcing_->Cancel();
  for (const std::weak_ptr<Sending>& w : outstanding_) {
    if (const std::shared_ptr<Sending> s = w.lock()) s->Cancel();
  }
}

absl::Status NcclSendPort::closed() const {
  WEFT_RETURN_IF_ERROR(link_->comm()->cause());
  return header_port_->closed();
}

PortState NcclSendPort::Poll(int64_t execution) {
  link_->options_.queue->Pump();
  if (!link_->comm()->cause().ok()) return PortState::kClosed;
  if (announcing_ != nullptr && announcing_->waits()) return PortState::kWaiting;
  return header_port_->Poll(execution);
}

absl::StatusOr<EventRef> NcclSendPort::Send(int64_t execution, const Value& value, Stream* stream) {
  WEFT_RETURN_IF_ERROR(CheckSendable(edge_, value));
  const PortState state = Poll(execution);
  if (state == PortState::kClosed) return closed();
  if (state == PortState::kWaiting) {
    return absl::InternalError(absl::StrCat(EdgeLabel(edge_), ": send of execution ", execution, " without credit"));
  }
  const bool trial = execution == kTrialExecution && value.error != nullptr;
  const bool moves = value.error != nullptr ? trial : value.tensor.bytes() > 0 || value.status != nullptr;
  if (moves && stream == nullptr) return absl::InvalidArgumentError(absl::StrCat(EdgeLabel(edge_), ": a send over NCCL needs a stream"));
  if (trial && link_->InTrial()) {
    return absl::FailedPreconditionError(absl::StrCat(EdgeLabel(edge_), ": another trial is under way"));
  }

  EventRef value_ready, ahead;
  if (value.error == nullptr && (!moves || edge_.bytes >= NcclLink::kLateBytes)) value_ready = value.event;
  if (value.error == nullptr && !moves && stream != nullptr) {
    WEFT_ASSIGN_OR_RETURN(ahead, link_->options_.device->Record(stream->native()));
  }
  auto announcing = std::make_shared<Announcing>(this, execution, moves, std::move(value_ready), std::move(ahead));
  NcclAnnouncement& a = announcing->announcement;
  a.header = MakeHeader(link_->options_.plan_hash, edge_.edge, execution, sequence_++, value.tensor, value.error);
  std::shared_ptr<Sending> sending;
  if (moves) {
    a.transfer = link_->transfers_;
    if (!trial && value.status != nullptr) a.flags |= NcclAnnouncement::kHasStatus;
    const int replay = trial ? -1 : replays_.Find(value.tensor.data(), value.tensor.bytes(), value.status);
    sending = std::make_shared<Sending>(link_, edge_, execution, stream, value, announcing, replay);
    if (trial) link_->options_.scratch->last_trial = sending;
  }
  announcing_ = announcing;
  if (!announcing->Try()) {
    // The port keeps it while it waits. Kept by the queue, a value that is passed on would keep the queue through its own transfer's event.
    link_->options_.queue->Later([weak = std::weak_ptr<Announcing>(announcing)] {
      const std::shared_ptr<Announcing> waiting = weak.lock();
      return waiting == nullptr || waiting->Try();
    });
  }
  WEFT_RETURN_IF_ERROR(link_->comm()->cause());
  if (sending == nullptr) {
    if (announcing->Over()) return EventRef();
    return EventRef(std::make_shared<AnnouncedEvent>(std::move(announcing), link_->options_.queue));
  }
  while (!outstanding_.empty() && (outstanding_.front().expired() || outstanding_.front().lock()->over())) outstanding_.pop_front();
  outstanding_.push_back(sending);
  link_->options_.queue->Post(sending);
  return EventRef(std::move(sending));
}

std::string NcclSendPort::WaitsFor() const {
  for (const std::weak_ptr<Sending>& w : outstanding_) {
    const std::shared_ptr<Sending> s = w.lock();
    if (s == nullptr || s->over()) continue;
    if (announcing_->waits() && announcing_->execution() == s->execution()) break;
    return s->WaitsFor("receive");
  }
  if (announcing_ != nullptr && announcing_->waits()) {
    return absl::StrCat("the GPU to have the value of execution ", announcing_->execution());
  }
  return header_port_->WaitsFor();
}

absl::Status NcclSendPort::Plan(const Tensor& place, DeviceStatus* status) {
  if (!link_->options_.replay) return absl::OkStatus();
  // Whether a value has its word is known only when it is made.
  for (DeviceStatus* const word : {static_cast<DeviceStatus*>(nullptr), status}) {
    if (place.bytes() == 0 || replays_.full() || replays_.Find(place.data(), place.bytes(), word) >= 0) continue;
    const auto put = [&](NcclApi* api, NcclCommHandle comm, CudaStreamHandle s) {
      return PutSend(api, comm, place, word, s);
    };
    const absl::StatusOr<int> number = CaptureNccl(link_->comm(), "sending", place.owner(), put);
    if (!number.ok()) return replays_.GiveUp(edge_, *link_->comm(), number.status());
    replays_.Add(place.data(), place.bytes(), word, *number);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<CaptureSendPort>> NcclSendPort::ForCapture() {
  return std::shared_ptr<CaptureSendPort>(std::make_shared<NcclCaptureSendPort>(link_, edge_, header_port_.get()));
}

}  // namespace weft
