#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "common/base/mutex.h"
#include "common/channel/gloo/gloo_link.h"

namespace weft {

// What a link and its ports share: the mesh and the thread that waits on it. Internal to this directory.
class GlooLink::Engine {
 public:
  // A transfer: blocks on the mesh, or, with a cause that is not OK, fills in the error at once. Its event is set afterwards.
  using Job = std::function<void(const absl::Status& cause)>;

  Engine(std::shared_ptr<GlooMesh> mesh, uint64_t plan_hash, Doorbell* doorbell);
  ~Engine();

  // Queues a transfer; jobs run one after the other.
  EventRef Post(Job job);
  // Runs no more jobs: those queued are given the cause of the mesh. Ends the thread.
  void Stop();

  GlooMesh& mesh() const { return *mesh_; }
  uint64_t plan_hash() const { return plan_hash_; }
  const std::string& peer() const { return mesh_->options().workers[1 - mesh_->rank()]; }

 private:
  struct Item {
    Job job;
    std::shared_ptr<ManualEvent> event;
  };
  void Work();

  const std::shared_ptr<GlooMesh> mesh_;
  const uint64_t plan_hash_;
  Doorbell* const doorbell_;

  Mutex mu_;
  CondVar wake_;
  std::deque<Item> items_ WEFT_GUARDED_BY(mu_);
  bool stop_ WEFT_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Payloads travel in pieces of this size, so that one that is refused needs no memory of its own size.
constexpr uint64_t kGlooPieceBytes = 16 << 20;

// Slots of an edge's headers and payloads.
inline uint64_t GlooHeaderSlot(int32_t edge) { return 16 + 2 * static_cast<uint64_t>(static_cast<uint32_t>(edge)); }
inline uint64_t GlooPayloadSlot(int32_t edge) { return GlooHeaderSlot(edge) + 1; }

}  // namespace weft
