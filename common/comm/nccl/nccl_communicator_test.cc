#include "common/comm/nccl/nccl_communicator.h"

#include <catch2/catch.hpp>
#include <random>

#include "common/comm/fake/fake_group.h"
#include "common/comm/gloo/gloo_test_util.h"
#include "common/comm/nccl/nccl_test_util.h"

namespace weft {
namespace {

GroupInfo Group(int size) {
  GroupInfo g;
  g.id = 4;
  g.name = "grads";
  g.plan_hash = 99;
  g.workers = RankNames(size);
  return g;
}

struct Rank {
  std::unique_ptr<TestGpu> gpu;
  std::unique_ptr<Doorbell> bell = Doorbell::InProcess();
  std::shared_ptr<NcclQueue> queue = std::make_shared<NcclQueue>();
  std::shared_ptr<NcclScratch> scratch;
  std::unique_ptr<Stream> stream;
  std::vector<std::unique_ptr<NcclCommunicator>> comms;
  std::vector<Tensor> kept;  // freeing would wait for the device, which may wait for this thread
};

// All ranks within this thread, over one GPU each, with `groups` communicators.
struct Ranks {
  explicit Ranks(int n, FakePlugin::Options options = {}, int groups = 1) : ranks(n) {
    std::vector<TestGpu*> gpus;
    for (Rank& r : ranks) {
      r.gpu = std::make_unique<TestGpu>(options);
      r.scratch = *NcclScratch::Create(r.gpu->device.get());
      r.stream = *r.gpu->device->NewStream(v1::LANE_COLLECTIVE);
      gpus.push_back(r.gpu.get());
    }
    const auto device = *GlooDevice::Create("127.0.0.1");
    for (int g = 0; g < groups; ++g) {
      const auto meshes = ConnectAll(device, n);
      const auto comms = JoinAll(gpus, "collective grads");
      for (int r = 0; r < n; ++r) {
        NcclCommunicator::Options o;
        o.comm = comms[r];
        o.mesh = meshes[r];
        o.queue = ranks[r].queue;
        o.scratch = ranks[r].scratch;
        o.group = Group(n);
        o.device = gpus[r]->device.get();
        o.doorbell = ranks[r].bell.get();
        ranks[r].comms.push_back(*NcclCommunicator::Create(std::move(o)));
      }
    }
  }
  ~Ranks() {
    for (Rank& r : ranks) {
      for (auto& c : r.comms) c->Abort(absl::CancelledError("the test is over"));
    }
    for (Rank& r : ranks) r.comms.clear();
    for (Rank& r : ranks) r.kept.clear();
  }

  Value There(int r, const Value& host) {
    Value v = host;
    if (host.tensor.defined()) v.tensor = ranks[r].gpu->Upload(host.tensor);
    ranks[r].kept.push_back(v.tensor);
    return v;
  }
  absl::StatusOr<EventRef> Run(int r, const CollectiveCall& call, const Value& there, int64_t buffer_bytes, Value* out, int group = 0) {
    const Tensor buffer = ranks[r].gpu->Buffer(v1::U8, {buffer_bytes});
    ranks[r].kept.push_back(buffer);
    return ranks[r].comms[group]->Run(call, there, buffer, out, ranks[r].stream.get());
  }
  // One call on all ranks, with inputs in host memory; results in host memory.
  std::vector<Value> All(const std::vector<CollectiveCall>& calls, const std::vector<Value>& in, int64_t buffer_bytes) {
    const int n = static_cast<int>(ranks.size());
    std::vector<Value> out(n);
    std::vector<EventRef> events(n);
    for (int r = 0; r < n; ++r) events[r] = *Run(r, calls[r], There(r, in[r]), buffer_bytes, &out[r]);
    REQUIRE(Until([&] { return AllReady(events); }));
    for (int r = 0; r < n; ++r) {
      if (out[r].tensor.defined()) out[r].tensor = ranks[r].gpu->Download(out[r].tensor);
    }
    return out;
  }

  static bool AllReady(const std::vector<EventRef>& events) {
    bool all = true;
    for (const EventRef& e : events) all &= IsReady(e);
    return all;
  }

  std::vector<Rank> ranks;
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

TEST_CASE("nccl communicator: every op, dtype and size gives the bits of the fake group") {
  for (const int n : {2, 3}) {
    Ranks ranks(n);
    FakeGroup fake(Group(n));
    std::vector<std::unique_ptr<Communicator>> fakes;
    for (int r = 0; r < n; ++r) fakes.push_back(fake.Take(r));
    for (const v1::CollectiveOp op : {v1::ALL_REDUCE, v1::ALL_GATHER, v1::REDUCE_SCATTER, v1::BROADCAST}) {
      for (const DType d : {v1::F16, v1::BF16, v1::F32, v1::F64, v1::I8, v1::U8, v1::I16, v1::I32, v1::I64, v1::BOOL}) {
        const v1::ReduceOp reduce = d == v1::BOOL ? v1::MAX : d == v1::I8 ? v1::PROD : d == v1::F64 ? v1::MIN : v1::SUM;
        const bool cannot = d == v1::I16 && (op == v1::ALL_REDUCE || op == v1::REDUCE_SCATTER);
        for (const int64_t len : {int64_t{0}, int64_t{n}, int64_t{n * 37}, int64_t{1}}) {
          if (len % n != 0 && op == v1::REDUCE_SCATTER) continue;
          std::vector<Value> in, want(n);
          for (int r = 0; r < n; ++r) in.push_back(RandomValue(d, {len, 3}, static_cast<uint64_t>(r * 1000 + len)));
          const std::vector<CollectiveCall> calls(n, CallOf(op, reduce));
          const int64_t bytes = (len + 1) * 3 * 8 * n;
          const std::vector<Value> got = ranks.All(calls, in, bytes);
          for (int r = 0; r < n; ++r) REQUIRE(fakes[r]->Run(calls[r], in[r], *Tensor::OnHost(v1::U8, {bytes}), &want[r], nullptr).ok());
          for (int r = 0; r < n; ++r) {
            INFO(v1::CollectiveOp_Name(op) << " " << DTypeName(d) << " " << len << " rank " << r);
            if (cannot) {
              REQUIRE(got[r].error != nullptr);
              CHECK(got[r].error->code == absl::StatusCode::kInvalidArgument);
              CHECK(got[r].error->message.find("collective grads: NCCL cannot combine I16 values") == 0);
              CHECK(got[r].error->ToString() == got[0].error->ToString());
              continue;
            }
            REQUIRE(got[r].error == nullptr);
            REQUIRE(want[r].error == nullptr);
            CHECK(BitEqual(got[r].tensor, want[r].tensor));
          }
        }
      }
    }
  }
}

TEST_CASE("nccl communicator: many calls queued at once keep their order; NCCL may be in progress after any") {
  for (const int polls : {0, 3}) {
    Ranks ranks(3);
    for (Rank& r : ranks.ranks) r.gpu->nccl.polls = polls;
    constexpr int kCalls = 60;
    std::vector<std::vector<Value>> outs(3, std::vector<Value>(kCalls));
    std::vector<EventRef> events;
    for (int r = 0; r < 3; ++r) {
      for (int i = 0; i < kCalls; ++i) {
        Value v;
        v.tensor = *Tensor::OnHost(v1::I64, {1});
        v.tensor.as<int64_t>()[0] = i * 10 + r;
        events.push_back(*ranks.Run(r, CallOf(v1::ALL_REDUCE, v1::SUM, i), ranks.There(r, v), 8, &outs[r][i]));
      }
    }
    REQUIRE(Until([&] { return Ranks::AllReady(events); }));
    for (int r = 0; r < 3; ++r) {
      for (int i = 0; i < kCalls; ++i) {
        REQUIRE(outs[r][i].error == nullptr);
        CHECK(outs[r][i].tensor.as<int64_t>()[0] == i * 30 + 3);
      }
      CHECK(ranks.ranks[r].gpu->nccl.violations == 0);
    }
  }
}

TEST_CASE("nccl communicator: mismatches and poison are every rank's same error, nothing moves, and the group goes on") {
  Ranks ranks(3);
  const std::vector<CollectiveCall> calls(3, CallOf(v1::ALL_REDUCE));
  std::vector<Value> good;
  for (int r = 0; r < 3; ++r) good.push_back(RandomValue(v1::F32, {4}, r));
  for (int round = 0; round < 40; ++round) {
    std::vector<Value> in = good;
    std::vector<CollectiveCall> c = calls;
    std::string word;
    int64_t bytes = 64;
    switch (round % 5) {
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
      case 3:
        bytes = 8;
        word = "8 are reserved";
        break;
      default:
        break;
    }
    const int64_t before = ranks.ranks[0].gpu->fake.nccl.calls("AllReduce");
    const std::vector<Value> out = ranks.All(c, in, bytes);
    CHECK(ranks.ranks[0].gpu->fake.nccl.calls("AllReduce") == before + (word.empty() ? 1 : 0));
    for (int r = 0; r < 3; ++r) {
      if (word.empty()) {
        CHECK(out[r].error == nullptr);
        continue;
      }
      REQUIRE(out[r].error != nullptr);
      INFO(out[r].error->message);
      CHECK(out[r].error->message.find(word) != std::string::npos);
      CHECK(out[r].error->ToString() == out[0].error->ToString());
      CHECK_FALSE(out[r].tensor.defined());
    }
  }
}

TEST_CASE("nccl communicator: the device waits for the input, and readers for the result, not the host") {
  Ranks ranks(2);
  Rank& slow = ranks.ranks[1];
  const auto compute = *slow.gpu->device->NewStream(v1::LANE_COMPUTE);
  StreamGate gate;
  gate.Hold(slow.gpu.get(), compute.get());
  std::vector<Value> out(2);
  std::vector<EventRef> events(2);
  for (int r = 0; r < 2; ++r) {
    Value v = ranks.There(r, RandomValue(v1::I32, {16}, r));
    if (r == 1) v.event = *slow.gpu->device->Record(compute->native());
    events[r] = *ranks.Run(r, CallOf(v1::ALL_REDUCE), v, 64, &out[r]);
  }
  REQUIRE(Until([&] {
    (void)Ranks::AllReady(events);
    return slow.gpu->device->CanWaitFor(events[1]) && ranks.ranks[0].gpu->device->CanWaitFor(events[0]);
  }));
  CHECK(out[1].tensor.elements() == 16);  // known once it is launched
  CHECK_FALSE(IsReady(events[0]));
  CHECK_FALSE(IsReady(events[1]));
  gate.Open();
  CHECK(Until([&] { return Ranks::AllReady(events); }));
}

TEST_CASE("nccl communicator: collectives of one stream are launched in the order of their calls, whatever is agreed first") {
  Ranks ranks(2, {}, 2);
  std::vector<Value> out(4);
  std::vector<EventRef> events;
  // Rank 1 comes late to the first group, and the second has agreed long before.
  const Value in = RandomValue(v1::I32, {4}, 1);
  events.push_back(*ranks.Run(0, CallOf(v1::ALL_REDUCE), ranks.There(0, in), 16, &out[0], 0));
  events.push_back(*ranks.Run(0, CallOf(v1::ALL_REDUCE), ranks.There(0, in), 16, &out[1], 1));
  events.push_back(*ranks.Run(1, CallOf(v1::ALL_REDUCE), ranks.There(1, in), 16, &out[3], 1));
  REQUIRE(Until([&] {
    (void)Ranks::AllReady(events);
    return ranks.ranks[1].gpu->fake.nccl.calls("AllReduce") == 1;  // there it is first
  }));
  for (int i = 0; i < 100; ++i) (void)Ranks::AllReady(events);
  CHECK(ranks.ranks[0].gpu->fake.nccl.calls("AllReduce") == 0);
  CHECK_FALSE(IsReady(events[1]));
  const auto other = *ranks.ranks[1].gpu->device->NewStream(v1::LANE_COLLECTIVE);
  const Tensor buffer = ranks.ranks[1].gpu->Buffer(v1::I32, {4});
  ranks.ranks[1].kept.push_back(buffer);
  events.push_back(*ranks.ranks[1].comms[0]->Run(CallOf(v1::ALL_REDUCE), ranks.There(1, in), buffer, &out[2], other.get()));
  REQUIRE(Until([&] { return Ranks::AllReady(events); }));
  for (const Value& v : out) CHECK(v.error == nullptr);
}

TEST_CASE("nccl communicator: status words are combined by maximum, also where a rank has none") {
  Ranks ranks(3);
  std::vector<std::shared_ptr<void>> memory;
  std::vector<DeviceStatus*> in_word, out_word;
  for (int r = 0; r < 3; ++r) {
    memory.push_back(*ranks.ranks[r].gpu->device->Allocate(64));
    in_word.push_back(static_cast<DeviceStatus*>(memory[r].get()));
    out_word.push_back(in_word[r] + 1);
  }
  for (const int64_t n : {4, 0}) {
    for (int with = 0; with <= 3; ++with) {  // ranks that have one
      std::vector<Value> out(3);
      std::vector<EventRef> events;
      for (int r = 0; r < 3; ++r) {
        *in_word[r] = {static_cast<uint64_t>(r * 100), 0};
        *out_word[r] = {77, 77};
        Value v = ranks.There(r, RandomValue(v1::F32, {n}, r));
        if (r < with) v.status = in_word[r];
        if (r != 1) out[r].status = out_word[r];
        events.push_back(*ranks.Run(r, CallOf(v1::ALL_REDUCE), v, 16, &out[r]));
      }
      REQUIRE(Until([&] { return Ranks::AllReady(events); }));
      for (int r = 0; r < 3; ++r) {
        REQUIRE(out[r].error == nullptr);
        CHECK(out[r].tensor.elements() == n);
        CHECK(out_word[r]->word == (r == 1 ? 77u : with == 0 ? 0u : static_cast<uint64_t>((with - 1) * 100)));
      }
    }
  }
}

TEST_CASE("nccl communicator: a failure of any call is an error on every rank that names the collective, and nothing hangs") {
  const std::pair<const char*, v1::CollectiveOp> faults[] = {
      {"AllReduce", v1::ALL_REDUCE},         {"AllGather", v1::ALL_GATHER},  {"ReduceScatter", v1::REDUCE_SCATTER},
      {"Broadcast", v1::BROADCAST},          {"GroupStart", v1::ALL_REDUCE}, {"GroupEnd", v1::ALL_REDUCE},
      {"GetAsyncError", v1::ALL_REDUCE},     {"cuda EventRecord", v1::ALL_REDUCE}, {"cuda MemsetAsync", v1::ALL_REDUCE},
      {"cuda Enqueue", v1::ALL_REDUCE}};
  for (const auto& [name, op] : faults) {
    Ranks ranks(2);
    const std::string fault = name;
    std::vector<Value> out(2);
    std::vector<EventRef> events(2);
    const std::shared_ptr<void> word = *ranks.ranks[1].gpu->device->Allocate(sizeof(DeviceStatus));
    absl::Status run[2];
    for (int r = 0; r < 2; ++r) {
      const Value v = ranks.There(r, RandomValue(v1::F32, {4}, r));
      if (r == 1) {
        out[r].status = static_cast<DeviceStatus*>(word.get());
        if (fault.find("cuda ") == 0) {
          ranks.ranks[r].gpu->fake.cuda.FailCall(fault.substr(5), 1, kCudaInvalidValue);
        } else {
          ranks.ranks[r].gpu->fake.nccl.FailCall(fault, 1, kNcclInternalError);
        }
      }
      const absl::StatusOr<EventRef> e = ranks.Run(r, CallOf(op), v, 64, &out[r]);
      if (e.ok()) {
        events[r] = *e;
      } else {
        run[r] = e.status();
      }
    }
    INFO(fault);
    REQUIRE(Until([&] {
      // As workers do: who sees a failure ends it, and the others hear of it from the driver.
      for (int r = 0; r < 2; ++r) {
        const absl::Status h = ranks.ranks[r].comms[0]->Health();
        if (!h.ok()) ranks.ranks[1 - r].comms[0]->Abort(h);
      }
      return Ranks::AllReady(events);
    }));
    for (int r = 0; r < 2; ++r) {
      const std::string text = run[r].ok() ? (out[r].error == nullptr ? "" : out[r].error->message) : std::string(run[r].message());
      INFO("rank " << r << ": " << text);
      CHECK(text.find("collective grads") != std::string::npos);
      CHECK_FALSE(ranks.ranks[r].comms[0]->Health().ok());
    }
  }
}

TEST_CASE("nccl communicator: ranks that do not fit together") {
  TestGpu a, b;
  const auto meshes = ConnectAll(*GlooDevice::Create("127.0.0.1"), 2);
  const auto comms = JoinAll({&a, &b}, "collective grads");
  NcclCommunicator::Options o;
  o.comm = comms[0];
  o.mesh = meshes[0];
  o.queue = std::make_shared<NcclQueue>();
  o.scratch = *NcclScratch::Create(a.device.get());
  o.device = a.device.get();
  o.group = Group(3);
  const absl::Status s = NcclCommunicator::Create(o).status();
  CHECK(s.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(s.message()).find("collective grads: ") == 0);
  o.group = Group(2);
  o.mesh = meshes[1];
  CHECK_FALSE(NcclCommunicator::Create(o).ok());
  o.mesh = meshes[0];
  CHECK(NcclCommunicator::Create(o).ok());
}

TEST_CASE("nccl communicator: abort ends what waits for headers and what is on the device; the other group goes on") {
  for (const bool on_device : {true, false}) {
    Ranks ranks(2, {}, 2);
    std::vector<Value> out(4);
    std::vector<EventRef> events(2);
    const auto held = *ranks.ranks[1].gpu->device->NewStream(v1::LANE_COLLECTIVE);
    StreamGate gate;
    gate.Hold(ranks.ranks[1].gpu.get(), held.get());
    events[0] = *ranks.Run(0, CallOf(v1::ALL_REDUCE), ranks.There(0, RandomValue(v1::F32, {4}, 1)), 16, &out[0]);
    if (on_device) {
      const Tensor buffer = ranks.ranks[1].gpu->Buffer(v1::F32, {4});
      ranks.ranks[1].kept.push_back(buffer);
      events[1] = *ranks.ranks[1].comms[0]->Run(CallOf(v1::ALL_REDUCE), ranks.There(1, RandomValue(v1::F32, {4}, 1)), buffer, &out[1], held.get());
      REQUIRE(Until([&] {
        (void)Ranks::AllReady(events);
        return ranks.ranks[0].gpu->device->CanWaitFor(events[0]) && ranks.ranks[1].gpu->device->CanWaitFor(events[1]);
      }));
    }
    CHECK_FALSE(IsReady(events[0]));
    ranks.ranks[0].comms[0]->Abort(absl::DeadlineExceededError("execution 0 took too long"));
    ranks.ranks[0].comms[0]->Abort(absl::InternalError("later"));
    REQUIRE(Until([&] { return IsReady(events[0]); }));
    REQUIRE(out[0].error != nullptr);
    CHECK(out[0].error->code == absl::StatusCode::kDeadlineExceeded);
    CHECK(out[0].error->message == "collective grads: execution 0 took too long");
    // The others hear of it through the mesh.
    REQUIRE(Until([&] { return !ranks.ranks[1].comms[0]->Health().ok(); }));
    CHECK(std::string(ranks.ranks[1].comms[0]->Health().message()).find("w0 (rank 0)") != std::string::npos);
    if (on_device) {
      ranks.ranks[1].comms[0]->Abort(ranks.ranks[1].comms[0]->Health());
      gate.Open();
      REQUIRE(Until([&] { return IsReady(events[1]); }));
      CHECK(out[1].error != nullptr);
    }
    Value late;
    CHECK_FALSE(ranks.Run(0, CallOf(v1::ALL_REDUCE), Value(), 16, &late).ok());

    std::vector<EventRef> well(2);
    for (int r = 0; r < 2; ++r) {
      well[r] = *ranks.Run(r, CallOf(v1::BROADCAST), ranks.There(r, RandomValue(v1::F32, {4}, r)), 16, &out[2 + r], 1);
    }
    REQUIRE(Until([&] { return Ranks::AllReady(well); }));
    for (int r = 0; r < 2; ++r) CHECK(BitEqual(ranks.ranks[r].gpu->Download(out[2 + r].tensor), RandomValue(v1::F32, {4}, 1).tensor));
  }
}

TEST_CASE("nccl communicator: an asynchronous error, and destruction with calls under way") {
  Ranks ranks(2);
  Value out;
  const EventRef e = *ranks.Run(0, CallOf(v1::ALL_REDUCE), ranks.There(0, RandomValue(v1::F32, {4}, 1)), 16, &out);
  ranks.ranks[0].gpu->fake.nccl.FailCall("GetAsyncError", 1, kNcclRemoteError);
  const absl::Status h = ranks.ranks[0].comms[0]->Health();
  CHECK(h.code() == absl::StatusCode::kUnavailable);
  CHECK(std::string(h.message()).find("collective grads: transfers with w1: ") == 0);
  REQUIRE(Until([&] { return IsReady(e); }));
  CHECK(out.error != nullptr);

  for (int round = 0; round < 20; ++round) {
    Ranks two(2);
    auto gone = std::make_unique<Value>();
    const EventRef under_way = *two.Run(0, CallOf(v1::ALL_REDUCE), two.There(0, RandomValue(v1::F32, {4}, 1)), 16, gone.get());
    if (round % 2 == 0) {
      Value there;
      const EventRef other = *two.Run(1, CallOf(v1::ALL_REDUCE), two.There(1, RandomValue(v1::F32, {4}, 1)), 16, &there);
      REQUIRE(Until([&] {
        (void)IsReady(other);
        return IsReady(under_way) || round % 4 == 0;
      }));
      two.ranks[1].comms.clear();
    }
    two.ranks[0].comms.clear();
    gone.reset();
    CHECK(Until([&] { return IsReady(under_way); }));
    two.ranks[0].kept.clear();
    CHECK(two.ranks[0].gpu->device->Health().ok());
  }
}

TEST_CASE("nccl communicator: ranks on threads of their own") {
  constexpr int kRanks = 3, kCalls = 100;
  Ranks ranks(kRanks);
  std::vector<std::thread> threads;
  std::vector<int> good(kRanks, 0);
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      Rank& rank = ranks.ranks[r];
      std::vector<Tensor> in, buffers;
      for (int i = 0; i < 4; ++i) {
        in.push_back(rank.gpu->Buffer(v1::I64, {32}));
        buffers.push_back(rank.gpu->Buffer(v1::I64, {32}));
      }
      std::deque<Value> outs(kCalls);
      std::deque<std::pair<int, EventRef>> under_way;
      const auto finish = [&](size_t most) {
        while (under_way.size() > most) {
          if (!Until([&] { return IsReady(under_way.front().second); })) return;
          const int i = under_way.front().first;
          under_way.pop_front();
          const bool poisoned = i % 10 == 3;
          good[r] += poisoned ? outs[i].error != nullptr : outs[i].error == nullptr && outs[i].tensor.as<int64_t>()[31] == 3 * i + 3;
        }
      };
      for (int i = 0; i < kCalls; ++i) {
        finish(3);
        Value v;
        v.tensor = in[i % 4];
        for (int j = 0; j < 32; ++j) v.tensor.as<int64_t>()[j] = i + r;
        if (i % 10 == 3 && r == 1) {
          v.error = CollectiveError(Group(kRanks), 1, i, absl::InternalError("bad luck"));
          v.tensor = Tensor();
        }
        const absl::StatusOr<EventRef> e = rank.comms[0]->Run(CallOf(v1::ALL_REDUCE, v1::SUM, i), v, buffers[i % 4], &outs[i], rank.stream.get());
        if (!e.ok()) return;
        under_way.emplace_back(i, *e);
      }
      finish(0);
    });
  }
  for (std::thread& t : threads) t.join();
  for (int r = 0; r < kRanks; ++r) CHECK(good[r] == kCalls);
}

}  // namespace
}  // namespace weft
