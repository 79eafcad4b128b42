#include "common/comm/gloo/gloo_mesh.h"

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/channel/header.h"

namespace weft {
namespace {

using gloo::transport::UnboundBuffer;

// gloo waits with a limit only, and ends all connections when it passes; ours are ended by Abort.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 3650);
constexpr size_t kFarewellBytes = 512;
// So long a peer may take to read a farewell.
constexpr Nanos kLingerNanos = 20'000'000;
// So long the watcher may take to say who is to blame for a failure that another thread saw.
constexpr Nanos kVerdictNanos = 200'000'000;
// Edges' slots are below 2^34; collectives' too.
constexpr uint64_t kFarewellSlot = uint64_t{1} << 60;
constexpr uint64_t kProbeSlot = kFarewellSlot + 1;

}  // namespace

// One buffer on which the calling thread waits, known to Abort meanwhile.
class GlooMesh::Wait {
 public:
  Wait(GlooMesh* mesh, void* data, size_t bytes) : mesh_(mesh), buffer_(mesh->context_->createUnboundBuffer(data, bytes)) {
    MutexLock lock(&mesh_->mu_);
    mesh_->waits_.insert(buffer_.get());
    // Abort has passed already.
    if (mesh_->failed_) {
      buffer_->abortWaitRecv();
      buffer_->abortWaitSend();
    }
  }
  ~Wait() {
    if (buffer_ == nullptr) return;
    MutexLock lock(&mesh_->mu_);
    mesh_->waits_.erase(buffer_.get());
  }
  Wait(Wait&& o) noexcept : mesh_(o.mesh_), buffer_(std::move(o.buffer_)) {}

  UnboundBuffer* operator->() const { return buffer_.get(); }

 private:
  GlooMesh* const mesh_;
  std::unique_ptr<UnboundBuffer> buffer_;
};

absl::StatusOr<std::shared_ptr<GlooMesh>> GlooMesh::Create(std::shared_ptr<GlooDevice> device, Options options) {
  const int size = static_cast<int>(options.workers.size());
  if (size < 2 || options.rank < 0 || options.rank >= size) {
    return absl::InvalidArgumentError(absl::StrCat(options.label, ": rank ", options.rank, " of ", size, " ranks cannot be"));
  }
  if (options.store == nullptr) return absl::InvalidArgumentError(absl::StrCat(options.label, ": there is no store"));
  return std::shared_ptr<GlooMesh>(new GlooMesh(std::move(device), std::move(options)));
}

GlooMesh::GlooMesh(std::shared_ptr<GlooDevice> device, Options options)
    : device_(std::move(device)),
      options_(std::move(options)),
      farewells_(kFarewellBytes * options_.workers.size()),
      own_farewell_(kFarewellBytes) {}

GlooMesh::~GlooMesh() {
  Abort(absl::CancelledError("closed"));
  if (watcher_ != nullptr) watcher_->join();
}

std::string GlooMesh::RankName(int rank) const { return absl::StrCat(options_.workers[rank], " (rank ", rank, ")"); }

absl::Status GlooMesh::Exchange(const std::vector<Piece>& sends, const std::vector<Piece>& recvs) {
  std::vector<Wait> in, out;
  std::string what;
  try {
    for (const Piece& p : recvs) {
      if (p.bytes == 0) continue;
      in.emplace_back(this, p.data, p.bytes);
      in.back()->recv(p.peer, p.slot);
    }
    for (const Piece& p : sends) {
      if (p.bytes == 0) continue;
      out.emplace_back(this, p.data, p.bytes);
      out.back()->send(p.peer, p.slot);
    }
    bool done = true;
    for (const Wait& w : in) done = done && w->waitRecv(nullptr, kForever);
    for (const Wait& w : out) done = done && w->waitSend(nullptr, kForever);
    if (done) return absl::OkStatus();
  } catch (const std::exception& e) {
    what = e.what();
  } catch (...) {
    what = "unknown failure";
  }
  // The watcher knows better who is to blame. It also closes the connections: only then does nothing touch the pieces any more.
  const Nanos until = Clock::Real()->Now() + kVerdictNanos;
  {
    MutexLock lock(&mu_);
    while (!failed_ && Clock::Real()->Now() < until) changed_.WaitFor(&mu_, std::chrono::nanoseconds(kVerdictNanos));
  }
  Fail(absl::UnavailableError(absl::StrCat(options_.label, ": the connection failed: ", what)));
  MutexLock lock(&mu_);
  while (!closed_) changed_.Wait(&mu_);
  return cause_;
}

std::string GlooMesh::FarewellOf(int rank) const {
  return SafeText(farewells_.data() + kFarewellBytes * rank, kFarewellBytes);
}

bool GlooMesh::IsLost(int rank) {
  // A connection that broke refuses the next receive.
  try {
    char byte = 0;
    context_->createUnboundBuffer(&byte, 1)->recv(rank, kProbeSlot);
    return false;
  } catch (...) {
    return true;
  }
}

// A farewell counts before a broken connection: whoever says one ends its connections next, and so do those who heard it.
bool GlooMesh::HearFarewell(std::string* broken) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      int from = -1;
      if (!farewell_in_->waitRecv(&from, kForever)) return false;  // Abort
      if (from < 0 || from >= size()) continue;
      Fail(absl::UnavailableError(absl::StrCat(options_.label, ": ", RankName(from), " ended it: ", FarewellOf(from))));
      return true;
    } catch (const std::exception& e) {
      // Once more: what has come is handed out without a look at the connections.
      *broken = e.what();
    }
  }
  return false;
}

void GlooMesh::Watch() {
  std::string broken;
  const bool told = HearFarewell(&broken);
  if (!told && !broken.empty()) {
    std::vector<std::string> lost;
    for (int r = 0; r < size(); ++r) {
      if (r != rank() && IsLost(r)) lost.push_back(RankName(r));
    }
    Fail(absl::UnavailableError(lost.empty() ? absl::StrCat(options_.label, ": the connection failed: ", broken)
                                             : absl::StrCat(options_.label, ": lost ", absl::StrJoin(lost, ", "))));
  }
  SayFarewell();
  // Closing throws away what a peer has not read yet. Who only passes on what another said need not care.
  const Nanos until = Clock::Real()->Now() + kLingerNanos;
  for (int r = 0; r < size() && !told; ++r) {
    while (r != rank() && !IsLost(r) && Clock::Real()->Now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ClosePairs();
  MutexLock lock(&mu_);
  closed_ = true;
  changed_.NotifyAll();
}

absl::Status GlooMesh::StartWatch() {
  try {
    farewell_in_ = context_->createUnboundBuffer(farewells_.data(), farewells_.size());
    farewell_out_ = context_->createUnboundBuffer(own_farewell_.data(), own_farewell_.size());
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) farewell_in_->recv(r, kFarewellSlot, kFarewellBytes * r, kFarewellBytes);
    }
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrCat(options_.label, ": a peer left while the ranks connected: ", e.what()));
  }
  {
    MutexLock lock(&mu_);
    if (failed_) return cause_;
    waits_.insert(farewell_in_.get());
    watching_ = true;
  }
  watcher_ = std::make_unique<std::thread>([this] { Watch(); });
  return absl::OkStatus();
}

void GlooMesh::Abort(const absl::Status& cause) { Fail(cause); }

void GlooMesh::Fail(const absl::Status& cause) {
  bool watched = false;
  {
    MutexLock lock(&mu_);
    if (failed_) return;
    failed_ = true;
    cause_ = cause.ok() ? absl::AbortedError("ended") : cause;
    watched = watching_;
    for (UnboundBuffer* b : waits_) {
      b->abortWaitRecv();
      b->abortWaitSend();
    }
    changed_.NotifyAll();
  }
  if (!watched) {  // still connecting: there is no one to close, and no one to tell
    ClosePairs();
    MutexLock lock(&mu_);
    closed_ = true;
    changed_.NotifyAll();
  }
  if (options_.doorbell != nullptr) options_.doorbell->Ring();
}

void GlooMesh::SayFarewell() {
  const std::string text(Health().message().substr(0, kFarewellBytes - 1));
  std::memcpy(own_farewell_.data(), text.empty() ? "?" : text.data(), std::max<size_t>(text.size(), 1));
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    try {
      farewell_out_->send(r, kFarewellSlot);  // gloo's own thread does the rest
    } catch (...) {  // that one is gone
    }
  }
}

void GlooMesh::ClosePairs() {
  {
    MutexLock lock(&mu_);
    if (!pairs_made_) return;
  }
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    try {
      context_->getPair(r)->close();
    } catch (...) {  // closed already
    }
  }
}

absl::Status GlooMesh::Health() const {
  MutexLock lock(&mu_);
  return failed_ ? cause_ : absl::OkStatus();
}

}  // namespace weft
