#include "driver/cluster/kv_store.h"

#include <catch2/catch.hpp>

namespace weft {
namespace {

TEST_CASE("a get waits until all keys are there") {
  FakeClock clock;
  KvStore store(&clock);
  store.Open("g", "t");
  int calls = 0;
  absl::StatusOr<std::vector<std::string>> got;
  const auto done = [&](absl::StatusOr<std::vector<std::string>> r) {
    ++calls;
    got = std::move(r);
  };
  store.Get("g", "t", {"a", "b"}, 10, done);
  REQUIRE(store.Set("g", "t", "b", "2").ok());
  CHECK(calls == 0);
  REQUIRE(store.Set("g", "t", "a", "1").ok());
  REQUIRE(calls == 1);
  REQUIRE(got.ok());
  CHECK(*got == std::vector<std::string>{"1", "2"});
  store.Get("g", "t", {"b"}, 10, done);
  CHECK(calls == 2);
  CHECK(store.Set("g", "t", "a", "1").ok());
  CHECK(absl::IsAlreadyExists(store.Set("g", "t", "a", "9")));
}

TEST_CASE("a get that is overdue names what is missing") {
  FakeClock clock;
  KvStore store(&clock);
  store.Open("g", "t");
  absl::Status got;
  store.Set("g", "t", "a", "1").IgnoreError();
  store.Get("g", "t", {"a", "rank1"}, 100, [&](auto r) { got = r.status(); });
  store.Tick();
  CHECK(got.ok());
  clock.Advance(100);
  store.Tick();
  CHECK(absl::IsDeadlineExceeded(got));
  CHECK(std::string(got.message()).find("rank1") != std::string::npos);
  CHECK(std::string(got.message()).find("set a") == std::string::npos);
}

TEST_CASE("closing an attempt aborts who waits and who comes later with its cause") {
  FakeClock clock;
  KvStore store(&clock);
  store.Open("g", "t");
  absl::Status got, later;
  int cancelled = 0;
  store.Get("g", "t", {"a"}, 100, [&](auto r) { got = r.status(); });
  store.Cancel(store.Get("g", "t", {"a"}, 100, [&](auto) { ++cancelled; }));
  store.Close("t", absl::UnavailableError("worker w2 is gone"));
  CHECK(absl::IsAborted(got));
  CHECK(std::string(got.message()) == "worker w2 is gone");
  store.Get("g", "t", {"a"}, 100, [&](auto r) { later = r.status(); });
  CHECK(std::string(later.message()) == "worker w2 is gone");
  CHECK(absl::IsAborted(store.Set("g", "t", "a", "1")));
  CHECK(absl::IsAborted(store.Set("g", "never", "a", "1")));
  CHECK(cancelled == 0);
}

TEST_CASE("sizes of the store are bounded") {
  FakeClock clock;
  KvStore store(&clock);
  store.Open("g", "t");
  CHECK(absl::IsInvalidArgument(store.Set("g", "t", "", "1")));
  CHECK(absl::IsInvalidArgument(store.Set("g", "t", std::string(5000, 'k'), "1")));
  CHECK(absl::IsInvalidArgument(store.Set("g", "t", "k", std::string((1 << 20) + 1, 'v'))));
  const std::string large(1 << 20, 'v');
  absl::Status status;
  int stored = 0;
  for (; status.ok() && stored < 300; ++stored) status = store.Set("g", "t", std::to_string(stored), large);
  CHECK(absl::IsResourceExhausted(status));
  CHECK(stored <= 256);
}

}  // namespace
}  // namespace weft
