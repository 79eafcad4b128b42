#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/channel/doorbell.h"
#include "common/channel/shm/segment.h"

namespace weft {

// Where a process hands shared memory to others of its host and user: one per process. Writers export segments under a key, readers
// import them by the writer's address and the key, in either order. Listens on a Unix socket in the abstract namespace, so nothing
// lies in the file system; the two processes' connection stays open as long as the segment, and its end is how either notices within
// moments that the other died. One thread of its own, asleep but for comings and goings. Thread-safe.
//
// Whatever comes on the socket (foreign users, garbage, unknown keys, late messages) is dropped and at most logged at debug level.
class ShmHub {
 public:
  // `own_doorbell` is made by Doorbell::Create (not InProcess), is rung when a peer does anything, and outlives the hub and its
  // segments. ResourceExhausted when the socket or the thread cannot be had.
  static absl::StatusOr<std::unique_ptr<ShmHub>> Create(Doorbell* own_doorbell);
  // Closes all segments that are still open with Cancelled. Pre: no Import is under way (Withdraw ends one).
  ~ShmHub();
  ShmHub(const ShmHub&) = delete;
  ShmHub& operator=(const ShmHub&) = delete;

  // "@weft-...": where other processes import from.
  const std::string& address() const { return address_; }

  // The writer's end of a new segment. It goes with the last reference, also for a reader that has not come yet. InvalidArgument
  // (an edge or the key, 1 to 255 bytes), AlreadyExists (the key), ResourceExhausted.
  absl::StatusOr<std::shared_ptr<ShmSegment>> Export(const std::string& key, std::vector<ShmEdgeSpec> edges, uint64_t plan_hash);

  // The reader's end of the segment that the process at `address` exports as `key`. Blocks until it has, at most until `deadline`
  // (Clock::Real's time). DeadlineExceeded names key and address, Unavailable: no such process, or it went; PermissionDenied: it is
  // another user's; AlreadyExists: another reader came first; Cancelled: withdrawn here; DataLoss: what came is no segment.
  // `interrupted` is asked every tenth of a second, and what it says, if not OK, ends the wait; it may be empty. Never ask again after a
  // deadline of one's own: the writer may just have taken the import that was given up for its one reader.
  absl::StatusOr<std::shared_ptr<ShmSegment>> Import(const std::string& address, const std::string& key, Nanos deadline,
                                                     const std::function<absl::Status()>& interrupted = {});

  // Readers that ask for the key from now on wait for another export; imports of the key by this process end with Cancelled. A
  // segment that is there stays.
  void Withdraw(const std::string& key);

 private:
  struct Connection {
    std::shared_ptr<shm::OwnedFd> socket;
    int pid = 0;
    bool greeted = false;  // its Hello came
    std::string key;       // it waits for this export
    std::unique_ptr<Doorbell> doorbell;
    std::weak_ptr<ShmSegment> segment;
    bool bound = false;  // it serves `segment`
  };
  struct PendingImport {
    std::string key;
    shm::OwnedFd wake;  // eventfd
    bool withdrawn = false;
  };

  ShmHub(Doorbell* own, shm::OwnedFd listener, shm::OwnedFd epoll, shm::OwnedFd wake, std::string address);
  void Loop();
  void Accept() WEFT_EXCLUDES(mu_);
  void HandleConnection(uint64_t id, uint32_t events) WEFT_EXCLUDES(mu_);
  // False: the connection is to be dropped.
  bool TakeHello(Connection* c) WEFT_REQUIRES(mu_);
  bool Serve(Connection* c, const std::shared_ptr<ShmSegment>& segment) WEFT_REQUIRES(mu_);
  // Watches a connection; false when there is no room for more.
  bool Add(Connection c) WEFT_REQUIRES(mu_);
  absl::StatusOr<std::shared_ptr<ShmSegment>> AwaitReply(int socket, int pid, const std::string& what, PendingImport* pending,
                                                         Nanos deadline, const std::function<absl::Status()>& interrupted,
                                                         std::unique_ptr<Doorbell>* doorbell) WEFT_EXCLUDES(mu_);
  bool Withdrawn(const PendingImport& pending) WEFT_EXCLUDES(mu_);

  Doorbell* const own_doorbell_;
  const shm::OwnedFd listener_;
  const shm::OwnedFd epoll_;
  const shm::OwnedFd wake_;  // eventfd: the end of the hub
  const std::string address_;

  Mutex mu_;
  bool stop_ WEFT_GUARDED_BY(mu_) = false;
  uint64_t next_id_ WEFT_GUARDED_BY(mu_);
  std::map<uint64_t, Connection> connections_ WEFT_GUARDED_BY(mu_);
  std::map<std::string, std::weak_ptr<ShmSegment>> exports_ WEFT_GUARDED_BY(mu_);
  std::vector<PendingImport*> imports_ WEFT_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace weft
