#include "common/comm/nccl/nccl_comm.h"

#include <catch2/catch.hpp>

#include "common/comm/nccl/nccl_capture.h"
#include "common/comm/nccl/nccl_test_util.h"

namespace weft {
namespace {

NcclId NewId(TestGpu* gpu) {
  NcclId id;
  REQUIRE(gpu->nccl.GetUniqueId(&id) == kNcclSuccess);
  return id;
}

Nanos In(double seconds) { return Clock::Real()->Now() + FromSeconds(seconds); }

// Both ends of one transfer of 8 bytes.
absl::Status SendOne(NcclComm* comm, TestGpu* gpu, Stream* s, const Tensor& t) {
  return comm->Call("sending", [&](NcclApi* api, NcclCommHandle c) {
    return comm->rank() == 0 ? api->Send(t.data(), 8, kNcclUint8, 1, c, s->native()) : api->Recv(t.data(), 8, kNcclUint8, 0, c, s->native());
  });
}

TEST_CASE("nccl comm: ranks join, transfer, and end; CTAs as told") {
  TestGpu a, b;
  const auto comms = JoinAll({&a, &b});
  CHECK(comms[0]->others() == "w1");
  const auto sa = *a.device->NewStream(v1::LANE_SEND), sb = *b.device->NewStream(v1::LANE_RECV);
  const Tensor from = a.Upload(*Tensor::OnHost(v1::U8, {8})), to = b.Buffer(v1::U8, {8});
  std::memcpy(from.data(), "12345678", 8);
  REQUIRE(SendOne(comms[0].get(), &a, sa.get(), from).ok());
  REQUIRE(SendOne(comms[1].get(), &b, sb.get(), to).ok());
  CHECK(comms[0]->Settled());
  const EventRef done = *b.device->Record(sb->native());
  REQUIRE(Until([&] { return done->Ready(); }));
  CHECK(std::memcmp(to.data(), "12345678", 8) == 0);
  CHECK(comms[0]->Health().ok());
  CHECK_FALSE(comms[0]->Ended());
  comms[0]->Abort(absl::CancelledError("done"));
  CHECK(Until([&] { return comms[0]->Ended(); }));
  CHECK(comms[0]->EndWaitsFor().empty());
  CHECK(a.fake.nccl.comms() == 0);
  CHECK(b.fake.nccl.comms() == 1);
  const absl::Status late = SendOne(comms[0].get(), &a, sa.get(), from);
  CHECK(late.message() == "done");
}

TEST_CASE("nccl comm: a rank that never joins is named at the deadline; an abort ends the wait sooner, its cause stays") {
  TestGpu a;
  const auto alone = *NcclComm::Create(CommOptions(&a, 0, 3, "collective grads"));
  const absl::Status s = alone->Join(NewId(&a), In(0.02));
  CHECK(s.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(std::string(s.message()).find("collective grads: not all of w1, w2 joined in time") == 0);
  CHECK(Until([&] { return alone->Ended(); }));
  CHECK(a.fake.nccl.comms() == 0);

  const std::unique_ptr<Doorbell> bell = Doorbell::InProcess();
  NcclComm::Options o = CommOptions(&a, 1, 2);
  o.doorbell = bell.get();
  const auto other = *NcclComm::Create(o);
  absl::Status got;
  std::thread joining([&] { got = other->Join(NewId(&a), In(60)); });
  REQUIRE(Until([&] { return a.fake.nccl.comms() == 1; }));
  const uint32_t seen = bell->Snapshot();
  other->Abort(absl::AbortedError("another worker failed"));
  other->Abort(absl::InternalError("later"));
  joining.join();
  CHECK(got.message() == "another worker failed");
  CHECK(other->Health().message() == "another worker failed");
  CHECK(Until([&] { return other->Ended(); }));
  CHECK(bell->Snapshot() != seen);
  // And one that comes before.
  const auto early = *NcclComm::Create(CommOptions(&a, 1, 2));
  early->Abort(absl::AbortedError("too late"));
  CHECK(early->Join(NewId(&a), In(60)).message() == "too late");
}

TEST_CASE("nccl comm: a failure of any call while joining is an error with the names, and it ends") {
  for (const std::string method : {"CommInit", "GetAsyncError"}) {
    for (const int nth : {1, 3}) {
      if (method == "CommInit" && nth > 1) continue;
      TestGpu a;
      const auto comm = *NcclComm::Create(CommOptions(&a, 0, 2));
      a.fake.nccl.FailCall(method, nth, kNcclSystemError);
      const absl::Status s = comm->Join(NewId(&a), In(60));
      INFO(method << ": " << s.ToString());
      CHECK(s.code() == absl::StatusCode::kUnavailable);
      CHECK(std::string(s.message()).find("link w0 -> w1: joining with w1: NCCL says a call of the system failed (") == 0);
      CHECK(Until([&] { return comm->Ended(); }));
      CHECK(a.fake.nccl.comms() == 0);
    }
  }
  TestGpu a;
  // As NCCL puts it where both workers use one GPU.
  const auto shared = *NcclComm::Create(CommOptions(&a, 0, 2));
  a.fake.nccl.FailCall("GetAsyncError", 1, kNcclInvalidUsage, "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60");
  const std::string problem(shared->Join(NewId(&a), In(60)).message());
  CHECK(problem.find("both on CUDA device 60); start each worker that shares its GPU with another with --share-gpu") != std::string::npos);
  CHECK_FALSE(NcclComm::Create(CommOptions(&a, 2, 2)).ok());
  CHECK_FALSE(NcclComm::Create(CommOptions(&a, 0, 1)).ok());
}

TEST_CASE("nccl comm: an asynchronous error is its end; calls fail with it") {
  FakePlugin::Options options;
  options.nccl.report_dead_peers = true;
  TestGpu a(options), b(options);
  auto comms = JoinAll({&a, &b});
  comms[1].reset();
  REQUIRE(Until([&] { return !comms[0]->Health().ok(); }));
  CHECK(comms[0]->Health().code() == absl::StatusCode::kUnavailable);
  CHECK(std::string(comms[0]->Health().message()).find("link w0 -> w1: transfers with w1: NCCL says a remote process has gone") == 0);
  CHECK(Until([&] { return comms[0]->Ended(); }));
}

TEST_CASE("nccl comm: while a call is in progress nothing else is called") {
  FakePlugin::Options options;
  options.nccl.connect_polls = 5;
  TestGpu a(options), b(options);
  const auto comms = JoinAll({&a, &b});
  const auto sa = *a.device->NewStream(v1::LANE_SEND), sb = *b.device->NewStream(v1::LANE_RECV);
  const Tensor from = a.Buffer(v1::U8, {8}), to = b.Buffer(v1::U8, {8});
  REQUIRE(SendOne(comms[0].get(), &a, sa.get(), from).ok());
  const absl::Status twice = SendOne(comms[0].get(), &a, sa.get(), from);
  CHECK(twice.code() == absl::StatusCode::kInternal);
  CHECK(comms[0]->Health().ok());  // the fault was the caller's
  int polls = 0;
  while (!comms[0]->Settled()) ++polls;
  CHECK(polls >= 3);
  CHECK(polls <= 5);
  REQUIRE(SendOne(comms[1].get(), &b, sb.get(), to).ok());
  REQUIRE(Until([&] { return comms[1]->Settled(); }));
  const EventRef done = *b.device->Record(sb->native());
  CHECK(Until([&] { return done->Ready(); }));
}

TEST_CASE("nccl comm: an abort that hangs, or fails, is told by name once, and what kernels may touch is never freed") {
  TestGpu a, b;
  FakeClock clock;
  for (const bool hangs : {true, false}) {
    NcclComm::Options o = CommOptions(&a, 0, 2);
    o.clock = &clock;
    o.abort_limit = 10 * kNanosPerSecond;
    Mutex mu;
    std::vector<absl::Status> told;
    o.on_hung = [&](const absl::Status& s) {
      MutexLock lock(&mu);
      told.push_back(s);
    };
    const auto comm = *NcclComm::Create(o);
    const auto peer = *NcclComm::Create(CommOptions(&b, 1, 2));
    const NcclId id = NewId(&a);
    std::thread joining([&] { (void)peer->Join(id, In(60)); });
    REQUIRE(comm->Join(id, clock.Now() + 60 * kNanosPerSecond).ok());
    joining.join();
    a.nccl.hang_abort = hangs;
    if (!hangs) a.fake.nccl.FailCall("CommAbort", 1, kNcclInternalError);
    auto memory = std::make_shared<int>(1);
    comm->KeepUntilEnded(memory);
    comm->Abort(absl::UnavailableError("w1 is gone"));
    const auto count = [&] {
      MutexLock lock(&mu);
      return told.size();
    };
    if (hangs) {
      CHECK_FALSE(comm->Ended());
      CHECK(count() == 0);
      clock.Advance(10 * kNanosPerSecond + 1);
      CHECK(comm->EndWaitsFor() == "abort of link w0 -> w1 (w1 is gone), for 10.0 s");
      CHECK_FALSE(comm->Ended());
      CHECK_FALSE(comm->Ended());
      REQUIRE(count() == 1);
      CHECK(told[0].code() == absl::StatusCode::kDeadlineExceeded);
      CHECK(told[0].message() == "link w0 -> w1: ncclCommAbort has not returned after 10 s (w1 is gone); restart w0");
      CHECK(memory.use_count() == 2);
      a.nccl.hang_abort = false;
      CHECK(Until([&] { return comm->Ended(); }));
      CHECK(memory.use_count() == 1);  // the end came after all
    } else {
      CHECK(Until([&] { return comm->Ended(); }));
      REQUIRE(count() == 1);
      CHECK(std::string(told[0].message()).find("link w0 -> w1: ncclCommAbort failed: internal error; restart w0") == 0);
      CHECK(memory.use_count() == 2);
      comm->KeepUntilEnded(memory);
      CHECK(memory.use_count() == 3);
    }
    CHECK(comm->Health().message() == "w1 is gone");
  }
}

TEST_CASE("nccl comm: what it keeps goes when it has ended") {
  TestGpu a, b;
  const auto comms = JoinAll({&a, &b});
  auto memory = std::make_shared<int>(1);
  comms[0]->KeepUntilEnded(memory);
  CHECK(memory.use_count() == 2);
  comms[0]->Abort(absl::CancelledError("done"));
  CHECK(Until([&] { return comms[0]->Ended(); }));
  CHECK(memory.use_count() == 1);
  comms[0]->KeepUntilEnded(memory);
  CHECK(memory.use_count() == 1);
}

TEST_CASE("nccl comm: one that ends while a call is captured keeps the call's stream and memory until then, and does not put its end aside") {
  TestGpu a, b;
  const NcclId id = NewId(&a);
  std::vector<std::shared_ptr<NcclComm>> comms;
  for (TestGpu* const gpu : {&a, &b}) {
    NcclComm::Options o = CommOptions(gpu, static_cast<int>(comms.size()), 2);
    o.close_at_rest = true;
    comms.push_back(*NcclComm::Create(std::move(o)));
  }
  std::thread other([&] { (void)comms[1]->Join(id, In(60)); });
  const absl::Status joined = comms[0]->Join(id, In(60));
  other.join();
  REQUIRE(joined.ok());
  const Tensor from = a.Buffer(v1::U8, {8});
  const int streams = a.fake.cuda.books().streams;
  const int64_t references = from.owner().use_count();
  const auto capture = [&](const std::function<void()>& called) {
    return CaptureNccl(comms[0].get(), "sending", from.owner(), [&](NcclApi* api, NcclCommHandle c, CudaStreamHandle s) {
      const int code = api->Send(from.data(), 8, kNcclUint8, 1, c, s);
      called();
      return code;
    });
  };
  // A call that is captured whole leaves nothing behind.
  const absl::StatusOr<int> number = capture([] {});
  REQUIRE(number.ok());
  CHECK(a.fake.cuda.books().streams == streams);
  CHECK(from.owner().use_count() == references);
  a.nccl.polls = 1 << 30;  // NCCL's thread is at it, and stays
  a.nccl.hang_abort = true;
  const absl::StatusOr<int> none = capture([&] { comms[0]->Abort(absl::UnavailableError("w1 is gone")); });
  CHECK(none.status().message() == "w1 is gone");
  CHECK(a.fake.cuda.books().streams == streams + 1);
  CHECK(from.owner().use_count() == references + 1);
  CHECK_FALSE(comms[0]->Ended());
  a.nccl.hang_abort = false;
  CHECK(Until([&] { return comms[0]->Ended(); }));
  CHECK(a.fake.cuda.books().streams == streams);
  CHECK(from.owner().use_count() == references);
  CHECK(a.fake.cuda.books().graph_execs == 0);
  // Nothing of one that has ended before is anywhere, so its end stays put aside.
  comms[1]->Abort(absl::CancelledError("done"));
  const int64_t aborts = b.fake.nccl.calls("CommAbort");
  const Tensor to = b.Buffer(v1::U8, {8});
  const auto never = [](NcclApi*, NcclCommHandle, CudaStreamHandle) { return static_cast<int>(kNcclSuccess); };
  CHECK(CaptureNccl(comms[1].get(), "receiving", to.owner(), never).status().message() == "done");
  for (int i = 0; i < 100; ++i) CHECK_FALSE(comms[1]->Ended());
  CHECK(b.fake.nccl.calls("CommAbort") == aborts);
  b.device->Collect();
  CHECK(comms[1]->Ended());
}

TEST_CASE("nccl comm: those that end at rest end beside each other, their owners gone meanwhile, and what they keep together goes with the last") {
  TestGpu a, b;
  constexpr int kComms = 6;
  std::vector<std::shared_ptr<NcclComm>> comms, peers;
  for (int i = 0; i < kComms; ++i) {
    const NcclId id = NewId(&a);
    const auto make = [&](TestGpu* gpu, int rank) {
      NcclComm::Options o = CommOptions(gpu, rank, 2, "link " + std::to_string(i));
      o.close_at_rest = true;
      return *NcclComm::Create(std::move(o));
    };
    comms.push_back(make(&a, 0));
    peers.push_back(make(&b, 1));
    std::thread other([&] { (void)peers.back()->Join(id, In(60)); });
    CHECK(comms.back()->Join(id, In(60)).ok());
    other.join();
  }
  std::shared_ptr<void> together = *a.device->Allocate(100);
  const int allocations = a.fake.cuda.books().allocations;
  for (const auto& comm : comms) comm->KeepUntilEnded(together);
  together.reset();
  a.nccl.hang_abort = true;
  for (const auto& comm : comms) comm->Abort(absl::CancelledError("done"));
  CHECK(a.device->HasAside());
  std::thread collects([&] { a.device->Collect(); });
  CHECK(Until([&] {
    const std::string now = a.device->Collecting();
    return now.find("(ncclCommAbort)") != std::string::npos && now.find("; 3 more") != std::string::npos;
  }));
  std::vector<std::thread> owners;
  for (auto& comm : comms) owners.emplace_back([&comm] { comm.reset(); });
  for (std::thread& t : owners) t.join();
  CHECK(a.fake.cuda.books().allocations == allocations);
  CHECK(a.fake.nccl.comms() == kComms);
  a.nccl.hang_abort = false;
  collects.join();
  CHECK(a.fake.nccl.comms() == 0);
  CHECK(a.fake.cuda.books().allocations == allocations - 1);
  CHECK_FALSE(a.device->HasAside());
}

TEST_CASE("nccl comm: aborted by many threads at any moment of joining") {
  for (int round = 0; round < 30; ++round) {
    TestGpu a, b;
    const auto x = *NcclComm::Create(CommOptions(&a, 0, 2));
    const auto y = *NcclComm::Create(CommOptions(&b, 1, 2));
    const NcclId id = NewId(&a);
    std::vector<std::thread> threads;
    absl::Status got[2];
    threads.emplace_back([&] { got[0] = x->Join(id, In(60)); });
    threads.emplace_back([&] { got[1] = y->Join(id, In(60)); });
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        const Nanos until = Clock::Real()->Now() + round * 50'000;
        while (Clock::Real()->Now() < until) {
        }
        x->Abort(absl::AbortedError("cause " + std::to_string(i)));
        y->Abort(absl::AbortedError("cause " + std::to_string(i)));
        (void)x->Health();
      });
    }
    for (std::thread& t : threads) t.join();
    for (const absl::Status& s : got) CHECK((s.ok() || absl::IsAborted(s)));
    CHECK(Until([&] { return x->Ended() && y->Ended(); }));
    CHECK(a.fake.nccl.comms() + b.fake.nccl.comms() == 0);
  }
}

}  // namespace
}  // namespace weft
