#include "common/comm/fake/fake_group.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tensor/combine.h"

namespace weft {

// One rank's part in one call.
struct FakeGroup::Pending {
  CollectiveHeader header;
  Value in;
  Tensor buffer;
  Value* out = nullptr;
  std::shared_ptr<ManualEvent> event;
};

struct FakeGroup::State {
  State(GroupInfo i, Options o) : info(std::move(i)), options(std::move(o)), next(info.size(), 0), causes(info.size()) {}

  const GroupInfo info;
  const Options options;
  Mutex mu;
  std::vector<uint64_t> next WEFT_GUARDED_BY(mu);          // each rank's next call
  std::vector<absl::Status> causes WEFT_GUARDED_BY(mu);    // why a rank takes no more calls
  std::map<uint64_t, std::map<int, Pending>> open WEFT_GUARDED_BY(mu);

  void Done(int rank, const Pending& p) WEFT_REQUIRES(mu) {
    p.event->Set();
    if (rank < static_cast<int>(options.doorbells.size()) && options.doorbells[rank] != nullptr) options.doorbells[rank]->Ring();
  }

  // Ends all that is open; the first cause stays.
  void End(int rank, const absl::Status& own, const absl::Status& others) WEFT_REQUIRES(mu) {
    for (int r = 0; r < info.size(); ++r) {
      if (causes[r].ok()) causes[r] = r == rank ? own : others;
    }
    for (auto& [number, ranks] : open) {
      for (auto& [r, p] : ranks) {
        const int rank_of = r < info.size() ? r : options.absent_rank;
        p.out->error = CollectiveError(info, rank_of, p.header.message.execution, causes[rank_of]);
        Done(rank_of, p);
      }
    }
    open.clear();
  }

  void Complete(std::map<int, Pending>* ranks) WEFT_REQUIRES(mu);
};

void FakeGroup::State::Complete(std::map<int, Pending>* ranks) {
  std::vector<CollectiveHeader> headers;
  std::vector<const void*> inputs;
  for (auto& [r, p] : *ranks) {
    headers.push_back(p.header);
    inputs.push_back(p.in.tensor.data());
  }
  const Agreement agreed = Agree(info, headers);
  if (agreed.error != nullptr) {
    for (auto& [r, p] : *ranks) p.out->error = agreed.error;
  } else {
    const int64_t n = *NumElements(agreed.in);
    const size_t bytes = static_cast<size_t>(n) * SizeOf(agreed.dtype);
    const CollectiveHeader& h = headers[0];
    std::vector<char> reduced(bytes);
    if (h.op == v1::ALL_REDUCE || h.op == v1::REDUCE_SCATTER) {
      (void)Combine(agreed.dtype, static_cast<v1::ReduceOp>(h.reduce), inputs, reduced.data(), n);  // Agree checked it
    }
    // Inputs may be anywhere, buffers included: everything is read before anything is written.
    std::vector<std::vector<char>> copies;
    if (h.op == v1::ALL_GATHER || h.op == v1::BROADCAST) {
      for (const void* in : inputs) copies.emplace_back(static_cast<const char*>(in), static_cast<const char*>(in) + bytes);
    }
    for (auto& [r, p] : *ranks) {
      p.out->tensor = ResultIn(p.buffer, agreed);
      p.out->error = nullptr;
      char* to = static_cast<char*>(p.buffer.data());
      if (bytes == 0) continue;
      switch (h.op) {
        case v1::ALL_REDUCE: std::memcpy(to, reduced.data(), bytes); break;
        case v1::REDUCE_SCATTER: std::memcpy(to, reduced.data() + bytes / info.size() * r, bytes / info.size()); break;
        case v1::BROADCAST: std::memcpy(to, copies[h.root].data(), bytes); break;
        default:
          for (int i = 0; i < info.size(); ++i) std::memcpy(to + i * bytes, copies[i].data(), bytes);
      }
    }
  }
  for (auto& [r, p] : *ranks) Done(r, p);
}

class FakeGroup::Member : public Communicator {
 public:
  Member(std::shared_ptr<State> state, int rank) : s_(std::move(state)), rank_(rank) {}
  ~Member() override { Abort(absl::CancelledError("the communicator was closed")); }

  int rank() const override { return rank_; }
  int size() const override { return s_->info.size(); }

  absl::StatusOr<EventRef> Run(const CollectiveCall& call, const Value& in, const Tensor& buffer, Value* out, Stream*) override {
    MutexLock lock(&s_->mu);
    if (!s_->causes[rank_].ok()) return s_->causes[rank_];
    const uint64_t number = s_->next[rank_]++;
    if (rank_ == s_->options.fail_rank && number == s_->options.fail_call) {
      return absl::InternalError(absl::StrCat("the fake group was told to fail call ", number, " of ", s_->info.RankName(rank_)));
    }
    Pending p{MakeCollectiveHeader(s_->info, rank_, call, number, in, buffer), in, buffer, out, std::make_shared<ManualEvent>()};
    const std::shared_ptr<ManualEvent> event = p.event;
    std::map<int, Pending>& ranks = s_->open[number];
    // An absent rank is under a number at which it is never missed.
    ranks.emplace(rank_ == s_->options.absent_rank ? s_->info.size() : rank_, std::move(p));
    if (static_cast<int64_t>(number) == s_->options.die_at) {
      const int dead = s_->options.dying_rank;
      const absl::Status lost = absl::UnavailableError(absl::StrCat("lost ", s_->info.RankName(dead)));
      s_->End(dead, lost, lost);
      return event;
    }
    if (static_cast<int>(ranks.size()) == s_->info.size() && ranks.rbegin()->first < s_->info.size()) {
      std::map<int, Pending> all = std::move(ranks);
      s_->open.erase(number);
      s_->Complete(&all);
    }
    return event;
  }

  void Abort(const absl::Status& cause) override {
    MutexLock lock(&s_->mu);
    s_->End(rank_, cause, absl::UnavailableError(absl::StrCat(s_->info.RankName(rank_), " ended the group: ", std::string(cause.message()))));
  }

  absl::Status Health() const override {
    MutexLock lock(&s_->mu);
    return s_->causes[rank_];
  }

 private:
  const std::shared_ptr<State> s_;
  const int rank_;
};

FakeGroup::FakeGroup(GroupInfo info, Options options) : state_(std::make_shared<State>(std::move(info), std::move(options))) {}
FakeGroup::~FakeGroup() = default;

std::unique_ptr<Communicator> FakeGroup::Take(int rank) { return std::make_unique<Member>(state_, rank); }

}  // namespace weft
