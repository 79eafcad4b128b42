#include "common/device/cuda/aside_calls.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/log.h"

namespace weft {
namespace {

// What takes longer is worth a line of the log.
constexpr Nanos kWorthALine = kNanosPerSecond;
// So many names say what goes on.
constexpr size_t kNames = 3;

}  // namespace

void AsideCalls::Put(const std::string& what, std::function<void()> call, bool is_long) {
  MutexLock lock(&mu_);
  calls_.push_back({what, std::move(call), is_long});
  any_.store(true, std::memory_order_release);
}

void AsideCalls::Do(Call* call) {
  {
    MutexLock lock(&mu_);
    --left_;
    under_way_.push_back(call->what);
  }
  const Nanos began = Clock::Real()->Now();
  call->call();
  call->call = nullptr;
  const Nanos took = Clock::Real()->Now() - began;
  if (took >= kWorthALine) SPDLOG_INFO("giving {} back to CUDA took {:.1f} s", call->what, ToSeconds(took));
  MutexLock lock(&mu_);
  under_way_.erase(std::find(under_way_.begin(), under_way_.end(), call->what));
  done_.fetch_add(1, std::memory_order_release);
}

void AsideCalls::DoAll(const std::function<void()>& bind) {
  bind();
  while (true) {  // what is given back may put aside more
    std::vector<Call> calls;
    {
      MutexLock lock(&mu_);
      calls.swap(calls_);
      left_ = calls.size();
      if (calls.empty()) {
        any_.store(false, std::memory_order_release);
        return;
      }
    }
    std::atomic<size_t> next{0};
    const auto long_ones = [&] {
      for (size_t i = next++; i < calls.size(); i = next++) {
        if (calls[i].is_long) Do(&calls[i]);
      }
    };
    const auto how_many = std::count_if(calls.begin(), calls.end(), [](const Call& c) { return c.is_long; });
    std::vector<std::thread> threads;
    for (int i = 0; i < std::min<int>(kAtATime, static_cast<int>(how_many)); ++i) {
      try {
        threads.emplace_back([&] {
          bind();
          long_ones();
        });
      } catch (const std::system_error&) {  // none to be had just now
        break;
      }
    }
    for (Call& c : calls) {
      if (!c.is_long) Do(&c);
    }
    if (threads.empty()) long_ones();
    for (std::thread& t : threads) t.join();
  }
}

std::string AsideCalls::Doing() const {
  MutexLock lock(&mu_);
  if (under_way_.empty()) return "";
  const size_t named = std::min(kNames, under_way_.size());
  const size_t others = under_way_.size() - named + left_;
  return absl::StrCat("now ", absl::StrJoin(under_way_.begin(), under_way_.begin() + static_cast<std::ptrdiff_t>(named), ", "),
                      others > 0 ? absl::StrCat("; ", others, " more") : "");
}

}  // namespace weft
