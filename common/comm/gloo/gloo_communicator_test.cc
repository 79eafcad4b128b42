#include "common/comm/gloo/gloo_communicator.h"

#include <catch2/catch.hpp>
#include <random>

#include "common/comm/fake/fake_group.h"
#include "common/comm/gloo/gloo_test_util.h"

namespace weft {
namespace {

GroupInfo Group(int size) {
  GroupInfo g;
  g.id = 4;
  g.name = "grads";
  g.plan_hash = 99;
  g.workers = WorkerNames(size);
  return g;
}

std::shared_ptr<GlooDevice> Loopback() { return *GlooDevice::Create("127.0.0.1"); }

// A group of communicators in this process, each with its doorbell.
struct Ranks {
  Ranks(const std::shared_ptr<GlooDevice>& device, int size) {
    std::vector<Doorbell*> raw;
    for (int r = 0; r < size; ++r) {
      bells.push_back(Doorbell::InProcess());
      raw.push_back(bells.back().get());
    }
    meshes = ConnectAll(device, size, raw);
    for (int r = 0; r < size; ++r) comms.push_back(std::make_unique<GlooCommunicator>(meshes[r], Group(size), raw[r]));
  }
  std::vector<std::unique_ptr<Doorbell>> bells;
  std::vector<std::shared_ptr<GlooMesh>> meshes;
  std::vector<std::unique_ptr<Communicator>> comms;
};

Value RandomValue(DType d, const Dims& dims, uint64_t seed) {
  Value v;
  v.tensor = *Tensor::OnHost(d, dims);
  std::mt19937_64 rng(seed);
  for (int64_t i = 0; i < v.tensor.elements(); ++i) {
    SetElementFromDouble(v.tensor, i, IsFloat(d) ? static_cast<double>(rng() % 20001) * 0.01 - 100 : static_cast<double>(rng() % 100));
  }
  return v;
}

CollectiveCall CallOf(v1::CollectiveOp op, v1::ReduceOp reduce = v1::SUM, int64_t execution = 0) {
  CollectiveCall c;
  c.op = op;
  c.reduce = reduce;
  c.execution = execution;
  c.root_rank = op == v1::BROADCAST ? 1 : 0;
  return c;
}

// One call on all ranks; returns each rank's result.
std::vector<Value> RunAll(std::vector<std::unique_ptr<Communicator>>* comms, std::vector<std::unique_ptr<Doorbell>>* bells,
                          const std::vector<CollectiveCall>& calls, const std::vector<Value>& in, int64_t buffer_bytes) {
  const int n = static_cast<int>(comms->size());
  std::vector<Value> out(n);
  std::vector<EventRef> events(n);
  for (int r = 0; r < n; ++r) {
    const absl::StatusOr<EventRef> e =
        (*comms)[r]->Run(calls[r], in[r], *Tensor::OnHost(v1::U8, {buffer_bytes}), &out[r], nullptr);
    REQUIRE(e.ok());
    events[r] = *e;
  }
  for (int r = 0; r < n; ++r) {
    if (bells == nullptr) {
      REQUIRE(events[r]->Ready());
    } else {
      REQUIRE(AwaitBell((*bells)[r].get(), [&] { return events[r]->Ready(); }));
    }
  }
  return out;
}

TEST_CASE("gloo: every op, dtype and size gives the bits of the fake group") {
  const auto device = Loopback();
  for (const int n : {2, 3, 4}) {
    Ranks ranks(device, n);
    FakeGroup fake(Group(n));
    std::vector<std::unique_ptr<Communicator>> fakes;
    for (int r = 0; r < n; ++r) fakes.push_back(fake.Take(r));
    for (const v1::CollectiveOp op : {v1::ALL_REDUCE, v1::ALL_GATHER, v1::REDUCE_SCATTER, v1::BROADCAST}) {
      for (const DType d : {v1::F16, v1::BF16, v1::F32, v1::F64, v1::I8, v1::U8, v1::I16, v1::I32, v1::I64, v1::BOOL}) {
        const v1::ReduceOp reduce = d == v1::BOOL ? v1::MAX : d == v1::I8 ? v1::PROD : d == v1::F64 ? v1::MIN : v1::SUM;
        for (const int64_t len : {int64_t{0}, int64_t{n}, int64_t{n * 37}, int64_t{1}}) {
          if (len % n != 0 && op == v1::REDUCE_SCATTER) continue;
          std::vector<Value> in;
          for (int r = 0; r < n; ++r) in.push_back(RandomValue(d, {len, 3}, static_cast<uint64_t>(r * 1000 + len)));
          const std::vector<CollectiveCall> calls(n, CallOf(op, reduce));
          const int64_t bytes = (len + 1) * 3 * 8 * n;
          const std::vector<Value> got = RunAll(&ranks.comms, &ranks.bells, calls, in, bytes);
          const std::vector<Value> want = RunAll(&fakes, nullptr, calls, in, bytes);
          for (int r = 0; r < n; ++r) {
            INFO(v1::CollectiveOp_Name(op) << " " << DTypeName(d) << " " << len << " rank " << r);
            REQUIRE(got[r].error == nullptr);
            REQUIRE(want[r].error == nullptr);
            CHECK(BitEqual(got[r].tensor, want[r].tensor));
          }
        }
      }
    }
  }
}

TEST_CASE("gloo: values longer than a chunk") {
  Ranks ranks(Loopback(), 3);
  const int64_t n = (int64_t{4} << 20) + 5;
  std::vector<Value> in;
  for (int r = 0; r < 3; ++r) {
    in.push_back(Value());
    in[r].tensor = *Tensor::OnHost(v1::I32, {n});
    for (int64_t i = 0; i < n; ++i) in[r].tensor.as<int32_t>()[i] = static_cast<int32_t>(i * (r + 1));
  }
  const std::vector<Value> out = RunAll(&ranks.comms, &ranks.bells, std::vector<CollectiveCall>(3, CallOf(v1::ALL_REDUCE)), in, n * 4);
  for (int r = 0; r < 3; ++r) {
    REQUIRE(out[r].error == nullptr);
    for (int64_t i = 0; i < n; ++i) {
      if (out[r].tensor.as<int32_t>()[i] != static_cast<int32_t>(static_cast<uint32_t>(i) * 6)) FAIL(i);
    }
  }
}

TEST_CASE("gloo: many calls queued at once keep their order") {
  Ranks ranks(Loopback(), 3);
  constexpr int kCalls = 100;
  std::vector<std::vector<Value>> outs(3, std::vector<Value>(kCalls));
  std::vector<std::vector<EventRef>> events(3);
  for (int r = 0; r < 3; ++r) {
    for (int i = 0; i < kCalls; ++i) {
      Value v;
      v.tensor = *Tensor::OnHost(v1::I64, {1});
      v.tensor.as<int64_t>()[0] = i * 10 + r;
      events[r].push_back(
          *ranks.comms[r]->Run(CallOf(v1::ALL_REDUCE, v1::SUM, i), v, *Tensor::OnHost(v1::I64, {1}), &outs[r][i], nullptr));
    }
  }
  for (int r = 0; r < 3; ++r) {
    REQUIRE(AwaitBell(ranks.bells[r].get(), [&] { return events[r].back()->Ready(); }));
    for (int i = 0; i < kCalls; ++i) {
      REQUIRE(events[r][i]->Ready());
      CHECK(outs[r][i].tensor.as<int64_t>()[0] == i * 30 + 3);
    }
  }
}

TEST_CASE("gloo: mismatches and poison are every rank's same error, and the group goes on") {
  Ranks ranks(Loopback(), 3);
  const std::vector<CollectiveCall> calls(3, CallOf(v1::ALL_REDUCE));
  std::vector<Value> good;
  for (int r = 0; r < 3; ++r) good.push_back(RandomValue(v1::F32, {4}, r));
  for (int round = 0; round < 100; ++round) {
    std::vector<Value> in = good;
    std::vector<CollectiveCall> c = calls;
    std::string word;
    switch (round % 4) {
      case 0:
        in[2] = RandomValue(v1::F32, {5}, 1);
        word = "rank 2 (w2) gives F32[5]";
        break;
      case 1:
        c[1].execution = 7;
        word = "of execution 7";
        break;
      case 2: {
        auto e = std::make_shared<TaskError>();
        e->worker = "w1";
        e->node = "g1";
        e->code = absl::StatusCode::kInternal;
        e->message = "bad luck";
        in[1] = Value{Tensor(), nullptr, e};
        word = "bad luck";
        break;
      }
      default:
        break;
    }
    const std::vector<Value> out = RunAll(&ranks.comms, &ranks.bells, c, in, 64);
    for (int r = 0; r < 3; ++r) {
      if (word.empty()) {
        CHECK(out[r].error == nullptr);
        continue;
      }
      REQUIRE(out[r].error != nullptr);
      INFO(out[r].error->message);
      CHECK(out[r].error->message.find(word) != std::string::npos);
      CHECK(out[r].error->ToString() == out[0].error->ToString());
    }
  }
}

TEST_CASE("gloo: abort ends a wait at once and the peers hear why") {
  const auto device = Loopback();
  int heard = 0;
  for (int round = 0; round < 20; ++round) {
    Ranks ranks(device, 3);
    // After one call every rank is known to listen for farewells.
    RunAll(&ranks.comms, &ranks.bells, std::vector<CollectiveCall>(3, CallOf(v1::ALL_REDUCE)),
           std::vector<Value>(3, RandomValue(v1::F32, {4}, 1)), 64);
    // Rank 2 never comes.
    std::vector<Value> out(3);
    std::vector<EventRef> events(3);
    for (int r = 0; r < 2; ++r) {
      events[r] = *ranks.comms[r]->Run(CallOf(v1::ALL_REDUCE), RandomValue(v1::F32, {1000}, 1), *Tensor::OnHost(v1::F32, {1000}), &out[r], nullptr);
    }
    const Nanos start = Clock::Real()->Now();
    ranks.comms[0]->Abort(absl::DeadlineExceededError("execution 0 took too long"));
    ranks.comms[0]->Abort(absl::InternalError("later"));
    for (int r = 0; r < 2; ++r) REQUIRE(AwaitBell(ranks.bells[r].get(), [&] { return events[r]->Ready(); }));
    REQUIRE(AwaitBell(ranks.bells[2].get(), [&] { return !ranks.comms[2]->Health().ok(); }));
    CHECK(Clock::Real()->Now() - start < kNanosPerSecond);
    CHECK(out[0].error->code == absl::StatusCode::kDeadlineExceeded);
    CHECK(out[0].error->message.find("took too long") != std::string::npos);
    CHECK(out[1].error->code == absl::StatusCode::kUnavailable);
    CHECK(ranks.comms[2]->Health().code() == absl::StatusCode::kUnavailable);
    // In w0's own words, or in w1's, which repeat them; on a machine that is too busy to read them in time, at least who it was.
    const std::string why(ranks.comms[2]->Health().message());
    INFO(why);
    CHECK(why.find("w0 (rank 0)") != std::string::npos);
    heard += why.find("took too long") != std::string::npos;
    Value late;
    CHECK_FALSE(ranks.comms[0]->Run(CallOf(v1::ALL_REDUCE), RandomValue(v1::F32, {1}, 1), *Tensor::OnHost(v1::F32, {1}), &late, nullptr).ok());
  }
  CHECK(heard >= 10);
}

TEST_CASE("gloo: abort at any moment of a large collective, a hundred times") {
  const auto device = Loopback();
  std::mt19937 rng(7);
  for (int round = 0; round < 100; ++round) {
    Ranks ranks(device, 2);
    std::vector<Value> out(2);
    std::vector<EventRef> events(2);
    for (int r = 0; r < 2; ++r) {
      events[r] = *ranks.comms[r]->Run(CallOf(v1::ALL_REDUCE), RandomValue(v1::F32, {1 << 16}, 1), *Tensor::OnHost(v1::F32, {1 << 16}), &out[r], nullptr);
    }
    const Nanos until = Clock::Real()->Now() + static_cast<Nanos>(rng() % 1'000'000);
    while (Clock::Real()->Now() < until) {
    }
    ranks.comms[1]->Abort(absl::CancelledError("enough"));
    for (int r = 0; r < 2; ++r) REQUIRE(AwaitBell(ranks.bells[r].get(), [&] { return events[r]->Ready(); }));
    for (int r = 0; r < 2; ++r) CHECK((out[r].error != nullptr || out[r].tensor.elements() == 1 << 16));
  }
}

TEST_CASE("gloo: destruction with calls under way leaves no event behind") {
  const auto device = Loopback();
  Ranks ranks(device, 2);
  Value out;
  const EventRef e = *ranks.comms[0]->Run(CallOf(v1::ALL_REDUCE), RandomValue(v1::F32, {8}, 1), *Tensor::OnHost(v1::F32, {8}), &out, nullptr);
  ranks.comms[0].reset();
  CHECK(e->Ready());
  CHECK(out.error != nullptr);
}

TEST_CASE("gloo: a rank that never connects is named at the deadline; abort ends the wait sooner") {
  const auto device = Loopback();
  MemoryStore store;
  const auto alone = *GlooMesh::Create(device, MeshOptions(0, 2, &store));
  const absl::Status s = alone->Connect(kNanosPerSecond / 20);
  CHECK(s.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(std::string(s.message()).find("test/1") != std::string::npos);

  // The peer published its address and went away: whoever listens waits for it in vain.
  MemoryStore other;
  const auto a = *GlooMesh::Create(device, MeshOptions(0, 2, &other));
  const auto b = *GlooMesh::Create(device, MeshOptions(1, 2, &other));
  absl::Status got;
  std::thread connecting([&] { got = a->Connect(60 * kNanosPerSecond); });
  REQUIRE(other.Get({"test/0"}, 30 * kNanosPerSecond).ok());
  const Nanos start = Clock::Real()->Now();
  a->Abort(absl::AbortedError("another worker failed"));
  // Addresses that nobody listens on, of the right size.
  REQUIRE(other.Set("test/1", other.Get({"test/0"}, 0)->at(0)).ok());
  connecting.join();
  CHECK(Clock::Real()->Now() - start < 5 * kNanosPerSecond);
  CHECK(got.message() == "another worker failed");
  CHECK_FALSE(b->Connect(0).ok());
}

TEST_CASE("gloo: addresses that are none of this host, or not IP at all") {
  for (const char* address : {"203.0.113.7", "not an address", "", "2001:db8::1"}) {
    INFO(address);
    const absl::Status s = GlooDevice::Create(address).status();
    CHECK(s.code() == absl::StatusCode::kUnavailable);
    CHECK(std::string(s.message()).find(address) != std::string::npos);
  }
  ConnectAll(*GlooDevice::Create("localhost"), 2);
  if (const auto v6 = GlooDevice::Create("::1"); v6.ok()) ConnectAll(*v6, 2);  // where the machine has it
  MemoryStore store;
  CHECK_FALSE(GlooMesh::Create(Loopback(), MeshOptions(2, 2, &store)).ok());
  CHECK_FALSE(GlooMesh::Create(Loopback(), MeshOptions(0, 1, &store)).ok());
  CHECK_FALSE(GlooMesh::Create(Loopback(), MeshOptions(0, 2, nullptr)).ok());
}

}  // namespace
}  // namespace weft
