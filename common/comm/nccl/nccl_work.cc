#include "common/comm/nccl/nccl_work.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {

NcclWork::NcclWork(std::shared_ptr<NcclComm> comm, CudaDevice* device, Stream* stream)
    : comm_(std::move(comm)), device_(device), stream_(stream) {}

NcclWork::~NcclWork() {
  if (stage_ != Stage::kLaunched && stage_ != Stage::kOnDevice) return;
  if (stage_ == Stage::kOnDevice && event_->Ready()) {
    comm_->End();
    return;
  }
  // Nobody will know when it is over: it counts as on the device for good.
  for (std::shared_ptr<void>& memory : held_) comm_->KeepUntilEnded(std::move(memory));
}

bool NcclWork::InputIsOrdered(const EventRef& input) const {
  if (IsReady(input)) return true;
  if (!device_->CanWaitFor(input)) return false;
  stream_->WaitFor(input);
  return true;
}

void NcclWork::End(const absl::Status& status) {
  if (stage_ == Stage::kLaunched || stage_ == Stage::kOnDevice) comm_->End();
  stage_ = Stage::kOver;
  if (!cancelled_) Finish(status);
  held_.clear();
}

void NcclWork::Cancel() {
  cancelled_ = true;
  if (stage_ == Stage::kWaiting) End(absl::OkStatus());
  if (stage_ == Stage::kOnDevice) return;  // it has left the line
  // It keeps its link, and that the queue: in its line it would keep them all for good.
  if (const std::shared_ptr<NcclQueue> queue = queue_.lock()) queue->Sweep();
}

bool NcclWork::Advance() {
  if (stage_ == Stage::kWaiting) {
    const absl::Status cause = comm_->cause();
    if (!cause.ok()) {
      End(cause);  // nothing of it is on the device
      return true;
    }
    if (!comm_->Settled()) return false;
    const Turn turn = MyTurn();
    if (turn == Turn::kWait) return false;
    if (turn == Turn::kSkip) {
      End(absl::OkStatus());
      return true;
    }
    stage_ = Stage::kLaunched;
    comm_->Begin();
    const absl::Status launched = Launch();
    // Some of it may be on the stream.
    if (!launched.ok()) comm_->Abort(launched);
  }
  if (stage_ == Stage::kLaunched) Settle();
  return stage_ != Stage::kLaunched;
}

void NcclWork::Settle() {
  if (!comm_->Settled()) return;
  // Cancelled: the stream may be gone.
  if (!comm_->cause().ok() || cancelled_) {
    if (!comm_->cause().ok() && comm_->Ended()) End(comm_->cause());
    return;
  }
  absl::Status status = Launched();
  if (status.ok()) {
    absl::StatusOr<EventRef> event = device_->Record(stream_->native());
    if (event.ok()) {
      event_ = *std::move(event);
      stage_ = Stage::kOnDevice;
      if (const std::shared_ptr<NcclQueue> queue = queue_.lock()) {
        std::pair<EventRef, EventRef>& on = queue->on_device_[stream_];
        on = {event_, std::move(on.first)};
      }
      return;
    }
    status = event.status();
  }
  comm_->Abort(absl::Status(status.code(), absl::StrCat(comm_->options().label, ": ", std::string(status.message()))));
}

void NcclWork::CheckDevice() {
  if (stage_ != Stage::kOnDevice) return;
  if (event_->Ready() && MayFinish() && comm_->Health().ok()) {
    End(device_->Health());  // on a broken device every event is ready
    return;
  }
  const absl::Status cause = comm_->cause();
  if (!cause.ok() && comm_->Ended()) End(cause);
}

bool NcclWork::Queued() const {
  if (stage_ == Stage::kWaiting || stage_ == Stage::kLaunched) const_cast<NcclWork*>(this)->MoveOn();
  return stage_ == Stage::kOnDevice || stage_ == Stage::kOver;
}

bool NcclWork::Ready() const {
  NcclWork* const self = const_cast<NcclWork*>(this);  // asking is what moves it on
  if (stage_ == Stage::kOver) return true;
  self->MoveOn();
  self->CheckDevice();
  return stage_ == Stage::kOver;
}

void NcclWork::MoveOn() {
  const std::shared_ptr<NcclQueue> queue = queue_.lock();
  if (queue != nullptr) {
    queue->Pump();
  } else if (stage_ == Stage::kWaiting) {
    End(absl::CancelledError(absl::StrCat(comm_->options().label, " was closed")));
  }
  if (stage_ == Stage::kLaunched && (queue == nullptr || cancelled_)) Settle();
}

void NcclQueue::Post(const std::shared_ptr<NcclWork>& op) {
  op->queue_ = weak_from_this();
  lines_[op->stream_].push_back(op);
  Pump();
}

EventRef NcclQueue::LastButOne(Stream* stream) const {
  const auto it = on_device_.find(stream);
  return it == on_device_.end() ? EventRef() : it->second.second;
}

bool NcclQueue::Owes() const {
  return std::any_of(lines_.begin(), lines_.end(), [](const auto& line) {
    return std::any_of(line.second.begin(), line.second.end(), [](const std::shared_ptr<NcclWork>& op) {
      return !op->cancelled_ && (op->connecting() || (op->stage_ == NcclWork::Stage::kWaiting && op->Promised()));
    });
  });
}

void NcclQueue::Sweep() {
  if (pumping_) return;  // which takes them out itself
  std::vector<std::shared_ptr<NcclWork>> gone;  // outlives the lines' iteration
  for (auto it = lines_.begin(); it != lines_.end();) {
    std::deque<std::shared_ptr<NcclWork>>& line = it->second;
    const auto over = std::stable_partition(line.begin(), line.end(), [](const std::shared_ptr<NcclWork>& op) { return !op->over() && !op->cancelled_; });
    std::move(over, line.end(), std::back_inserter(gone));
    line.erase(over, line.end());
    it = line.empty() ? lines_.erase(it) : std::next(it);
  }
}

void NcclQueue::Pump() {
  if (pumping_) return;
  pumping_ = true;
  for (size_t i = 0; i < steps_.size();) {
    if (steps_[i]()) {
      steps_.erase(steps_.begin() + static_cast<int64_t>(i));
    } else {
      ++i;
    }
  }
  for (auto it = lines_.begin(); it != lines_.end();) {
    std::deque<std::shared_ptr<NcclWork>>& line = it->second;
    while (!line.empty() && line.front()->Advance()) line.pop_front();
    it = line.empty() ? lines_.erase(it) : std::next(it);
  }
  pumping_ = false;
}

}  // namespace weft
