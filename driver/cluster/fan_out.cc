#include "driver/cluster/fan_out.h"

#include <utility>

namespace weft {

void FanOut::Ask(const std::vector<std::string>& workers, Nanos deadline,
                 std::function<v1::DriverMessage(int64_t request)> make, Done done) {
  int64_t number = 0;
  {
    MutexLock lock(&mu_);
    number = next_++;
    Request& r = requests_[number];
    r.open.insert(workers.begin(), workers.end());
    r.deadline = deadline;
    r.done = std::move(done);
  }
  const v1::DriverMessage question = make(number);
  std::vector<std::string> gone;
  for (const std::string& w : workers) {
    if (!registry_->Send(w, "", question)) gone.push_back(w);
  }
  Actions after;
  {
    MutexLock lock(&mu_);
    const auto it = requests_.find(number);
    if (it != requests_.end()) {
      for (const std::string& w : gone) {
        if (it->second.open.erase(w) > 0) it->second.result.problems[w] = registry_->Problem(w);
      }
      FinishIfDone(it, &after);
    }
  }
  after.Run();
}

void FanOut::FinishIfDone(std::map<int64_t, Request>::iterator it, Actions* after) {
  if (!it->second.open.empty()) return;
  after->Add([done = std::move(it->second.done), result = std::move(it->second.result)]() mutable { done(std::move(result)); });
  requests_.erase(it);
}

bool FanOut::Answer(int64_t request, const std::string& worker, const v1::WorkerMessage& message, bool last) {
  Actions after;
  {
    MutexLock lock(&mu_);
    const auto it = requests_.find(request);
    if (it == requests_.end() || it->second.open.count(worker) == 0) return false;
    it->second.result.answers[worker].push_back(message);
    if (last) {
      it->second.open.erase(worker);
      FinishIfDone(it, &after);
    }
  }
  after.Run();
  return true;
}

void FanOut::Lost(const std::string& worker, const std::string& why) {
  Actions after;
  {
    MutexLock lock(&mu_);
    for (auto it = requests_.begin(); it != requests_.end();) {
      const auto here = it++;
      if (here->second.open.erase(worker) == 0) continue;
      here->second.result.problems[worker] = why;
      FinishIfDone(here, &after);
    }
  }
  after.Run();
}

bool FanOut::Tick() {
  Actions after;
  bool left = false;
  {
    MutexLock lock(&mu_);
    const Nanos now = clock_->Now();
    for (auto it = requests_.begin(); it != requests_.end();) {
      const auto here = it++;
      if (now < here->second.deadline) continue;
      for (const std::string& w : here->second.open) {
        const std::string problem = registry_->Problem(w);
        here->second.result.problems[w] = problem.empty() ? "no answer in time" : problem;
      }
      here->second.open.clear();
      FinishIfDone(here, &after);
    }
    left = !requests_.empty();
  }
  after.Run();
  return left;
}

}  // namespace weft
