#include "common/device/cuda/aside_calls.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <thread>

namespace weft {
namespace {

TEST_CASE("aside calls: done in their order, what they put aside too, and none is left") {
  AsideCalls calls;
  CHECK_FALSE(calls.any());
  std::string done;
  calls.Put("a", [&] {
    done += "a";
    calls.Put("c", [&] { done += "c"; }, false);
  }, false);
  calls.Put("b", [&] { done += "b"; }, false);
  CHECK(calls.any());
  int bound = 0;
  calls.DoAll([&] { ++bound; });
  CHECK(done == "abc");
  CHECK(bound == 1);
  CHECK_FALSE(calls.any());
  CHECK(calls.Doing().empty());
}

TEST_CASE("aside calls: long ones are done beside each other, on threads that are bound, and say what is under way") {
  AsideCalls calls;
  // Each of two waits until both have begun.
  std::promise<void> first, second, end;
  const std::shared_future<void> may_end = end.get_future().share();
  std::atomic<int> bound{0}, done{0};
  calls.Put("link w0 -> w1", [&] {
    first.set_value();
    second.get_future().wait();
    may_end.wait();
    ++done;
  }, true);
  calls.Put("link w1 -> w0", [&] {
    first.get_future().wait();
    second.set_value();
    may_end.wait();
    ++done;
  }, true);
  std::atomic<bool> freed{false};
  calls.Put("memory", [&] { freed = true; }, false);
  std::thread all([&] { calls.DoAll([&] { ++bound; }); });
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::string doing;
  while (doing.find("link w0 -> w1") == std::string::npos || doing.find("link w1 -> w0") == std::string::npos || !freed) {
    REQUIRE(std::chrono::steady_clock::now() < until);
    doing = calls.Doing();
    std::this_thread::yield();
  }
  CHECK(doing.find("now ") == 0);
  CHECK(calls.any());
  end.set_value();
  all.join();
  CHECK(done == 2);
  CHECK(bound == 3);
  CHECK_FALSE(calls.any());
}

TEST_CASE("aside calls: three are named, the others counted") {
  AsideCalls calls;
  std::promise<void> end;
  const std::shared_future<void> may_end = end.get_future().share();
  std::atomic<int> begun{0};
  for (int i = 0; i < AsideCalls::kAtATime + 4; ++i) {
    calls.Put("one", [&, may_end] {
      ++begun;
      may_end.wait();
    }, true);
  }
  std::thread all([&] { calls.DoAll([] {}); });
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (begun < AsideCalls::kAtATime) {
    REQUIRE(std::chrono::steady_clock::now() < until);
    std::this_thread::yield();
  }
  CHECK(calls.Doing() == "now one, one, one; 9 more");
  CHECK(begun == AsideCalls::kAtATime);
  end.set_value();
  all.join();
  CHECK(begun == AsideCalls::kAtATime + 4);
}

}  // namespace
}  // namespace weft
