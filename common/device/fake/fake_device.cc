#include "common/device/fake/fake_device.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr size_t kAlignment = 256;
constexpr Nanos kFar = std::numeric_limits<Nanos>::max();

// An event of one of this device's streams; those of channels are made by hosts, and no device can wait for them.
class DeviceEvent : public Event {};

}  // namespace

class FakeDevice::FakeStream : public Stream {
 public:
  explicit FakeStream(std::shared_ptr<Core> core) : queue_(std::make_shared<Queue>(std::move(core))) {}

  absl::StatusOr<EventRef> Launch(Work work) override {
    Core& core = *queue_->core;
    const int64_t number = core.launches++;
    if (number == core.options.fail_launch) return absl::InternalError(absl::StrCat("launch ", number, " fails as the test wants"));
    Item item;
    item.work = std::move(work);
    if (item.work.where == Work::kInline) RunWork(&item);
    const Options& o = core.options;
    if (o.max_delay > 0) {
      item.delay = std::uniform_int_distribution<Nanos>(0, o.max_delay)(core.rng);
    } else if (!o.polls.empty()) {
      item.polls = o.polls[number % o.polls.size()];
    } else {
      item.polls = std::uniform_int_distribution<int>(0, std::max(0, o.max_polls))(core.rng);
    }
    return queue_->Add(std::move(item));
  }

  void WaitFor(const EventRef& event) override {
    if (event == nullptr) return;
    Item item;
    item.wait_for = event;
    queue_->Add(std::move(item));
  }

 private:
  struct Item {
    Work work;
    EventRef wait_for;  // then there is no work
    bool ran = false;
    int polls = 0;
    Nanos delay = 0;
    Nanos done_at = kFar;  // known from when it is at the front
  };

  static void RunWork(Item* item) {
    const absl::Status status = item->work.run ? item->work.run() : absl::OkStatus();
    item->ran = true;
    if (item->work.status != nullptr) *item->work.status = status;
  }

  // Outlives the stream while events refer to it.
  struct Queue : std::enable_shared_from_this<Queue> {
    explicit Queue(std::shared_ptr<Core> c) : core(std::move(c)) {}

    EventRef Add(Item item) {
      items.push_back(std::move(item));
      return std::make_shared<QueueEvent>(shared_from_this(), ++added);
    }

    // One poll of what is at the front; what is done leaves.
    void Pump() {
      if (pumping) return;  // the work itself asks
      pumping = true;
      while (!items.empty() && FrontDone(&items.front())) {
        items.pop_front();
        ++done;
      }
      pumping = false;
    }

    bool FrontDone(Item* item) {
      if (item->wait_for != nullptr) return item->wait_for->Ready();
      const Nanos now = core->clock->Now();
      if (!item->ran) {
        if (item->polls > 0) {
          --item->polls;
          return false;
        }
        if (item->done_at == kFar) item->done_at = now + item->delay;
        if (now < item->done_at) return false;
        RunWork(item);
        item->polls = 0;
        item->done_at = HeldUntil(*item, now);
      } else if (item->done_at == kFar) {
        item->done_at = HeldUntil(*item, now + item->delay);
      }
      if (item->polls > 0) {
        --item->polls;
        return false;
      }
      return now >= item->done_at;
    }

    static Nanos HeldUntil(const Item& item, Nanos from) {
      const Nanos hold = item.work.hold != nullptr ? std::max<Nanos>(0, *item.work.hold) : 0;
      return hold > kFar - 1 - from ? kFar - 1 : from + hold;
    }

    std::shared_ptr<Core> core;
    std::deque<Item> items;
    int64_t added = 0;
    int64_t done = 0;
    bool pumping = false;
  };

  class QueueEvent : public DeviceEvent {
   public:
    QueueEvent(std::shared_ptr<Queue> queue, int64_t number) : queue_(std::move(queue)), number_(number) {}
    bool Ready() const override {
      if (queue_->done < number_) queue_->Pump();
      return queue_->done >= number_;
    }
    // Nothing rings, so the loop is to ask again: at once when polls count, else at the front's time.
    Nanos ReadyAt() const override {
      const Nanos now = queue_->core->clock->Now();
      if (queue_->items.empty()) return now;
      const Item& front = queue_->items.front();
      if (front.wait_for != nullptr) return front.wait_for->ReadyAt();
      return front.polls > 0 || front.done_at == kFar ? now : front.done_at;
    }

   private:
    const std::shared_ptr<Queue> queue_;
    const int64_t number_;
  };

  const std::shared_ptr<Queue> queue_;
};

FakeDevice::FakeDevice(Clock* clock, Options options)
    : core_(std::make_shared<Core>(Core{clock, options, std::mt19937_64(options.seed), 0})) {}

bool FakeDevice::CanWaitFor(const EventRef& event) const {
  return core_->options.can_wait && (event == nullptr || dynamic_cast<const DeviceEvent*>(event.get()) != nullptr);
}

absl::StatusOr<std::unique_ptr<Stream>> FakeDevice::NewStream(v1::LaneKind) {
  return std::unique_ptr<Stream>(new FakeStream(core_));
}

absl::StatusOr<std::shared_ptr<void>> FakeDevice::Allocate(size_t bytes) {
  const size_t rounded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  // Beyond the largest tensor is a mistake; not every allocator survives being asked.
  void* p = bytes > kMaxTensorBytes ? nullptr : std::aligned_alloc(kAlignment, rounded);
  if (p == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for a buffer of ", bytes, " bytes on the fake device"));
  return std::shared_ptr<void>(p, std::free);
}

}  // namespace weft
