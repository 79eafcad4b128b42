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
constexpr Nanos kFarewellNanos = 50'000'000;
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
  absl::Status failure;
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
    failure = Diagnose(e.what());
  } catch (...) {
    failure = Diagnose("unknown failure");
  }
  // Closes the connections, so that nothing writes into a buffer any more when this returns.
  if (!failure.ok()) Abort(failure);
  ClosePairs();
  return Health();
}

std::string GlooMesh::FarewellOf(int rank) const {
  return SafeText(farewells_.data() + kFarewellBytes * rank, kFarewellBytes);
}

absl::Status GlooMesh::Diagnose(const std::string& what) {
  const absl::Status known = Health();
  if (!known.ok()) return known;
  // A connection that broke refuses the next receive. The others take it, and are closed soon after.
  std::vector<std::string> lost, left;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    char byte = 0;
    try {
      context_->createUnboundBuffer(&byte, 1)->recv(r, kProbeSlot);
    } catch (...) {
      // Of a broken connection nothing writes any more, so the farewell can be read.
      const std::string farewell = FarewellOf(r);
      if (farewell.empty()) {
        lost.push_back(RankName(r));
      } else {
        left.push_back(absl::StrCat(RankName(r), " ended it: ", farewell));
      }
    }
  }
  if (!lost.empty()) return absl::UnavailableError(absl::StrCat(options_.label, ": lost ", absl::StrJoin(lost, ", ")));
  if (!left.empty()) return absl::UnavailableError(absl::StrCat(options_.label, ": ", absl::StrJoin(left, "; ")));
  return absl::UnavailableError(absl::StrCat(options_.label, ": the connection failed: ", what));
}

void GlooMesh::Watch() {
  absl::Status cause;
  try {
    int from = -1;
    if (farewell_in_->waitRecv(&from, kForever) && from >= 0 && from < size()) {
      cause = absl::UnavailableError(absl::StrCat(options_.label, ": ", RankName(from), " ended it: ", FarewellOf(from)));
    }
  } catch (const std::exception& e) {
    cause = Diagnose(e.what());
  } catch (...) {
    cause = Diagnose("unknown failure");
  }
  if (!cause.ok()) Abort(cause);
}

absl::Status GlooMesh::StartWatch() {
  try {
    farewell_in_ = context_->createUnboundBuffer(farewells_.data(), farewells_.size());
    farewell_out_ = context_->createUnboundBuffer(own_farewell_.data(), own_farewell_.size());
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) farewell_in_->recv(r, kFarewellSlot, kFarewellBytes * r, kFarewellBytes);
    }
  } catch (const std::exception& e) {
    return Diagnose(e.what());
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

void GlooMesh::Abort(const absl::Status& cause) {
  std::string text;
  {
    MutexLock lock(&mu_);
    if (failed_) return;
    failed_ = true;
    cause_ = cause.ok() ? absl::AbortedError("ended") : cause;
    if (watching_) text = std::string(cause_.message().substr(0, kFarewellBytes - 1));
  }
  SayFarewell(text);
  ClosePairs();
  {
    MutexLock lock(&mu_);
    for (UnboundBuffer* b : waits_) {
      b->abortWaitRecv();
      b->abortWaitSend();
    }
  }
  if (options_.doorbell != nullptr) options_.doorbell->Ring();
}

void GlooMesh::SayFarewell(const std::string& text) {
  if (text.empty()) return;
  std::memcpy(own_farewell_.data(), text.data(), text.size());
  int sent = 0;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    try {
      farewell_out_->send(r, kFarewellSlot);
      ++sent;
    } catch (...) {  // that one is gone
    }
  }
  // Behind a payload it takes a moment until it is on its way. A wait that runs out closes all connections, as comes next anyway.
  const Nanos until = Clock::Real()->Now() + kFarewellNanos;
  try {
    for (; sent > 0; --sent) {
      farewell_out_->waitSend(nullptr, std::chrono::milliseconds(std::max<Nanos>((until - Clock::Real()->Now()) / 1'000'000, 1)));
    }
  } catch (...) {
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
