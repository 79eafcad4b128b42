#include "common/channel/nccl/recv_port.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/nccl/capture_ports.h"
#include "common/channel/nccl/transfer.h"
#include "common/comm/nccl/nccl_capture.h"
#include "common/session/edge_trial.h"

namespace weft {

namespace {

int PutReceive(NcclApi* api, NcclCommHandle comm, void* to, uint64_t bytes, DeviceStatus* status, CudaStreamHandle s) {
  return NcclTransfer::Transfer(api, [&](NcclTransfer::Calls* calls) {
    if (bytes > 0) calls->Note(api->Recv(to, bytes, kNcclUint8, 0, comm, s));
    if (status != nullptr) calls->Note(api->Recv(status, sizeof(DeviceStatus), kNcclUint8, 0, comm, s));
  });
}

}  // namespace

class NcclRecvPort::Receiving : public NcclTransfer {
 public:
  // `untold`: the port, where the sender is to be told only once the device is done with what is ahead; nullptr: it need not be. `replay`: of a
  // captured call; below 0: none.
  Receiving(const std::shared_ptr<NcclLink>& link, const ShmEdgeSpec& edge, int64_t execution, Stream* stream, const NcclAnnouncement& a,
            Tensor buffer, Value* out, NcclRecvPort* untold, int replay)
      : NcclTransfer(link, edge, execution, stream),
        untold_(untold),
        replay_(replay),
        trial_(a.header.error_code != 0),
        bytes_(a.header.bytes),
        has_status_((a.flags & NcclAnnouncement::kHasStatus) != 0),
        status_(out->status),
        buffer_(std::move(buffer)),
        out_(out) {
    Hold(buffer_.owner());
  }

  void PortGoes() {
    untold_ = nullptr;
    Cancel();
  }

  std::string WaitsFor() const {
    // Launched, it is ready to be told as soon as `ahead_` is.
    if (untold_ != nullptr && comm()->cause().ok() && (ahead_ == nullptr || !IsReady(ahead_))) {
      return absl::StrCat("the GPU to be done with what is ahead of receiving execution ", execution());
    }
    return NcclTransfer::WaitsFor("send");
  }

 private:
  // One such receive stands behind that which is under way, and so begins with its end, ahead of whatever waits for that; no more.
  Turn MyTurn() override {
    const Turn turn = NcclTransfer::MyTurn();
    return turn == Turn::kLaunch && untold_ != nullptr && !IsReady(link()->queue().LastButOne(stream())) ? Turn::kWait : turn;
  }

  absl::Status Launch() override {
    if (untold_ != nullptr) {
      if (!untold_->tell_ahead_ && !device()->IsIdle(stream()->native())) {
        absl::StatusOr<EventRef> ahead = device()->Record(stream()->native());
        if (!ahead.ok()) return Named(ahead.status());
        ahead_ = *std::move(ahead);
      }
      const std::weak_ptr<NcclWork> me = std::static_pointer_cast<NcclWork>(shared_from_this());
      if (!Tell()) {
        link()->queue().Later([me] {
          const std::shared_ptr<NcclWork> self = me.lock();
          return self == nullptr || static_cast<Receiving*>(self.get())->Tell();
        });
      }
    }
    if (replay_ >= 0) return ReplayNccl("receiving", replay_);
    return CallNccl(trial_ ? "the trial" : "receiving", [this](NcclApi* api, NcclCommHandle comm) {
      void* const s = stream()->native();
      if (trial_) return api->Recv(scratch().trial(), NcclLink::kTrialBytes, kNcclUint8, 0, comm, s);
      // A word that nobody asked for comes all the same.
      DeviceStatus* const word = status_ != nullptr ? status_ : scratch().unwanted();
      return PutReceive(api, comm, buffer_.data(), bytes_, has_status_ ? word : nullptr, s);
    });
  }

  absl::Status Launched() override {
    if (!trial_) return absl::OkStatus();
    return Named(device()->Check(device()->api()->MemcpyAsync(scratch().pattern(), scratch().trial(), NcclLink::kTrialBytes, stream()->native()),
                                 "copying from the GPU"));
  }

  // Tells the sender that its value is taken, when the stream has done all that is ahead, with overlap off computations too; or at once where the port
  // tells ahead. True when there is nothing left to tell.
  bool Tell() {
    if (untold_ != nullptr && !link()->AtOnce() && !IsReady(ahead_)) return false;
    TellNow();
    return true;
  }
  void TellNow() {
    if (untold_ != nullptr) std::exchange(untold_, nullptr)->Tell(execution());
  }

  void Finish(const absl::Status& status) override {
    TellNow();  // a sender that does not wait for it may be done first, and still needs its slot
    absl::Status s = status;
    if (s.ok() && trial_) s = CheckTrialPattern(edge().edge, scratch().pattern());
    if (s.ok()) return;  // filled at issue
    out_->tensor = Tensor();
    out_->error = EdgeError(edge(), execution(), s);
  }

  NcclRecvPort* untold_;
  EventRef ahead_;
  const int replay_;
  const bool trial_;
  const uint64_t bytes_;
  const bool has_status_;
  DeviceStatus* const status_;
  const Tensor buffer_;
  Value* const out_;
};

NcclRecvPort::NcclRecvPort(std::shared_ptr<NcclLink> link, ShmEdgeSpec edge, std::unique_ptr<RecvPort> header_port, bool tell_ahead)
    : link_(std::move(link)), edge_(std::move(edge)), header_port_(std::move(header_port)), tell_ahead_(tell_ahead) {}

NcclRecvPort::~NcclRecvPort() {
  for (const std::weak_ptr<Receiving>& w : outstanding_) {
    if (const std::shared_ptr<Receiving> r = w.lock()) r->PortGoes();
  }
}

absl::Status NcclRecvPort::closed() const {
  WEFT_RETURN_IF_ERROR(link_->comm()->cause());
  return header_port_->closed();
}

PortState NcclRecvPort::Poll(int64_t execution) {
  link_->options_.queue->Pump();
  return link_->comm()->cause().ok() ? header_port_->Poll(execution) : PortState::kClosed;
}

absl::StatusOr<NcclAnnouncement> NcclRecvPort::Take(int64_t execution, const Tensor& buffer, bool* late) {
  Value head;
  WEFT_ASSIGN_OR_RETURN(const EventRef came, header_port_->Recv(execution, Tensor(), &head, nullptr));
  if (!IsReady(came)) return absl::InternalError("its announcement is not there, though the host channel said so");
  NcclAnnouncement a;
  absl::Status s;
  if (head.error != nullptr) {
    s = absl::Status(head.error->code, absl::StrCat("its announcement: ", head.error->message));
  } else if (head.tensor.bytes() < kNcclShortAnnouncement || head.tensor.bytes() > sizeof a) {
    s = absl::DataLossError(absl::StrCat("its announcement has ", head.tensor.bytes(), " bytes"));
  } else {
    std::memcpy(static_cast<void*>(&a), head.tensor.data(), head.tensor.bytes());
    if (a.header.error_code != 0 && head.tensor.bytes() != sizeof a) s = absl::DataLossError("its announcement has an error without its texts");
  }
  *late = s.ok() && link_->options_.receive_alone && !link_->AtOnce() && a.header.error_code == 0 && a.header.bytes >= NcclLink::kLateBytes;
  untold_.emplace_back(execution, false);
  if (!*late) Tell(execution);
  WEFT_RETURN_IF_ERROR(s);
  const MessageHeader& h = a.header;
  WEFT_RETURN_IF_ERROR(CheckHeader(h, link_->options_.plan_hash, edge_.edge, execution, sequence_++, edge_.spec));
  const uint64_t reserved = std::min<uint64_t>(edge_.bytes, buffer.bytes());
  if (h.error_code == 0 && h.bytes > reserved) {
    return absl::OutOfRangeError(absl::StrCat("a value of ", h.bytes, " bytes is announced, ", reserved, " are reserved"));
  }
  return a;
}

void NcclRecvPort::Tell(int64_t execution) {
  for (auto& [of, may] : untold_) may |= of == execution;
  for (; !untold_.empty() && untold_.front().second; untold_.pop_front()) header_port_->Release(untold_.front().first);
}

absl::StatusOr<EventRef> NcclRecvPort::Recv(int64_t execution, const Tensor& buffer, Value* out, Stream* stream) {
  const PortState state = Poll(execution);
  if (state == PortState::kClosed) return closed();
  if (state == PortState::kWaiting) {
    return absl::InternalError(absl::StrCat(EdgeLabel(edge_), ": receive of execution ", execution, " too early"));
  }
  DeviceStatus* const status = out->status;
  *out = Value();
  out->status = status;
  const auto fail = [&](const absl::Status& why) {
    const TaskErrorRef error = EdgeError(edge_, execution, why);
    link_->Close(absl::Status(why.code(), error->message));
    out->tensor = Tensor();
    out->error = error;
    return EventRef();
  };
  bool late = false;
  const absl::StatusOr<NcclAnnouncement> a = Take(execution, buffer, &late);
  if (!a.ok()) return fail(a.status());
  out->error = ErrorOf(a->header);
  const bool trial = execution == kTrialExecution && out->error != nullptr;
  const bool has_status = (a->flags & NcclAnnouncement::kHasStatus) != 0;
  const bool moves = out->error != nullptr ? trial : a->header.bytes > 0 || has_status;
  if (out->error == nullptr) out->tensor = Tensor(static_cast<DType>(a->header.dtype), DimsOf(a->header), buffer.data(), buffer.owner());
  const bool clear = out->error == nullptr && status != nullptr && !has_status;
  if ((moves || clear) && stream == nullptr) return fail(absl::InvalidArgumentError("a receive over NCCL needs a stream"));
  if (moves && a->transfer != link_->transfers_) {
    return fail(absl::InternalError(absl::StrCat(link_->peer(), " sends it as transfer ", a->transfer, " of the link, here transfer ",
                                                 link_->transfers_, " is next: the plan puts edges of one pair of workers on several lanes")));
  }
  if (trial && link_->InTrial()) {
    return fail(absl::FailedPreconditionError("another trial is under way"));
  }
  CudaDevice* const device = link_->options_.device;
  if (clear) {
    const absl::Status s = device->Check(device->api()->MemsetAsync(status, 0, sizeof *status, stream->native()), "clearing a status word");
    if (!s.ok()) return fail(s);
  }
  if (!moves) {
    if (!clear) return EventRef();
    absl::StatusOr<EventRef> cleared = device->Record(stream->native());
    if (!cleared.ok()) return fail(cleared.status());
    return cleared;
  }
  // No captured call is for a word that nobody asked for.
  const bool planned = !trial && (!has_status || status != nullptr);
  const int replay = planned ? replays_.Find(buffer.data(), a->header.bytes, has_status ? status : nullptr) : -1;
  auto receiving = std::make_shared<Receiving>(link_, edge_, execution, stream, *a, buffer, out, late ? this : nullptr, replay);
  if (trial) link_->options_.scratch->last_trial = receiving;
  while (!outstanding_.empty() && (outstanding_.front().expired() || outstanding_.front().lock()->over())) outstanding_.pop_front();
  outstanding_.push_back(receiving);
  link_->options_.queue->Post(receiving);
  return EventRef(std::move(receiving));
}

std::string NcclRecvPort::WaitsFor() const {
  for (const std::weak_ptr<Receiving>& w : outstanding_) {
    const std::shared_ptr<Receiving> r = w.lock();
    if (r != nullptr && !r->over()) return r->WaitsFor();
  }
  return header_port_->WaitsFor();
}

absl::Status NcclRecvPort::Plan(const Tensor& place, DeviceStatus* status) {
  if (!link_->options_.replay) return absl::OkStatus();
  for (DeviceStatus* const word : {static_cast<DeviceStatus*>(nullptr), status}) {
    if (place.bytes() == 0 || replays_.full() || replays_.Find(place.data(), place.bytes(), word) >= 0) continue;
    const auto put = [&](NcclApi* api, NcclCommHandle comm, CudaStreamHandle s) {
      return PutReceive(api, comm, place.data(), place.bytes(), word, s);
    };
    const absl::StatusOr<int> number = CaptureNccl(link_->comm(), "receiving", place.owner(), put);
    if (!number.ok()) return replays_.GiveUp(edge_, *link_->comm(), number.status());
    replays_.Add(place.data(), place.bytes(), word, *number);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<CaptureRecvPort>> NcclRecvPort::ForCapture() {
  return std::shared_ptr<CaptureRecvPort>(std::make_shared<NcclCaptureRecvPort>(link_, edge_, header_port_.get()));
}

}  // namespace weft
