#include "driver/cluster/kv_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

constexpr size_t kRememberedAttempts = 64;

}  // namespace

void KvStore::Open(const std::string& graph, const std::string& attempt) {
  MutexLock lock(&mu_);
  spaces_[attempt].graph = graph;
}

void KvStore::Close(const std::string& attempt, const absl::Status& cause) {
  Actions after;
  {
    MutexLock lock(&mu_);
    spaces_.erase(attempt);
    if (closed_.emplace(attempt, cause).second) {
      closed_order_.push_back(attempt);
      if (closed_order_.size() > kRememberedAttempts) {
        closed_.erase(closed_order_.front());
        closed_order_.erase(closed_order_.begin());
      }
    }
    for (auto it = waiters_.begin(); it != waiters_.end();) {
      if (it->second.attempt != attempt) {
        ++it;
        continue;
      }
      after.Add([done = std::move(it->second.done), status = Unknown(it->second.graph, attempt)] { done(status); });
      it = waiters_.erase(it);
    }
  }
  after.Run();
}

absl::Status KvStore::Unknown(const std::string& graph, const std::string& attempt) const {
  const auto it = closed_.find(attempt);
  if (it == closed_.end()) {
    return absl::AbortedError(absl::StrCat("graph ", graph, " has no attempt ", attempt, " here: it was torn down or compiled again"));
  }
  return absl::AbortedError(std::string(it->second.message()));
}

absl::Status KvStore::Set(const std::string& graph, const std::string& attempt, const std::string& key,
                          const std::string& value) {
  if (key.empty() || key.size() > kMaxKeyBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a key of graph ", graph, " has ", key.size(), " bytes: 1 to ", kMaxKeyBytes));
  }
  if (value.size() > kMaxValueBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the value of key ", key, " of graph ", graph, " has ", value.size(), " bytes: at most ", kMaxValueBytes));
  }
  Actions after;
  {
    MutexLock lock(&mu_);
    const auto space = spaces_.find(attempt);
    if (space == spaces_.end() || space->second.graph != graph) return Unknown(graph, attempt);
    const auto old = space->second.values.find(key);
    if (old != space->second.values.end()) {
      if (old->second == value) return absl::OkStatus();
      return absl::AlreadyExistsError(absl::StrCat("key ", key, " of graph ", graph, " already has another value"));
    }
    if (space->second.bytes + key.size() + value.size() > kMaxTotalBytes) {
      return absl::ResourceExhaustedError(absl::StrCat("the keys of graph ", graph, " would exceed ", kMaxTotalBytes, " bytes"));
    }
    space->second.bytes += key.size() + value.size();
    space->second.values.emplace(key, value);
    Satisfy(attempt, &after);
  }
  after.Run();
  return absl::OkStatus();
}

void KvStore::Satisfy(const std::string& attempt, Actions* after) {
  const Space& space = spaces_[attempt];
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    bool all = it->second.attempt == attempt;
    std::vector<std::string> values;
    for (size_t i = 0; all && i < it->second.keys.size(); ++i) {
      const auto found = space.values.find(it->second.keys[i]);
      all = found != space.values.end();
      if (all) values.push_back(found->second);
    }
    if (!all) {
      ++it;
      continue;
    }
    after->Add([done = std::move(it->second.done), values = std::move(values)]() mutable { done(std::move(values)); });
    it = waiters_.erase(it);
  }
}

int64_t KvStore::Get(const std::string& graph, const std::string& attempt, std::vector<std::string> keys, Nanos deadline,
                     GetDone done) {
  Actions after;
  int64_t number = 0;
  {
    MutexLock lock(&mu_);
    number = next_++;
    const auto space = spaces_.find(attempt);
    if (space == spaces_.end() || space->second.graph != graph) {
      after.Add([done = std::move(done), status = Unknown(graph, attempt)] { done(status); });
    } else {
      waiters_[number] = Waiter{graph, attempt, std::move(keys), deadline, clock_->Now(), std::move(done)};
      Satisfy(attempt, &after);
    }
  }
  after.Run();
  return number;
}

void KvStore::Cancel(int64_t get) {
  MutexLock lock(&mu_);
  waiters_.erase(get);
}

bool KvStore::Tick() {
  Actions after;
  bool left = false;
  {
    MutexLock lock(&mu_);
    const Nanos now = clock_->Now();
    for (auto it = waiters_.begin(); it != waiters_.end();) {
      const Waiter& w = it->second;
      if (now < w.deadline) {
        ++it;
        continue;
      }
      std::vector<std::string> missing;
      for (const std::string& key : w.keys) {
        if (spaces_[w.attempt].values.count(key) == 0) missing.push_back(key);
      }
      after.Add([done = w.done, status = absl::DeadlineExceededError(absl::StrFormat(
                                    "graph %s: nobody has set %s within %.1f s", w.graph, absl::StrJoin(missing, ", "),
                                    ToSeconds(now - w.since)))] { done(status); });
      it = waiters_.erase(it);
    }
    left = !waiters_.empty();
  }
  after.Run();
  return left;
}

}  // namespace weft
