#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/channel/remote/remote_link.h"
#include "common/channel/shm/hub.h"

namespace weft {

// Everything of one graph on one worker that must be closed when it ends, by whomever it is noticed first. Thread-safe.
class Links {
 public:
  explicit Links(ShmHub* hub) : hub_(hub) {}

  // `key`: what it is exported as, or empty.
  void AddSegment(std::shared_ptr<ShmSegment> segment, const std::string& key) {
    MutexLock lock(&mu_);
    if (!closed_with_.ok()) segment->Close(closed_with_);
    segments_.push_back(std::move(segment));
    if (!key.empty()) keys_.push_back(key);
  }
  // A key under which this process exports or imports: withdrawn at the end.
  void AddKey(const std::string& key) {
    MutexLock lock(&mu_);
    keys_.push_back(key);
  }
  // Something else to close (a Gloo link, the remote stream), with a way to ask how it is; `health` may be empty.
  // After Close it is closed at once.
  void AddOther(std::function<void(const absl::Status&)> close, std::function<absl::Status()> health) {
    MutexLock lock(&mu_);
    if (!closed_with_.ok()) close(closed_with_);
    others_.push_back({std::move(close), std::move(health)});
  }

  void Close(const absl::Status& cause) {
    MutexLock lock(&mu_);
    if (closed_with_.ok()) closed_with_ = cause.ok() ? absl::CancelledError("the graph was removed") : cause;
    for (const std::string& k : keys_) hub_->Withdraw(k);
    keys_.clear();
    for (const auto& s : segments_) s->Close(cause);
    for (const Other& o : others_) o.close(cause);
  }

  // The first that is not well.
  absl::Status Health() const {
    MutexLock lock(&mu_);
    for (const auto& s : segments_) {
      if (s->is_closed()) return s->closed();
    }
    for (const Other& o : others_) {
      if (!o.health) continue;
      absl::Status h = o.health();
      if (!h.ok()) return h;
    }
    return absl::OkStatus();
  }

  // Something that must live as long as the links, and goes after them: page-locks of segments, the memory of peers, streams of trials.
  void Keep(std::shared_ptr<void> what) {
    MutexLock lock(&mu_);
    kept_.push_back(std::move(what));
  }

  // Highest admitted execution as told by the driver's stream, for workers that do not share memory with it.
  int64_t RemoteAdmitted() const { return remote_ == nullptr ? -1 : remote_->admitted(); }
  // During bootstrap, before the links are shared. `keep` (the stream below it) ends with these links.
  void SetRemote(std::shared_ptr<RemoteLink> link, std::shared_ptr<void> keep) {
    remote_ = std::move(link);
    keep_ = std::move(keep);
  }

 private:
  struct Other {
    std::function<void(const absl::Status&)> close;
    std::function<absl::Status()> health;
  };
  ShmHub* const hub_;
  mutable Mutex mu_;
  std::vector<std::shared_ptr<void>> kept_ WEFT_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<ShmSegment>> segments_ WEFT_GUARDED_BY(mu_);
  std::vector<std::string> keys_ WEFT_GUARDED_BY(mu_);
  std::vector<Other> others_ WEFT_GUARDED_BY(mu_);
  absl::Status closed_with_ WEFT_GUARDED_BY(mu_);
  std::shared_ptr<RemoteLink> remote_;
  std::shared_ptr<void> keep_;
};

}  // namespace weft
