#include "common/comm/fake/fake_group.h"

#include <catch2/catch.hpp>
#include <thread>

#include "common/comm/fake/memory_store.h"

namespace weft {
namespace {

GroupInfo Group(int size) {
  GroupInfo g;
  g.id = 1;
  g.name = "grads";
  for (int i = 0; i < size; ++i) g.workers.push_back("w" + std::to_string(i));
  return g;
}

struct Rank {
  std::unique_ptr<Communicator> comm;
  Value in, out;
  Tensor buffer = *Tensor::OnHost(v1::I64, {64});
  EventRef event;

  absl::Status Run(const CollectiveCall& call) {
    absl::StatusOr<EventRef> e = comm->Run(call, in, buffer, &out, nullptr);
    if (!e.ok()) return e.status();
    event = *e;
    return absl::OkStatus();
  }
};

std::vector<Rank> Ranks(FakeGroup* group, int size) {
  std::vector<Rank> ranks(size);
  for (int r = 0; r < size; ++r) {
    ranks[r].comm = group->Take(r);
    ranks[r].in.tensor = *Tensor::OnHost(v1::I64, {4});
    for (int i = 0; i < 4; ++i) ranks[r].in.tensor.as<int64_t>()[i] = 10 * r + i;
  }
  return ranks;
}

std::vector<int64_t> Result(const Rank& r) {
  REQUIRE(r.out.error == nullptr);
  return std::vector<int64_t>(r.out.tensor.as<int64_t>(), r.out.tensor.as<int64_t>() + r.out.tensor.elements());
}

CollectiveCall CallOf(v1::CollectiveOp op, int64_t execution = 0) {
  CollectiveCall c;
  c.op = op;
  c.execution = execution;
  c.root_rank = op == v1::BROADCAST ? 1 : 0;
  return c;
}

TEST_CASE("fake group: every op, done when the last rank comes, doorbells rung") {
  std::unique_ptr<Doorbell> bell = Doorbell::InProcess();
  FakeGroup::Options options;
  options.doorbells = {bell.get(), nullptr};
  FakeGroup group(Group(2), options);
  std::vector<Rank> r = Ranks(&group, 2);
  const std::pair<v1::CollectiveOp, std::vector<std::vector<int64_t>>> cases[] = {
      {v1::ALL_REDUCE, {{10, 12, 14, 16}, {10, 12, 14, 16}}},
      {v1::ALL_GATHER, {{0, 1, 2, 3, 10, 11, 12, 13}, {0, 1, 2, 3, 10, 11, 12, 13}}},
      {v1::REDUCE_SCATTER, {{10, 12}, {14, 16}}},
      {v1::BROADCAST, {{10, 11, 12, 13}, {10, 11, 12, 13}}},
  };
  for (const auto& [op, want] : cases) {
    REQUIRE(r[1].Run(CallOf(op)).ok());
    CHECK_FALSE(r[1].event->Ready());
    const uint32_t seen = bell->Snapshot();
    REQUIRE(r[0].Run(CallOf(op)).ok());
    CHECK(bell->Snapshot() != seen);
    CHECK(r[1].event->Ready());
    CHECK(Result(r[0]) == want[0]);
    CHECK(Result(r[1]) == want[1]);
  }
}

TEST_CASE("fake group: calls of one rank may run ahead, results stay in step") {
  FakeGroup group(Group(2));
  std::vector<Rank> r = Ranks(&group, 2);
  REQUIRE(r[0].Run(CallOf(v1::ALL_REDUCE, 0)).ok());
  const EventRef first = r[0].event;
  Value second_out;
  const absl::StatusOr<EventRef> second = r[0].comm->Run(CallOf(v1::ALL_REDUCE, 1), r[0].in, r[0].buffer, &second_out, nullptr);
  REQUIRE(r[1].Run(CallOf(v1::ALL_REDUCE, 0)).ok());
  CHECK(first->Ready());
  CHECK_FALSE((*second)->Ready());
  REQUIRE(r[1].Run(CallOf(v1::ALL_REDUCE, 1)).ok());
  CHECK((*second)->Ready());
}

TEST_CASE("fake group: mismatches and poison are values, and the group goes on") {
  FakeGroup group(Group(2));
  std::vector<Rank> r = Ranks(&group, 2);
  const Tensor good = r[1].in.tensor;
  r[1].in.tensor = *Tensor::OnHost(v1::I64, {2, 2});
  for (Rank& k : r) REQUIRE(k.Run(CallOf(v1::ALL_REDUCE)).ok());
  for (Rank& k : r) CHECK(k.out.error->message.find("rank 1 (w1) gives I64[2, 2]") != std::string::npos);
  r[1].in.tensor = good;
  for (Rank& k : r) REQUIRE(k.Run(CallOf(v1::ALL_REDUCE)).ok());
  CHECK(Result(r[1])[0] == 10);
}

TEST_CASE("fake group: a call that fails, a rank that is absent, a rank that dies") {
  FakeGroup::Options fail;
  fail.fail_rank = 1;
  fail.fail_call = 1;
  FakeGroup f(Group(2), fail);
  std::vector<Rank> r = Ranks(&f, 2);
  for (Rank& k : r) REQUIRE(k.Run(CallOf(v1::ALL_REDUCE)).ok());
  CHECK(r[1].Run(CallOf(v1::ALL_REDUCE)).code() == absl::StatusCode::kInternal);

  FakeGroup::Options absent;
  absent.absent_rank = 0;
  FakeGroup a(Group(2), absent);
  std::vector<Rank> s = Ranks(&a, 2);
  for (Rank& k : s) REQUIRE(k.Run(CallOf(v1::ALL_REDUCE)).ok());
  CHECK_FALSE(s[0].event->Ready());
  CHECK_FALSE(s[1].event->Ready());
  s[1].comm->Abort(absl::DeadlineExceededError("waited enough"));
  s[1].comm->Abort(absl::InternalError("later"));
  CHECK(s[0].event->Ready());
  CHECK(s[1].event->Ready());
  CHECK(s[1].out.error->code == absl::StatusCode::kDeadlineExceeded);
  CHECK(s[0].out.error->code == absl::StatusCode::kUnavailable);
  CHECK(s[0].out.error->message.find("w1") != std::string::npos);
  CHECK(s[1].comm->Health().message() == "waited enough");
  CHECK_FALSE(s[1].Run(CallOf(v1::ALL_REDUCE)).ok());

  FakeGroup::Options dies;
  dies.die_at = 1;
  dies.dying_rank = 1;
  FakeGroup d(Group(3), dies);
  std::vector<Rank> t = Ranks(&d, 3);
  for (Rank& k : t) REQUIRE(k.Run(CallOf(v1::ALL_REDUCE)).ok());
  REQUIRE(t[2].Run(CallOf(v1::ALL_REDUCE)).ok());
  CHECK(t[2].event->Ready());
  CHECK(t[2].out.error->message.find("lost rank 1 (w1)") != std::string::npos);
  CHECK(t[0].Run(CallOf(v1::ALL_REDUCE)).code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("fake group: ranks on threads of their own") {
  FakeGroup group(Group(4));
  std::vector<Rank> r = Ranks(&group, 4);
  std::vector<std::thread> threads;
  std::vector<int> good(4, 0);
  std::vector<std::vector<Value>> outs(4, std::vector<Value>(200));
  std::vector<std::vector<EventRef>> events(4);
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([&, k] {
      for (int i = 0; i < 200; ++i) {
        const auto e = r[k].comm->Run(CallOf(v1::ALL_REDUCE, i), r[k].in, *Tensor::OnHost(v1::I64, {4}), &outs[k][i], nullptr);
        if (e.ok()) events[k].push_back(*e);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (int k = 0; k < 4; ++k) {
    REQUIRE(events[k].size() == 200);
    for (int i = 0; i < 200; ++i) good[k] += events[k][i]->Ready() && outs[k][i].tensor.as<int64_t>()[1] == 64;
    CHECK(good[k] == 200);
  }
}

TEST_CASE("memory store: values in order, missing keys named, late keys waited for") {
  MemoryStore store;
  REQUIRE(store.Set("a", "1").ok());
  CHECK(store.Set("a", "2").code() == absl::StatusCode::kAlreadyExists);
  const absl::Status missing = store.Get({"a", "b"}, 0).status();
  CHECK(missing.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(std::string(missing.message()).find("b") != std::string::npos);
  std::thread late([&] { (void)store.Set("b", "2"); });
  CHECK(*store.Get({"b", "a"}, 30 * kNanosPerSecond) == std::vector<std::string>{"2", "1"});
  late.join();
}

}  // namespace
}  // namespace weft
