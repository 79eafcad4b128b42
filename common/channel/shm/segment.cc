#include "common/channel/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"

namespace weft {

using shm::CloseBlock;
using shm::EdgeEntry;
using shm::kPage;
using shm::Layout;
using shm::Mapping;
using shm::OwnedFd;
using shm::SegmentHeader;

namespace shm {

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}

OwnedFd& OwnedFd::operator=(OwnedFd&& o) noexcept {
  if (this != &o) {
    if (fd_ >= 0) close(fd_);
    fd_ = o.release();
  }
  return *this;
}

absl::StatusOr<std::shared_ptr<Mapping>> Mapping::Map(int fd, uint64_t offset, uint64_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, static_cast<off_t>(offset));
  if (p == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map ", FormatBytes(bytes), " of shared memory: ", strerror(errno)));
  }
  return std::shared_ptr<Mapping>(new Mapping(static_cast<char*>(p), offset, bytes));
}

Mapping::~Mapping() { munmap(data_, bytes_); }

}  // namespace shm

ShmSegment::ShmSegment(bool writer, OwnedFd fd, std::shared_ptr<Mapping> base, std::vector<ShmEdgeSpec> edges, Layout layout,
                       uint64_t plan_hash, Doorbell* own)
    : writer_(writer),
      fd_(std::move(fd)),
      base_(std::move(base)),
      edges_(std::move(edges)),
      layout_(std::move(layout)),
      plan_hash_(plan_hash),
      own_doorbell_(own),
      end_(layout_.bytes) {
  for (size_t i = 0; i < edges_.size(); ++i) index_.emplace_back(edges_[i].edge, static_cast<int>(i));
  std::sort(index_.begin(), index_.end());
}

ShmSegment::~ShmSegment() {
  Close(absl::CancelledError("its end was dropped"));
  MutexLock lock(&mu_);
  // The hub's thread may still hold the descriptor; both sides' threads see this and forget the connection.
  if (connection_ != nullptr) shutdown(connection_->get(), SHUT_RDWR);
}

absl::StatusOr<std::shared_ptr<ShmSegment>> ShmSegment::CreateWriter(std::vector<ShmEdgeSpec> edges, uint64_t plan_hash, Doorbell* own) {
  WEFT_ASSIGN_OR_RETURN(Layout layout, shm::ComputeLayout(edges));
  OwnedFd fd(memfd_create("weft-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Not to be shrunk, so that no access within its size can fault, and grown by extending it.
  if (fd.get() < 0 || ftruncate(fd.get(), static_cast<off_t>(layout.bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory file of ", FormatBytes(layout.bytes), " for shared memory: ", strerror(errno)));
  }
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Mapping> base, Mapping::Map(fd.get(), 0, layout.bytes));
  // The file is zeros: closed flags open, rings empty.
  auto* h = new (base->data()) SegmentHeader{};
  h->magic = shm::kSegmentMagic;
  h->version = shm::kSegmentVersion;
  h->edges = static_cast<uint32_t>(edges.size());
  h->plan_hash = plan_hash;
  h->bytes = layout.bytes;
  h->admitted.store(-1, std::memory_order_release);
  auto* entries = reinterpret_cast<EdgeEntry*>(base->data() + sizeof(SegmentHeader));
  for (size_t i = 0; i < edges.size(); ++i) entries[i] = shm::EntryOf(edges[i]);
  return std::shared_ptr<ShmSegment>(
      new ShmSegment(true, std::move(fd), std::move(base), std::move(edges), std::move(layout), plan_hash, own));
}

absl::StatusOr<std::shared_ptr<ShmSegment>> ShmSegment::OpenReader(OwnedFd fd, Doorbell* own) {
  struct stat st;
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (fstat(fd.get(), &st) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError("what came as shared memory is no sealed memory file");
  }
  const uint64_t size = static_cast<uint64_t>(st.st_size);
  if (size < sizeof(SegmentHeader) || size > shm::kMaxSegmentBytes * 2) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory of ", size, " bytes came: no segment has that size"));
  }
  uint32_t count = 0;
  uint64_t plan_hash = 0, bytes = 0;
  std::vector<ShmEdgeSpec> edges;
  {
    // The header and the table are read once and copied before anything is checked.
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Mapping> head, Mapping::Map(fd.get(), 0, shm::RoundUp(sizeof(SegmentHeader), kPage)));
    const auto* h = reinterpret_cast<const SegmentHeader*>(head->data());
    const uint64_t magic = h->magic;
    const uint32_t version = h->version;
    count = h->edges;
    plan_hash = h->plan_hash;
    bytes = h->bytes;
    if (magic != shm::kSegmentMagic || version != shm::kSegmentVersion) {
      return absl::DataLossError(absl::StrFormat("what came as shared memory is no segment of this release (%016x, version %u)", magic, version));
    }
  }
  const uint64_t table = sizeof(SegmentHeader) + uint64_t{count} * sizeof(EdgeEntry);
  if (count > shm::kMaxEdges || bytes > size || bytes > shm::kMaxSegmentBytes || table > bytes) {
    return absl::DataLossError(absl::StrCat("a damaged segment came: ", count, " edges, ", bytes, " bytes in a file of ", size));
  }
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Mapping> base, Mapping::Map(fd.get(), 0, bytes));
  const auto* entries = reinterpret_cast<const EdgeEntry*>(base->data() + sizeof(SegmentHeader));
  edges.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    EdgeEntry entry;
    std::memcpy(&entry, entries + i, sizeof entry);
    WEFT_ASSIGN_OR_RETURN(ShmEdgeSpec spec, shm::SpecOf(entry));
    edges.push_back(std::move(spec));
  }
  WEFT_ASSIGN_OR_RETURN(Layout layout, shm::ComputeLayout(edges));
  if (layout.bytes != bytes) {
    return absl::DataLossError(absl::StrCat("a damaged segment came: its edges take ", layout.bytes, " bytes, it has ", bytes));
  }
  return std::shared_ptr<ShmSegment>(
      new ShmSegment(false, std::move(fd), std::move(base), std::move(edges), std::move(layout), plan_hash, own));
}

absl::StatusOr<int> ShmSegment::Find(int32_t edge) const {
  const auto it = std::lower_bound(index_.begin(), index_.end(), std::make_pair(edge, -1));
  if (it == index_.end() || it->first != edge) {
    return absl::NotFoundError(absl::StrCat("the memory shared with ", peer(), " has no edge ", edge, ": both ends need the same plan"));
  }
  return it->second;
}

std::string ShmSegment::PeerName() const {
  if (!edges_.empty()) {
    const std::string& name = writer_ ? edges_[0].dst_worker : edges_[0].src_worker;
    if (!name.empty()) return name;
  }
  return writer_ ? "the reader" : "the writer";
}

std::string ShmSegment::peer() const {
  MutexLock lock(&mu_);
  return peer_pid_ == 0 ? PeerName() : absl::StrCat(PeerName(), " (pid ", peer_pid_, ")");
}

void ShmSegment::PublishAdmitted(int64_t execution) {
  header()->admitted.store(execution, std::memory_order_release);
  RingPeer();
}

int64_t ShmSegment::admitted() const { return header()->admitted.load(std::memory_order_acquire); }

bool ShmSegment::SetCause(const absl::Status& cause) const {
  MutexLock lock(&mu_);
  if (has_cause_.load(std::memory_order_relaxed)) return false;
  cause_ = cause;
  has_cause_.store(true, std::memory_order_release);
  return true;
}

void ShmSegment::Close(const absl::Status& cause) {
  (void)closed();  // takes over the peer's cause if it was first
  const absl::Status c = cause.ok() ? absl::CancelledError("it was closed") : cause;
  if (!SetCause(c)) return;
  CloseBlock& block = writer_ ? header()->writer_close : header()->reader_close;
  uint32_t open = CloseBlock::kOpen;
  if (!block.state.compare_exchange_strong(open, CloseBlock::kWriting)) return;
  block.code = static_cast<int32_t>(c.code());
  const std::string text(c.message());
  const size_t n = std::min(text.size(), sizeof block.message - 1);
  std::memcpy(block.message, text.data(), n);
  block.message[n] = 0;
  block.state.store(CloseBlock::kSet, std::memory_order_release);
  RingPeer();
}

bool ShmSegment::is_closed() const {
  if (has_cause_.load(std::memory_order_acquire)) return true;
  const CloseBlock& theirs = writer_ ? header()->reader_close : header()->writer_close;
  return theirs.state.load(std::memory_order_acquire) == CloseBlock::kSet;
}

absl::Status ShmSegment::closed() const {
  if (!has_cause_.load(std::memory_order_acquire)) {
    const CloseBlock& theirs = writer_ ? header()->reader_close : header()->writer_close;
    if (theirs.state.load(std::memory_order_acquire) != CloseBlock::kSet) return absl::OkStatus();
    CloseBlock copy;
    copy.code = theirs.code;
    std::memcpy(copy.message, theirs.message, sizeof copy.message);
    const bool known = copy.code > 0 && copy.code <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
    auto code = known ? static_cast<absl::StatusCode>(copy.code) : absl::StatusCode::kUnknown;
    // What broke the peer is its to tell; here it is a consequence.
    if (code == absl::StatusCode::kInternal) code = absl::StatusCode::kAborted;
    SetCause(absl::Status(code,
                          absl::StrCat(PeerName(), " closed the link: ", SafeText(copy.message, sizeof copy.message))));
  }
  MutexLock lock(&mu_);
  return cause_;
}

void ShmSegment::RingPeer() {
  Doorbell* bell = peer_doorbell_.load(std::memory_order_acquire);
  // Nobody there, it seems. As a read-modify-write this look is ordered with AttachPeer's exchange: either it sees the new doorbell, or
  // the peer sees all that was written before.
  if (bell == nullptr) bell = peer_doorbell_.fetch_add(0, std::memory_order_acq_rel);
  if (bell != nullptr) bell->Ring();
}

absl::Status ShmSegment::AttachPeer(std::unique_ptr<Doorbell> doorbell, std::shared_ptr<OwnedFd> connection, int pid) {
  MutexLock lock(&mu_);
  if (connection_ != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("process ", peer_pid_, " has this memory already: one reader each"));
  }
  peer_doorbell_owner_ = std::move(doorbell);
  connection_ = std::move(connection);
  peer_pid_ = pid;
  peer_doorbell_.exchange(peer_doorbell_owner_.get(), std::memory_order_acq_rel);
  return absl::OkStatus();
}

void ShmSegment::PeerGone(const std::string& why) {
  (void)closed();  // a cause that the peer left is better than its death
  SetCause(absl::UnavailableError(absl::StrCat(peer(), " is gone: ", why)));
  if (own_doorbell_ != nullptr) own_doorbell_->Ring();
}

absl::StatusOr<std::shared_ptr<Mapping>> ShmSegment::Grow(uint64_t bytes) {
  // Twice what is needed at most, so that a slowly growing tensor moves rarely; untouched pages cost nothing.
  uint64_t rounded = kPage;
  while (rounded < bytes) rounded *= 2;
  MutexLock lock(&mu_);
  const uint64_t offset = end_;
  if (rounded > shm::kMaxSegmentBytes || offset + rounded > shm::kMaxSegmentBytes * 2 ||
      ftruncate(fd_.get(), static_cast<off_t>(offset + rounded)) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("shared memory cannot grow by ", FormatBytes(rounded)));
  }
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Mapping> place, Mapping::Map(fd_.get(), offset, rounded));
  end_ = offset + rounded;
  return place;
}

void ShmSegment::Punch(uint64_t offset, uint64_t bytes) {
  // Best effort: where it fails, the memory goes with the file.
  (void)fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
}

absl::StatusOr<std::shared_ptr<Mapping>> ShmSegment::MapGrown(uint64_t offset, uint64_t bytes) const {
  struct stat st;
  if (fstat(fd_.get(), &st) != 0 || offset % kPage != 0 || bytes % kPage != 0 || bytes == 0 || offset < layout_.bytes ||
      bytes > static_cast<uint64_t>(st.st_size) || offset > static_cast<uint64_t>(st.st_size) - bytes) {
    return absl::DataLossError(absl::StrCat("a slot of ", bytes, " bytes at ", offset, " lies outside the shared memory"));
  }
  return Mapping::Map(fd_.get(), offset, bytes);
}

absl::StatusOr<void*> ShmSegment::SlotMemory(int32_t edge, uint64_t number) const {
  WEFT_ASSIGN_OR_RETURN(const int index, Find(edge));
  return payload(index, number);
}

}  // namespace weft
