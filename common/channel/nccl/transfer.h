#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/channel/nccl/nccl_link.h"

namespace weft {

// The pattern of an edge's trial.
void FillTrialPattern(int32_t edge, void* bytes);
// OK, or DataLoss that says where it differs.
absl::Status CheckTrialPattern(int32_t edge, const void* bytes);

// The captured calls of an edge, by what they move. Internal to this directory.
class NcclReplays {
 public:
  static constexpr size_t kMost = 64;  // of an edge

  int Find(const void* data, uint64_t bytes, const void* status) const {
    for (const Entry& e : entries_) {
      if (e.data == data && e.bytes == bytes && e.status == status) return e.number;
    }
    return -1;
  }
  void Add(const void* data, uint64_t bytes, const void* status, int number) { entries_.push_back({data, bytes, status, number}); }
  bool full() const { return given_up_ || entries_.size() >= kMost; }
  // A call could not be captured. Where that is all that is wrong, transfers go the ordinary way, which is slower: OK, and said in the log. Otherwise `why`
  // with the edge's name.
  absl::Status GiveUp(const ShmEdgeSpec& edge, const NcclComm& comm, const absl::Status& why) {
    const std::string text = absl::StrCat(EdgeLabel(edge), ": ", std::string(why.message()));
    if (!comm.cause().ok() || !comm.options().device->Health().ok()) return absl::Status(why.code(), text);
    if (!given_up_) spdlog::warn("{}; its transfers are launched one by one instead of replayed", text);
    given_up_ = true;
    return absl::OkStatus();
  }

 private:
  struct Entry {
    const void* data;
    uint64_t bytes;
    const void* status;
    int number;
  };
  std::vector<Entry> entries_;
  bool given_up_ = false;
};

// What sends and receives have in common: the order on the link. Internal to this directory.
class NcclTransfer : public NcclWork {
 protected:
  NcclTransfer(const std::shared_ptr<NcclLink>& link, ShmEdgeSpec edge, int64_t execution, Stream* stream)
      : NcclWork(link->options_.comm, link->options_.device, stream),
        link_(link),
        edge_(std::move(edge)),
        execution_(execution),
        number_(link->transfers_++) {}

  // The link's order holds also where two streams share it.
  Turn MyTurn() override { return number_ == link_->launched_ ? Turn::kLaunch : Turn::kWait; }

  // One or two calls of NCCL as one transfer. Counts it as launched.
  absl::Status CallNccl(const char* what, const std::function<int(NcclApi*, NcclCommHandle)>& calls) {
    ++link_->launched_;
    return Named(comm()->Call(absl::StrCat(what, " of execution ", execution_), calls));
  }
  absl::Status Named(const absl::Status& s) const {
    return s.ok() ? s : absl::Status(s.code(), absl::StrCat(EdgeLabel(edge_), ": ", std::string(s.message())));
  }

  // The same by a captured call.
  absl::Status ReplayNccl(const char* what, int number) {
    ++link_->launched_;
    return Named(comm()->Replay(number, absl::StrCat(what, " of execution ", execution_), stream()->native()));
  }

  NcclLink* link() const { return link_.get(); }
  NcclScratch& scratch() const { return *link_->options_.scratch; }
  const ShmEdgeSpec& edge() const { return edge_; }

 public:
  // What several calls came to: the first failure, else whether any is in progress.
  struct Calls {
    int code = kNcclSuccess;
    void Note(int c) {
      if (code == kNcclSuccess || code == kNcclInProgress) code = c == kNcclSuccess ? code : c;
    }
  };
  // Calls that are one transfer.
  template <typename F>
  static int Transfer(NcclApi* api, const F& put) {
    Calls calls;
    calls.Note(api->GroupStart());
    if (calls.code != kNcclSuccess) return calls.code;
    put(&calls);
    calls.Note(api->GroupEnd());  // also after a failure, which the group then returns
    return calls.code;
  }

  int64_t execution() const { return execution_; }
  // What a transfer that is not over waits for.
  std::string WaitsFor(const char* then) const {
    const std::string end = comm()->EndWaitsFor();
    if (!end.empty()) return end;
    if (connecting()) return absl::StrCat("NCCL to connect to ", comm()->others(), " for execution ", execution_);
    return absl::StrCat(comm()->others(), " to ", then, " execution ", execution_);
  }

 private:
  const std::shared_ptr<NcclLink> link_;
  const ShmEdgeSpec edge_;
  const int64_t execution_;
  const uint64_t number_;
};

}  // namespace weft
