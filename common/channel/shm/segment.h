#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/channel/doorbell.h"
#include "common/channel/shm/edge_spec.h"
#include "common/channel/shm/layout.h"

namespace weft {

namespace shm {

// A descriptor and its end of life.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  ~OwnedFd();
  OwnedFd(OwnedFd&& o) noexcept : fd_(o.fd_) { o.fd_ = -1; }
  OwnedFd& operator=(OwnedFd&& o) noexcept;
  int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

// Mapped part of a file.
class Mapping {
 public:
  // ResourceExhausted when there is no room for it.
  static absl::StatusOr<std::shared_ptr<Mapping>> Map(int fd, uint64_t offset, uint64_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  char* data() const { return data_; }
  uint64_t offset() const { return offset_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Mapping(char* data, uint64_t offset, uint64_t bytes) : data_(data), offset_(offset), bytes_(bytes) {}
  char* const data_;
  const uint64_t offset_;
  const uint64_t bytes_;
};

}  // namespace shm

// One process's end of the memory that it shares with one other for one graph: all edges from the writer to the reader, the number of
// admitted executions, and each end's reason for closing. Made by ShmHub. Thread-safe but for what ports do with their own edge.
// Nothing that the other end writes is relied upon. Memory goes when both ends and all values in it are gone, however they end.
class ShmSegment {
 public:
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  bool is_writer() const { return writer_; }
  uint64_t plan_hash() const { return plan_hash_; }
  const std::vector<ShmEdgeSpec>& edges() const { return edges_; }
  // Index in edges() of an edge by its id; NotFound names it.
  absl::StatusOr<int> Find(int32_t edge) const;
  // The other end for messages: "w3 (pid 77)", or "the reader" before it came.
  std::string peer() const;
  // Whether the other end has come; always true for a reader.
  bool connected() const { return peer_doorbell_.load(std::memory_order_acquire) != nullptr; }

  // Highest admitted execution: published by the writer's end (rings the reader), seen by both. -1 before the first.
  void PublishAdmitted(int64_t execution);
  int64_t admitted() const;

  // Ends it for both sides with a cause; the other end's closed() shows code and text. The first cause stays, also over a later
  // death of the peer. What was sent before can still be received there.
  void Close(const absl::Status& cause);
  // OK while open. Unavailable when the peer is gone without having said why.
  absl::Status closed() const;
  bool is_closed() const;

  // Wakes the other end's loop, once it is there.
  void RingPeer();

  // Where slot `number` % slots of an edge of planned size lies; NotFound names the edge.
  absl::StatusOr<void*> SlotMemory(int32_t edge, uint64_t number) const;
  // The whole of it but grown places, to be page-locked for a device; valid while the segment lives.
  void* memory() const { return base_->data(); }
  uint64_t memory_bytes() const { return base_->bytes(); }

 private:
  friend class ShmHub;
  friend class ShmSendPort;
  friend class ShmRecvPort;
  friend class ShmTestPeer;

  ShmSegment(bool writer, shm::OwnedFd fd, std::shared_ptr<shm::Mapping> base, std::vector<ShmEdgeSpec> edges, shm::Layout layout,
             uint64_t plan_hash, Doorbell* own);
  static absl::StatusOr<std::shared_ptr<ShmSegment>> CreateWriter(std::vector<ShmEdgeSpec> edges, uint64_t plan_hash, Doorbell* own);
  // The file is another process's: everything in it is checked. InvalidArgument, DataLoss say what is wrong with it.
  static absl::StatusOr<std::shared_ptr<ShmSegment>> OpenReader(shm::OwnedFd fd, Doorbell* own);

  // Takes the other end's doorbell and the connection whose end means the peer's. AlreadyExists names the peer there is.
  absl::Status AttachPeer(std::unique_ptr<Doorbell> doorbell, std::shared_ptr<shm::OwnedFd> connection, int pid) WEFT_EXCLUDES(mu_);
  // The connection ended. Rings the own doorbell.
  void PeerGone(const std::string& why) WEFT_EXCLUDES(mu_);

  // Writer: a new place of at least `bytes` at the end of the file. ResourceExhausted names the size.
  absl::StatusOr<std::shared_ptr<shm::Mapping>> Grow(uint64_t bytes) WEFT_EXCLUDES(mu_);
  // Writer: gives the memory of a place back that is used no more.
  void Punch(uint64_t offset, uint64_t bytes);
  // Reader: maps a place that the writer named. DataLoss when it does not lie in the file's grown part.
  absl::StatusOr<std::shared_ptr<shm::Mapping>> MapGrown(uint64_t offset, uint64_t bytes) const;

  template <typename T>
  T* At(uint64_t offset) const {
    return reinterpret_cast<T*>(base_->data() + offset);
  }
  shm::SegmentHeader* header() const { return At<shm::SegmentHeader>(0); }
  shm::EdgeRing* ring(int index) const { return At<shm::EdgeRing>(layout_.edges[index].ring); }
  shm::SlotControl* control(int index, uint64_t number) const {
    return At<shm::SlotControl>(layout_.edges[index].controls) + number % static_cast<uint64_t>(edges_[index].slots);
  }
  char* payload(int index, uint64_t number) const {
    const shm::EdgePlace& p = layout_.edges[index];
    return base_->data() + p.payloads + p.stride * (number % static_cast<uint64_t>(edges_[index].slots));
  }
  const std::shared_ptr<shm::Mapping>& base() const { return base_; }
  // The worker at the other end as the edges name it.
  std::string PeerName() const;
  // The first cause becomes `cause` unless there is one. Returns whether it did.
  bool SetCause(const absl::Status& cause) const WEFT_EXCLUDES(mu_);

  const bool writer_;
  const shm::OwnedFd fd_;
  const std::shared_ptr<shm::Mapping> base_;
  const std::vector<ShmEdgeSpec> edges_;
  std::vector<std::pair<int32_t, int>> index_;  // edge id -> index, sorted
  const shm::Layout layout_;
  const uint64_t plan_hash_;
  Doorbell* const own_doorbell_;
  std::atomic<Doorbell*> peer_doorbell_{nullptr};

  mutable std::atomic<bool> has_cause_{false};
  mutable Mutex mu_;
  mutable absl::Status cause_ WEFT_GUARDED_BY(mu_);
  std::unique_ptr<Doorbell> peer_doorbell_owner_ WEFT_GUARDED_BY(mu_);
  std::shared_ptr<shm::OwnedFd> connection_ WEFT_GUARDED_BY(mu_);
  int peer_pid_ WEFT_GUARDED_BY(mu_) = 0;
  uint64_t end_ WEFT_GUARDED_BY(mu_);  // writer: of the file
};

}  // namespace weft
