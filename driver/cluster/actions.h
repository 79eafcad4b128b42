#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace weft {

// What is to be called once a lock has been let go: callbacks may come back into the object that calls them.
class Actions {
 public:
  void Add(std::function<void()> action) { actions_.push_back(std::move(action)); }
  // Runs and forgets all, in order. The caller holds no lock.
  void Run() {
    std::vector<std::function<void()>> now;
    now.swap(actions_);
    for (const auto& action : now) action();
  }

 private:
  std::vector<std::function<void()>> actions_;
};

}  // namespace weft
