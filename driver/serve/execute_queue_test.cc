#include "driver/serve/execute_queue.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "driver/serve/input_assembly.h"

namespace weft {
namespace {

bool Has(const absl::Status& s, const std::string& text) { return std::string(s.message()).find(text) != std::string::npos; }

SessionSpec SpecOf(int max_in_flight, v1::SubmitMode mode) {
  SessionSpec spec;
  spec.graph = "g";
  spec.max_in_flight = max_in_flight;
  spec.submit = mode;
  spec.submit_timeout_s = 5;
  spec.inputs = {{"x", Spec{v1::F32, *Shape::Parse("[?<=4]")}}, {"y", Spec{v1::I8, *Shape::Parse("[2]")}}};
  return spec;
}

// Takes what is submitted; the test ends each by hand.
class FakeSession : public Session {
 public:
  explicit FakeSession(SessionSpec spec) : spec_(std::move(spec)) {}
  const SessionSpec& spec() const override { return spec_; }
  absl::StatusOr<Ticket> Submit(SessionSubmit submit) override {
    if (!refuse.ok()) return refuse;
    submits.push_back(std::move(submit));
    return static_cast<Ticket>(submits.size());
  }
  void Forget(Ticket ticket) override { forgotten.push_back(ticket); }
  void Fail(const absl::Status& cause) override { failed = cause; }
  absl::Status status() const override { return failed; }
  void Finish(size_t i) {
    SessionResult r;
    r.execution = static_cast<int64_t>(i);
    submits[i].done(std::move(r));
  }
  SessionSpec spec_;
  absl::Status refuse, failed;
  std::vector<SessionSubmit> submits;
  std::vector<Ticket> forgotten;
};

struct Rig {
  explicit Rig(v1::SubmitMode mode, int max = 2, double deadline_s = 0) : session(std::make_shared<FakeSession>(SpecOf(max, mode))) {
    ExecuteQueue::Options o;
    o.clock = &clock;
    o.deadline_s = deadline_s;
    o.explain = [this](std::function<void(std::string)> told) { explain.push_back(std::move(told)); };
    if (deadline_s > 0) o.explain = [](std::function<void(std::string)> told) { told("w1 recv0: RECV a -> b waits for w0"); };
    queue = std::make_shared<ExecuteQueue>(session, o);
  }
  ~Rig() { session->submits.clear(); }  // their callbacks hold the queue, which holds the session
  // While the reader waits, each look at the client does this.
  std::function<bool()> Gone(std::function<void()> then = nullptr) {
    return [this, then] {
      ++looks;
      if (then) then();
      return looks > most_looks;
    };
  }
  FakeClock clock;
  int looks = 0;
  int most_looks = 20;
  std::shared_ptr<FakeSession> session;
  std::vector<std::function<void(std::string)>> explain;
  std::shared_ptr<ExecuteQueue> queue;
  ExecuteQueue::Reply reply;
};

TEST_CASE("each submitted execution gets one reply, in the order in which they end") {
  Rig r(v1::WAIT);
  r.queue->Submit(0, {}, r.Gone());
  r.queue->Submit(1, {}, r.Gone());
  r.session->Finish(0);
  r.session->Finish(1);
  r.queue->Refuse(2, absl::InvalidArgumentError("input x is missing"));
  r.queue->FinishSubmits();
  REQUIRE(r.queue->Next(&r.reply));
  CHECK(r.reply.sequence == 0);
  CHECK(r.reply.result->execution == 0);
  REQUIRE(r.queue->Next(&r.reply));
  CHECK(r.reply.sequence == 1);
  REQUIRE(r.queue->Next(&r.reply));
  CHECK(r.reply.refusal == absl::InvalidArgumentError("input x is missing"));
  CHECK_FALSE(r.queue->Next(&r.reply));
}

TEST_CASE("WAIT waits while the client has max_in_flight results that it has not read") {
  Rig r(v1::WAIT, 1);
  r.queue->Submit(0, {}, r.Gone());
  r.session->Finish(0);  // done, but not written
  SECTION("as long as the client is there") {
    r.most_looks = 1;
    r.queue->Submit(1, {}, r.Gone());
    CHECK(r.looks == 2);
    CHECK(r.session->submits.size() == 1);
  }
  SECTION("no longer than submit_timeout_s") {
    r.queue->Submit(1, {}, r.Gone([&] { r.clock.Advance(kNanosPerSecond); }));
    CHECK(r.looks <= 6);
    CHECK(r.session->submits.size() == 1);
    REQUIRE(r.queue->Next(&r.reply));
    REQUIRE(r.queue->Next(&r.reply));
    CHECK(r.reply.sequence == 1);
    CHECK(absl::IsDeadlineExceeded(r.reply.refusal));
    CHECK(Has(r.reply.refusal, "1 executions of this client are in flight or unread"));
  }
  SECTION("a place that comes free is taken") {
    REQUIRE(r.queue->Next(&r.reply));
    r.queue->Refuse(7, absl::UnknownError("so that Next returns"));
    REQUIRE(r.queue->Next(&r.reply));  // the first counts as written now
    r.queue->Submit(1, {}, r.Gone());
    CHECK(r.session->submits.size() == 2);
  }
}

TEST_CASE("FAIL_FAST refuses at once what the client has no place for") {
  Rig r(v1::FAIL_FAST, 1);
  r.queue->Submit(0, {}, r.Gone());
  r.queue->Submit(1, {}, r.Gone());
  REQUIRE(r.queue->Next(&r.reply));
  CHECK(r.reply.sequence == 1);
  CHECK(absl::IsResourceExhausted(r.reply.refusal));
  CHECK(r.session->submits.size() == 1);
}

TEST_CASE("QUEUE takes any number and runs them in order") {
  Rig r(v1::QUEUE, 2);
  for (int i = 0; i < 100; ++i) r.queue->Submit(i, {}, r.Gone());
  CHECK(r.session->submits.size() == 2);
  r.queue->Drop(50);
  r.queue->FinishSubmits();
  int replies = 0;
  for (size_t i = 0; i < r.session->submits.size(); ++i) {
    r.session->Finish(i);
    REQUIRE(r.queue->Next(&r.reply));
    CHECK(r.reply.sequence == (i < 50 ? static_cast<int64_t>(i) : static_cast<int64_t>(i) + 1));
    ++replies;
    if (i + 1 == r.session->submits.size()) break;
  }
  // The last one under way keeps the queue one step ahead of the loop above.
  while (replies < 99) {
    r.session->Finish(static_cast<size_t>(replies));
    REQUIRE(r.queue->Next(&r.reply));
    ++replies;
  }
  CHECK_FALSE(r.queue->Next(&r.reply));
}

TEST_CASE("the session's refusals and failures become replies") {
  Rig r(v1::WAIT);
  r.session->refuse = absl::FailedPreconditionError("graph g failed: worker w1 is gone");
  r.queue->Submit(0, {}, r.Gone());
  REQUIRE(r.queue->Next(&r.reply));
  CHECK(r.reply.refusal == r.session->refuse);
  r.session->refuse = absl::OkStatus();
  r.queue->Submit(1, {}, r.Gone());
  r.session->failed = absl::UnavailableError("worker w1 is gone");
  r.session->submits[0].done(r.session->failed);
  REQUIRE(r.queue->Next(&r.reply));
  CHECK(r.reply.refusal == absl::FailedPreconditionError("graph g failed: worker w1 is gone"));
}

TEST_CASE("an execution that is overdue is refused with who waits for what, and its result dropped") {
  Rig r(v1::WAIT, 2, 3.0);
  r.queue->Submit(0, {}, r.Gone());
  r.session->submits[0].admitted(17);
  r.clock.Advance(3 * kNanosPerSecond);
  REQUIRE(r.queue->Next(&r.reply));
  CHECK(absl::IsDeadlineExceeded(r.reply.refusal));
  CHECK(Has(r.reply.refusal, "execution 17 was not done within deadline_s = 3"));
  CHECK(Has(r.reply.refusal, "w1 recv0: RECV a -> b waits for w0"));
  CHECK(r.session->forgotten == std::vector<Session::Ticket>{1});
  r.session->Finish(0);  // too late
  r.queue->FinishSubmits();
  CHECK_FALSE(r.queue->Next(&r.reply));
}

TEST_CASE("a client that goes away leaves nothing behind") {
  Rig r(v1::QUEUE, 2);
  for (int i = 0; i < 5; ++i) r.queue->Submit(i, {}, r.Gone());
  r.session->Finish(0);
  r.queue->Abandon();
  CHECK_FALSE(r.queue->Next(&r.reply));
  CHECK(r.session->forgotten.size() == 2);
  r.session->Finish(1);
  r.queue->Submit(9, {}, r.Gone());
  CHECK(r.session->submits.size() == 2);
  CHECK_FALSE(r.queue->Next(&r.reply));
}

v1::TensorChunk Chunk(const std::string& name, v1::DType dtype, Dims dims, uint64_t total, uint64_t offset, const std::string& data) {
  v1::TensorChunk c;
  c.set_name(name);
  c.set_dtype(dtype);
  for (const int64_t d : dims) c.add_dim(d);
  c.set_total_bytes(total);
  c.set_offset(offset);
  c.set_data(data);
  return c;
}

TEST_CASE("inputs are put together from pieces") {
  const SessionSpec spec = SpecOf(1, v1::WAIT);
  InputAssembly a(&spec);
  a.Add(Chunk("x", v1::F32, {2}, 8, 0, "abcd"));
  a.Add(Chunk("y", v1::I8, {2}, 2, 0, "yz"));
  a.Add(Chunk("x", v1::F32, {}, 8, 4, "efgh"));
  const auto tensors = a.Finish();
  REQUIRE(tensors.ok());
  CHECK(std::memcmp((*tensors)[0].data(), "abcdefgh", 8) == 0);
  CHECK(std::memcmp((*tensors)[1].data(), "yz", 2) == 0);
  InputAssembly empty(&spec);
  empty.Add(Chunk("x", v1::F32, {0}, 0, 0, ""));
  empty.Add(Chunk("y", v1::I8, {2}, 2, 0, "yz"));
  CHECK(empty.Finish().ok());
}

TEST_CASE("wrong pieces are told at the end, with words") {
  const SessionSpec spec = SpecOf(1, v1::WAIT);
  InputAssembly a(&spec);
  const v1::TensorChunk y = Chunk("y", v1::I8, {2}, 2, 0, "yz");
  std::string words;
  SECTION("unknown") {
    a.Add(Chunk("z", v1::F32, {2}, 8, 0, "abcd"));
    words = "no input \"z\"; it has x, y";
  }
  SECTION("dtype") {
    a.Add(Chunk("x", v1::F64, {1}, 8, 0, "abcdefgh"));
    words = "input x is F64[1], the graph declares F32[?<=4]";
  }
  SECTION("dims") {
    a.Add(Chunk("x", v1::F32, {5}, 20, 0, "abcd"));
    words = "input x is F32[5]";
  }
  SECTION("negative dims") {
    a.Add(Chunk("x", v1::F32, {-1}, 4, 0, "abcd"));
    words = "input x";
  }
  SECTION("size") {
    a.Add(Chunk("x", v1::F32, {2}, 12, 0, "abcd"));
    words = "total_bytes is 12, its dims make 8";
  }
  SECTION("gap") {
    a.Add(Chunk("x", v1::F32, {2}, 8, 0, "abcd"));
    a.Add(Chunk("x", v1::F32, {}, 8, 5, "fgh"));
    words = "offset 5 came where 4 was due";
  }
  SECTION("begins in the middle") {
    a.Add(Chunk("x", v1::F32, {2}, 8, 4, "abcd"));
    words = "offset 4 came where 0 was due";
  }
  SECTION("too much") {
    a.Add(Chunk("x", v1::F32, {1}, 4, 0, "abcdefgh"));
    words = "reaches to byte 8 of 4";
  }
  SECTION("twice") {
    a.Add(y);
    a.Add(y);
    words = "input y is given twice";
  }
  SECTION("large piece") {
    a.Add(Chunk("x", v1::F32, {2}, 8, 0, std::string((1 << 20) + 1, 'x')));
    words = "at most 1 MiB";
  }
  SECTION("cut short") {
    a.Add(Chunk("x", v1::F32, {2}, 8, 0, "abcd"));
    a.Add(y);
    words = "input x ends after 4 of 8 bytes";
  }
  SECTION("missing") {
    a.Add(y);
    words = "input x (F32[?<=4]) is missing";
  }
  const absl::Status status = a.Finish().status();
  INFO(std::string(status.message()));
  CHECK(absl::IsInvalidArgument(status));
  CHECK(Has(status, words));
}

}  // namespace
}  // namespace weft
