// Where workers share a GPU: one large value at a time, and its sender is told when its turn has come (NcclLink::Options::receive_alone), in
// the company of everything else that a worker does meanwhile.

#include <catch2/catch.hpp>
#include <deque>
#include <random>

#include "common/channel/nccl/nccl_link_test_util.h"

namespace weft {
namespace {

TEST_CASE("nccl received alone: what comes behind a large value on its edge does not tell its sender too early, whatever it is") {
  TestGpu a, b;
  LinkEnds ends(&a, &b, 7, 7, /*send_when_taken=*/true, /*receive_alone=*/true);
  auto [s, r] = ends.Ports(NcclEdge(1, Large()));
  int64_t k = 0;
  for (const int64_t behind : {int64_t{-1}, int64_t{0}, int64_t{100}, kLate}) {  // elements; -1: an error
    for (int round = 0; round < 3; ++round, k += 2) {  // more than there are slots
      INFO("behind it " << behind << ", round " << round);
      const int64_t sends = a.fake.nccl.calls("Send");
      StreamGate gate;
      gate.Hold(&b, ends.recv->stream.get());
      Value out[2];
      std::vector<EventRef> all;
      const auto pass = [&](int64_t at, const Value& v) {
        REQUIRE(Until([&] { return s->Poll(at) == PortState::kReady; }));
        all.push_back(*s->Send(at, v, ends.send->stream.get()));
        REQUIRE(Until([&] {
          (void)AllReady(all);
          return r->Poll(at) == PortState::kReady;
        }));
        all.push_back(*r->Recv(at, b.Buffer(v1::F32, {kLate}), &out[at - k], ends.recv->stream.get()));
      };
      pass(k, Of(&a, kLate, k));
      REQUIRE(Until([&] { return all[1]->Queued(); }));  // the loop goes on behind it
      pass(k + 1, behind < 0 ? Poison(k + 1) : Of(&a, behind, k + 1));
      Ask(all);
      CHECK(a.fake.nccl.calls("Send") == sends);
      gate.Open();
      REQUIRE(Until([&] { return AllReady(all); }));
      CHECK(BitEqual(b.Download(out[0].tensor), HostValue({kLate}, k)));
      CHECK((out[1].error != nullptr) == (behind < 0));
      if (behind >= 0) CHECK(BitEqual(b.Download(out[1].tensor), HostValue({behind}, k + 1)));
    }
  }
}

TEST_CASE("nccl received alone: a sender that does not wait to be told gets its slot back, though its value comes before it could be") {
  TestGpu a, b;
  LinkEnds ends(&a, &b, 7, 7, /*send_when_taken=*/false, /*receive_alone=*/true);  // its GPU is its own
  auto [s, r] = ends.Ports(NcclEdge(1, Large(), v1::F32, /*slots=*/1));
  for (int64_t k = 0; k < 3; ++k) {
    auto gate = std::make_shared<StreamGate>();
    gate->Hold(&b, ends.recv->stream.get());
    REQUIRE(s->Poll(k) == PortState::kReady);
    const EventRef sent = *s->Send(k, Of(&a, kLate, k), ends.send->stream.get());
    REQUIRE(Until([&] { return r->Poll(k) == PortState::kReady; }));
    Value out;
    const EventRef got = *r->Recv(k, b.Buffer(v1::F32, {kLate}), &out, ends.recv->stream.get());
    REQUIRE(got->Queued());
    // All of it happens after the queue has asked whether to tell, and before it asks again.
    bool asked = false;
    ends.recv->queue->Later([&] {
      gate->Open();
      REQUIRE(Until([&] { return b.device->IsIdle(ends.recv->stream->native()); }));
      asked = IsReady(got);
      return true;
    });
    REQUIRE(Until([&] { return AllReady({sent, got}); }));
    CHECK(asked);
    CHECK(BitEqual(b.Download(out.tensor), HostValue({kLate}, k)));
    CHECK(s->Poll(k + 1) == PortState::kReady);
  }
}

TEST_CASE("nccl received alone: behind a computation its sender is told when that is over, and both ends say what they wait for") {
  TestGpu a, b;
  LinkEnds ends(&a, &b, 7, 7, true, true);
  auto [s, r] = ends.Ports(NcclEdge(1, Large()));
  const auto compute = *b.device->NewStream(v1::LANE_COMPUTE);
  for (int64_t k = 0; k < 3; ++k) {
    const int64_t sends = a.fake.nccl.calls("Send");
    StreamGate gate;
    gate.Hold(&b, compute.get());
    ends.recv->stream->WaitFor(*b.device->Record(compute->native()));
    const EventRef sent = *s->Send(k, Of(&a, kLate, k), ends.send->stream.get());
    REQUIRE(Until([&] { return r->Poll(k) == PortState::kReady; }));
    Value out;
    const EventRef got = *r->Recv(k, b.Buffer(v1::F32, {kLate}), &out, ends.recv->stream.get());
    Ask({sent, got});
    CHECK(got->Queued());
    CHECK_FALSE(sent->Queued());
    CHECK(a.fake.nccl.calls("Send") == sends);
    CHECK(s->WaitsFor() == "w1 to receive execution " + std::to_string(k));
    CHECK(r->WaitsFor() == "the GPU to be done with what is ahead of receiving execution " + std::to_string(k));
    StreamGate send_gate;
    send_gate.Hold(&a, ends.send->stream.get());
    gate.Open();
    REQUIRE(Until([&] {
      (void)AllReady({sent, got});
      return sent->Queued();
    }));
    CHECK(r->WaitsFor() == "w0 to send execution " + std::to_string(k));
    send_gate.Open();
    REQUIRE(Until([&] { return AllReady({sent, got}); }));
    CHECK(BitEqual(b.Download(out.tensor), HostValue({kLate}, k)));
  }
}

TEST_CASE("nccl received alone: behind a computation its sender is told at once where the port tells ahead") {
  TestGpu a, b;
  LinkEnds ends(&a, &b, 7, 7, true, true);
  const ShmEdgeSpec edge = NcclEdge(1, Large());
  auto [to, from] = FakeLink::Make(NcclHeaderSpec(edge), {});
  const auto s = *NcclLink::NewSendPort(ends.send->link, edge, std::move(to));
  const auto r = *NcclLink::NewRecvPort(ends.recv->link, edge, std::move(from), /*tell_ahead=*/true);
  const auto compute = *b.device->NewStream(v1::LANE_COMPUTE);
  for (int64_t k = 0; k < 3; ++k) {
    StreamGate gate;
    gate.Hold(&b, compute.get());
    ends.recv->stream->WaitFor(*b.device->Record(compute->native()));
    const EventRef sent = *s->Send(k, Of(&a, kLate, k), ends.send->stream.get());
    REQUIRE(Until([&] { return r->Poll(k) == PortState::kReady; }));
    Value out;
    const EventRef got = *r->Recv(k, b.Buffer(v1::F32, {kLate}), &out, ends.recv->stream.get());
    REQUIRE(Until([&] {
      (void)AllReady({sent, got});
      return sent->Queued();
    }));
    CHECK_FALSE(IsReady(got));
    CHECK(r->WaitsFor() == "w0 to send execution " + std::to_string(k));
    gate.Open();
    REQUIRE(Until([&] { return AllReady({sent, got}); }));
    CHECK(BitEqual(b.Download(out.tensor), HostValue({kLate}, k)));
  }
}

TEST_CASE("nccl received alone: what CUDA refuses at its launch ends the link with the edge's name, at every call") {
  for (const char* method : {"EventRecord", "EventCreate"}) {
    TestGpu a, b;
    LinkEnds ends(&a, &b, 7, 7, true, true);
    auto [s, r] = ends.Ports(NcclEdge(1, Large()));
    StreamGate gate;
    gate.Hold(&b, ends.recv->stream.get());
    const EventRef sent = *s->Send(0, Of(&a, kLate, 0), ends.send->stream.get());
    REQUIRE(Until([&] { return r->Poll(0) == PortState::kReady; }));
    const Tensor buffer = b.Buffer(v1::F32, {kLate});
    b.fake.cuda.FailCall(method, 1, kCudaInvalidValue);
    Value out;
    const EventRef got = *r->Recv(0, buffer, &out, ends.recv->stream.get());
    INFO(r->closed().ToString());
    CHECK(std::string(r->closed().message()).find("edge a:0 -> b:0 (w0 -> w1): ") == 0);
    gate.Open();
    ends.send->link->Close(r->closed());
    REQUIRE(Until([&] { return AllReady({sent, got}); }));
    CHECK(out.error != nullptr);
  }
}

// Several links into one worker, as many as there are senders; all received on one stream, with one queue.
struct Fan {
  Fan(std::vector<TestGpu*> senders, TestGpu* receiver)
      : to(receiver), queue(std::make_shared<NcclQueue>()), stream(*to->device->NewStream(v1::LANE_RECV)) {
    for (TestGpu* g : senders) {
      const auto comms = JoinAll({g, to});
      out.push_back(std::make_unique<LinkEnd>(g, comms[0], std::make_shared<NcclQueue>(), 7, true, false));
      in.push_back(std::make_unique<LinkEnd>(to, comms[1], queue, 7, false, true));
    }
  }
  ~Fan() {
    for (const auto* ends : {&out, &in}) {
      for (const auto& e : *ends) e->link->Close(absl::CancelledError("the test is over"));
    }
  }
  std::pair<std::unique_ptr<SendPort>, std::unique_ptr<RecvPort>> Ports(size_t link, const ShmEdgeSpec& edge) {
    auto [s, r] = FakeLink::Make(NcclHeaderSpec(edge), {});
    return {*NcclLink::NewSendPort(out[link]->link, edge, std::move(s)), *NcclLink::NewRecvPort(in[link]->link, edge, std::move(r))};
  }

  TestGpu* const to;
  const std::shared_ptr<NcclQueue> queue;
  const std::unique_ptr<Stream> stream;
  std::vector<std::unique_ptr<LinkEnd>> out, in;
};

TEST_CASE("nccl received alone: of several senders one is told at a time, in the receiver's order; a small value between them goes at once") {
  TestGpu a, b, c, to;
  TestGpu* const gpus[] = {&a, &b, &c};
  Fan fan({&a, &b, &c}, &to);
  std::vector<std::pair<std::unique_ptr<SendPort>, std::unique_ptr<RecvPort>>> large;
  for (size_t i = 0; i < 3; ++i) large.push_back(fan.Ports(i, NcclEdge(static_cast<int32_t>(i), Large())));
  auto [small_s, small_r] = fan.Ports(0, NcclEdge(9, "[100]"));
  for (int64_t k = 0; k < 4; ++k) {
    StreamGate gates[3];
    Value out[3], other;
    std::vector<EventRef> sent, got;
    int64_t sends[3];
    for (size_t i = 0; i < 3; ++i) {
      sends[i] = gpus[i]->fake.nccl.calls("Send");
      gates[i].Hold(gpus[i], fan.out[i]->stream.get());
      sent.push_back(*large[i].first->Send(k, Of(gpus[i], kLate, 3 * k + static_cast<int64_t>(i)), fan.out[i]->stream.get()));
    }
    sent.push_back(*small_s->Send(k, Of(&a, 100, k), fan.out[0]->stream.get()));
    const auto receive = [&](RecvPort* r, int64_t n, Value* into) {
      REQUIRE(Until([&] { return r->Poll(k) == PortState::kReady; }));
      got.push_back(*r->Recv(k, to.Buffer(v1::F32, {n}), into, fan.stream.get()));
    };
    receive(large[0].second.get(), kLate, &out[0]);
    receive(small_r.get(), 100, &other);
    receive(large[1].second.get(), kLate, &out[1]);
    receive(large[2].second.get(), kLate, &out[2]);
    std::vector<EventRef> all = sent;
    all.insert(all.end(), got.begin(), got.end());
    // One after the other, each only when its own sender has let the one ahead go.
    for (size_t i = 0; i < 3; ++i) {
      REQUIRE(Until([&] {
        (void)AllReady(all);
        return gpus[i]->fake.nccl.calls("Send") > sends[i];
      }));
      Ask(all);
      for (size_t j = i + 1; j < 3; ++j) CHECK(gpus[j]->fake.nccl.calls("Send") == sends[j]);
      if (i == 0) CHECK(gpus[0]->fake.nccl.calls("Send") == sends[0] + 2);  // the small one, behind it
      gates[i].Open();
    }
    REQUIRE(Until([&] { return AllReady(all); }));
    for (size_t i = 0; i < 3; ++i) CHECK(BitEqual(to.Download(out[i].tensor), HostValue({kLate}, 3 * k + static_cast<int64_t>(i))));
    CHECK(BitEqual(to.Download(other.tensor), HostValue({100}, k)));
  }
}

TEST_CASE("nccl received alone: a link that ends between launch and telling tells nobody for long, and those of other links go on") {
  for (const bool port_goes : {true, false}) {
    TestGpu a, b, to;
    Fan fan({&a, &b}, &to);
    auto [first_s, first_r] = fan.Ports(0, NcclEdge(1, Large()));
    auto [second_s, second_r] = fan.Ports(1, NcclEdge(2, Large()));
    const auto compute = *to.device->NewStream(v1::LANE_COMPUTE);
    StreamGate gate;
    gate.Hold(&to, compute.get());
    fan.stream->WaitFor(*to.device->Record(compute->native()));
    std::vector<EventRef> all = {*first_s->Send(0, Of(&a, kLate, 0), fan.out[0]->stream.get()),
                                 *second_s->Send(0, Of(&b, kLate, 1), fan.out[1]->stream.get())};
    Value out[2];
    REQUIRE(Until([&] { return first_r->Poll(0) == PortState::kReady && second_r->Poll(0) == PortState::kReady; }));
    all.push_back(*first_r->Recv(0, to.Buffer(v1::F32, {kLate}), &out[0], fan.stream.get()));
    all.push_back(*second_r->Recv(0, to.Buffer(v1::F32, {kLate}), &out[1], fan.stream.get()));
    Ask(all);
    REQUIRE(all[2]->Queued());
    REQUIRE(all[3]->Queued());
    CHECK_FALSE(all[0]->Queued());
    if (port_goes) first_r = nullptr;
    Ask(all);
    fan.in[0]->link->Close(absl::UnavailableError("w0 is gone"));
    fan.out[0]->link->Close(absl::UnavailableError("w0 is gone"));
    REQUIRE(Until([&] { return AllReady({all[0], all[2]}); }));
    CHECK(a.fake.nccl.calls("Send") == 0);
    CHECK((out[0].error != nullptr) == !port_goes);
    CHECK(b.fake.nccl.calls("Send") == 0);
    gate.Open();
    REQUIRE(Until([&] { return AllReady(all); }));
    CHECK(BitEqual(to.Download(out[1].tensor), HostValue({kLate}, 1)));
    // And go on going on.
    for (int64_t k = 1; k < 5; ++k) {
      REQUIRE(Until([&] { return second_s->Poll(k) == PortState::kReady; }));
      const EventRef sent = *second_s->Send(k, Of(&b, kLate, k), fan.out[1]->stream.get());
      REQUIRE(Until([&] { return second_r->Poll(k) == PortState::kReady; }));
      const EventRef got = *second_r->Recv(k, to.Buffer(v1::F32, {kLate}), &out[1], fan.stream.get());
      REQUIRE(Until([&] { return AllReady({sent, got}); }));
      CHECK(BitEqual(to.Download(out[1].tensor), HostValue({kLate}, k)));
    }
    // Nothing of the link is held by what is left.
    all.clear();
    first_r = nullptr;
    const std::weak_ptr<NcclLink> link = fan.in[0]->link;
    CHECK(link.use_count() == 1);
  }
}

TEST_CASE("nccl received alone: ports and queue go in every stage, and nothing of them stays or is touched any more") {
  for (int stage = 0; stage < 4; ++stage) {
    for (const bool told : {false, true}) {
      INFO("stage " << stage << ", told " << told);
      TestGpu a, b;
      auto ends = std::make_unique<LinkEnds>(&a, &b, 7, 7, true, true);
      b.nccl.polls = stage == 1 ? 1 << 30 : 0;  // NCCL does not come to an end with its launch
      auto [s, r] = ends->Ports(NcclEdge(1, Large(), v1::F32, 4));
      std::vector<EventRef> all;
      auto out = std::make_unique<std::vector<Value>>(4);
      {
        StreamGate gate;
        gate.Hold(told ? &a : &b, told ? ends->send->stream.get() : ends->recv->stream.get());
        for (int64_t k = 0; k < 4; ++k) {
          all.push_back(*s->Send(k, Of(&a, kLate, k), ends->send->stream.get()));
          REQUIRE(Until([&] { return r->Poll(k) == PortState::kReady; }));
          all.push_back(*r->Recv(k, b.Buffer(v1::F32, {kLate}), &(*out)[static_cast<size_t>(k)], ends->recv->stream.get()));
        }
        Ask(all);
        if (stage == 2) all.clear();  // nobody asks any more
        r.reset();
        out.reset();
        Ask(all);
        if (stage == 3) ends->recv->queue->Pump();
        s.reset();
      }
      ends.reset();
      CHECK(Until([&] { return AllReady(all); }));
      all.clear();
      a.device->Collect();
      b.device->Collect();
      CHECK(a.fake.cuda.books().allocations == 0);
      CHECK(b.fake.cuda.books().allocations == 0);
      CHECK(b.fake.cuda.books().host_allocations == 0);
      CHECK(b.fake.cuda.books().streams == 0);
      CHECK(b.device->Health().ok());
    }
  }
}

// Two workers that send each other values of all sizes, as GraphRun does: one queue a worker, a lane for sends and one for receives, each with
// its ops in one order; an op is issued when its port is ready and the one ahead is on its stream. `overlap` off: a receive stands behind the
// computation on the value before.
struct Crossed {
  static constexpr int kEdges = 3;

  struct Lane {
    std::unique_ptr<LinkEnd> end;
    size_t at = 0;
    std::deque<EventRef> outstanding;
  };
  struct Op {
    int edge;
    int64_t execution;
    int64_t elements;  // -1: an error
  };
  struct Way {
    std::vector<std::unique_ptr<SendPort>> send;
    std::vector<std::unique_ptr<RecvPort>> recv;
    Lane out, in;
    std::vector<Op> ops;
    std::vector<Value> values, got;
    std::vector<Tensor> buffers;
    std::unique_ptr<Stream> compute;
    EventRef computed;
  };

  Crossed(uint32_t seed, bool overlap, int polls) : overlap_(overlap) {
    std::mt19937 rng(seed);
    std::shared_ptr<NcclQueue> queues[2] = {std::make_shared<NcclQueue>(), std::make_shared<NcclQueue>()};
    for (int w = 0; w < 2; ++w) {
      TestGpu* const from = &gpus[w];
      TestGpu* const to = &gpus[1 - w];
      const auto comms = JoinAll({from, to});
      Way& way = ways[w];
      way.out.end = std::make_unique<LinkEnd>(from, comms[0], queues[w], 7, true, true);
      way.in.end = std::make_unique<LinkEnd>(to, comms[1], queues[1 - w], 7, true, true);
      way.compute = *to->device->NewStream(v1::LANE_COMPUTE);
      for (int32_t e = 0; e < kEdges; ++e) {
        const ShmEdgeSpec edge = NcclEdge(e, e == kEdges - 1 ? "[?<=100]" : Large());
        auto [s, r] = FakeLink::Make(NcclHeaderSpec(edge), {});
        way.send.push_back(*NcclLink::NewSendPort(way.out.end->link, edge, std::move(s)));
        way.recv.push_back(*NcclLink::NewRecvPort(way.in.end->link, edge, std::move(r)));
      }
      int64_t next[kEdges] = {};
      for (int i = 0; i < 60; ++i) {
        Op op;
        op.edge = static_cast<int>(rng() % kEdges);
        op.execution = next[op.edge]++;
        const int64_t sizes[] = {-1, 0, 1 + static_cast<int64_t>(rng() % 100), kLate, kLate, kLate};
        op.elements = sizes[rng() % (op.edge == kEdges - 1 ? 3 : 6)];
        way.ops.push_back(op);
        way.values.push_back(op.elements < 0 ? Poison(i) : Of(from, op.elements, i));
        way.buffers.push_back(to->Buffer(v1::F32, {kLate}));
      }
      way.got.resize(way.ops.size());
      to->nccl.polls = polls;
    }
  }
  ~Crossed() {
    for (Way& w : ways) {
      w.out.end->link->Close(absl::CancelledError("the test is over"));
      w.in.end->link->Close(absl::CancelledError("the test is over"));
    }
  }

  bool MayIssue(Lane* lane, size_t ops) {
    while (!lane->outstanding.empty() && IsReady(lane->outstanding.front())) lane->outstanding.pop_front();
    return lane->at < ops && (lane->outstanding.empty() || lane->outstanding.back() == nullptr || lane->outstanding.back()->Queued());
  }

  void StepSend(Way* w) {
    if (!MayIssue(&w->out, w->ops.size())) return;
    const Op& op = w->ops[w->out.at];
    SendPort* const s = w->send[static_cast<size_t>(op.edge)].get();
    if (s->Poll(op.execution) != PortState::kReady) return;
    w->out.outstanding.push_back(*s->Send(op.execution, w->values[w->out.at++], w->out.end->stream.get()));
  }

  void StepReceive(Way* w) {
    if (!MayIssue(&w->in, w->ops.size())) return;
    const Op& op = w->ops[w->in.at];
    RecvPort* const r = w->recv[static_cast<size_t>(op.edge)].get();
    if (r->Poll(op.execution) != PortState::kReady) return;
    TestGpu* const gpu = w->in.end->gpu;
    if (!overlap_ && w->computed != nullptr) w->in.end->stream->WaitFor(w->computed);
    const EventRef got = *r->Recv(op.execution, w->buffers[w->in.at], &w->got[w->in.at], w->in.end->stream.get());
    w->in.outstanding.push_back(got);
    ++w->in.at;
    if (overlap_ || got == nullptr || !gpu->device->CanWaitFor(got)) return;
    w->compute->WaitFor(got);
    w->computed = *gpu->device->Record(w->compute->native());
  }

  bool Over() const {
    for (const Way& w : ways) {
      if (w.out.at < w.ops.size() || w.in.at < w.ops.size() || !w.out.outstanding.empty() || !w.in.outstanding.empty()) return false;
    }
    return true;
  }

  TestGpu gpus[2];
  Way ways[2];
  const bool overlap_;
};

TEST_CASE("nccl received alone: two workers send each other values of all sizes, and none waits for ever") {
  for (uint32_t seed = 0; seed < 3; ++seed) {
    for (const bool overlap : {true, false}) {
      for (const int polls : {0, 3}) {
        INFO("seed " << seed << ", overlap " << overlap << ", polls " << polls);
        Crossed c(seed, overlap, polls);
        std::mt19937 rng(seed);
        const bool over = Until([&] {
          switch (rng() % 4) {
            case 0: c.StepSend(&c.ways[0]); break;
            case 1: c.StepSend(&c.ways[1]); break;
            case 2: c.StepReceive(&c.ways[0]); break;
            default: c.StepReceive(&c.ways[1]); break;
          }
          return c.Over();
        });
        for (const Crossed::Way& w : c.ways) {
          INFO("sent " << w.out.at << ", received " << w.in.at);
          for (const auto& s : w.send) UNSCOPED_INFO(s->WaitsFor());
          for (const auto& r : w.recv) UNSCOPED_INFO(r->WaitsFor());
          REQUIRE(over);
        }
        for (const Crossed::Way& w : c.ways) {
          for (size_t i = 0; i < w.ops.size(); ++i) {
            REQUIRE((w.got[i].error != nullptr) == (w.ops[i].elements < 0));
            if (w.got[i].error != nullptr) continue;
            CHECK(BitEqual(w.in.end->gpu->Download(w.got[i].tensor), HostValue({w.ops[i].elements}, static_cast<int64_t>(i))));
          }
          CHECK(w.out.end->link->Health().ok());
          CHECK(w.in.end->link->Health().ok());
        }
        CHECK(c.gpus[0].nccl.violations == 0);
        CHECK(c.gpus[1].nccl.violations == 0);
      }
    }
  }
}

}  // namespace
}  // namespace weft
