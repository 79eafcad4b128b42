#include <catch2/catch.hpp>
#include <cstring>

#include "common/channel/ipc/ipc_mapping.h"
#include "common/channel/ipc/ipc_recv_port.h"
#include "common/channel/ipc/ipc_send_port.h"
#include "common/channel/shm/hub.h"
#include "common/channel/shm/recv_port.h"
#include "common/channel/shm/send_port.h"
#include "common/comm/nccl/nccl_test_util.h"

namespace weft {
namespace {

constexpr int64_t kElements = 1000;

ShmEdgeSpec IpcEdge(int slots = 2) {
  ShmEdgeSpec e;
  e.edge = 4;
  e.slots = slots;
  e.spec = Spec{v1::F32, *Shape::Parse("[1000]")};
  e.bytes = e.spec.MaxBytes();
  e.name = "edge a:0 -> b:0 (w0 -> w1)";
  e.src_worker = "w0";
  e.dst_worker = "w1";
  return e;
}

// Two workers in one process: a GPU and a hub each, one shared segment, the producer's arena opened by the consumer.
struct Ends {
  explicit Ends(const ShmEdgeSpec& edge = IpcEdge()) {
    writer = *a_hub->Export("k", {AnnouncementEdge(edge)}, 42);
    reader = *b_hub->Import(a_hub->address(), "k", Clock::Real()->Now() + 30 * kNanosPerSecond);
    a_lock = *a.device->RegisterHost(writer->memory(), writer->memory_bytes());
    b_lock = *b.device->RegisterHost(reader->memory(), reader->memory_bytes());
    arena = *a.device->Allocate(kArenaBytes + kIpcProbeBytes);
    const IpcOffer offer = *IpcMapping::Offer(a.device.get(), arena.get(), kArenaBytes + kIpcProbeBytes);
    mapping = *IpcMapping::Open(b.device.get(), *IpcOffer::FromString(offer.ToString()), "w0");
    send = std::make_unique<IpcSendPort>(*ShmSendPort::Create(writer, edge.edge, Clock::Real()), edge, a.device.get(), arena, kArenaBytes);
    recv = std::make_unique<IpcRecvPort>(*ShmRecvPort::Create(reader, AnnouncementEdge(edge), Clock::Real()), edge, b.device.get(), mapping);
    out_stream = *a.device->NewStream(v1::LANE_SEND);
    in_stream = *b.device->NewStream(v1::LANE_RECV);
  }

  // What is queued runs on after its stream is gone, and writes flags in the segment.
  ~Ends() { CHECK(Until([&] { return a.device->IsIdle(out_stream->native()) && b.device->IsIdle(in_stream->native()); })); }

  // A value in the `slot`th place of the arena, all elements `x`.
  Value Made(int slot, float x) {
    float* const p = reinterpret_cast<float*>(static_cast<char*>(arena.get()) + slot * 4096);
    std::fill(p, p + kElements, x);
    Value v;
    v.tensor = Tensor(v1::F32, {kElements}, p, arena);
    return v;
  }
  bool Holds(const Value& v, float x) {
    const Tensor t = b.Download(v.tensor);
    return std::all_of(t.as<float>(), t.as<float>() + kElements, [x](float y) { return y == x; });
  }

  static constexpr uint64_t kArenaBytes = 1 << 16;
  TestGpu a, b;
  std::unique_ptr<Doorbell> a_bell = *Doorbell::Create(), b_bell = *Doorbell::Create();
  std::unique_ptr<ShmHub> a_hub = *ShmHub::Create(a_bell.get()), b_hub = *ShmHub::Create(b_bell.get());
  std::shared_ptr<ShmSegment> writer, reader;
  std::shared_ptr<void> a_lock, b_lock, arena;
  std::shared_ptr<IpcMapping> mapping;
  std::unique_ptr<IpcSendPort> send;
  std::unique_ptr<IpcRecvPort> recv;
  std::unique_ptr<Stream> out_stream, in_stream;
};

TEST_CASE("ipc ports: a value that is there is told by the host, one that is not by the device behind it") {
  Ends e;
  const auto compute = *e.a.device->NewStream(v1::LANE_COMPUTE);
  for (int64_t k = 0; k < 20; ++k) {
    INFO("execution " << k);
    const bool later = k % 2 == 1;
    REQUIRE(Until([&] { return e.send->Poll(k) == PortState::kReady; }));
    StreamGate gate;
    Value v = e.Made(static_cast<int>(k % 2), later ? -1.f : static_cast<float>(k));
    if (later) {
      gate.Hold(&e.a, compute.get());
      float* const p = v.tensor.as<float>();
      REQUIRE(e.a.fake.cuda.Enqueue(compute->native(), [p, k] { std::fill(p, p + kElements, static_cast<float>(k)); }) == kCudaSuccess);
      v.event = *e.a.device->Record(compute->native());
      e.out_stream->WaitFor(v.event);
    }
    const int64_t writes = e.a.fake.cuda.calls("StreamWrite32"), waits = e.b.fake.cuda.calls("StreamWait32");
    const EventRef sent = *e.send->Send(k, v, e.out_stream.get());
    CHECK(e.a.fake.cuda.calls("StreamWrite32") == writes + later);
    REQUIRE(e.recv->Poll(k) == PortState::kReady);
    Value out;
    const Tensor buffer = e.b.Buffer(v1::F32, {kElements});
    const EventRef got = *e.recv->Recv(k, buffer, &out, e.in_stream.get());
    CHECK(e.b.fake.cuda.calls("StreamWait32") == waits + later);
    CHECK(e.b.device->CanWaitFor(got));
    if (later) {
      CHECK_FALSE(IsReady(got));
      gate.Open();
    }
    REQUIRE(Until([&] { return IsReady(got); }));
    CHECK(e.Holds(out, static_cast<float>(k)));
    CHECK_FALSE(IsReady(sent));  // until the consumer's loop has seen that the value is copied
    e.recv->Arrived(k);
    CHECK(Until([&] { return IsReady(sent); }));
    REQUIRE(Until([&] { return e.a.device->IsIdle(e.out_stream->native()); }));
  }
}

TEST_CASE("ipc ports: what a stream still has ahead keeps a ready value behind it") {
  Ends e;
  StreamGate gate;
  gate.Hold(&e.a, e.out_stream.get());
  const EventRef sent = *e.send->Send(0, e.Made(0, 5), e.out_stream.get());
  CHECK(e.a.fake.cuda.calls("StreamWrite32") == 1);
  Value out;
  const EventRef got = *e.recv->Recv(0, e.b.Buffer(v1::F32, {kElements}), &out, e.in_stream.get());
  for (int i = 0; i < 100; ++i) CHECK_FALSE(IsReady(got));
  gate.Open();
  CHECK(Until([&] { return IsReady(got); }));
  CHECK(e.Holds(out, 5));
  e.recv->Arrived(0);
  CHECK(Until([&] { return IsReady(sent); }));
}

TEST_CASE("ipc ports: errors travel in the announcement, and slots go back in order") {
  Ends e;
  const EventRef value = *e.send->Send(0, e.Made(0, 1), e.out_stream.get());
  Value poison;
  auto error = std::make_shared<TaskError>();
  error->worker = "w0";
  error->node = "a";
  error->execution = 1;
  error->code = absl::StatusCode::kInvalidArgument;
  error->message = "bad luck";
  poison.error = error;
  const EventRef bad = *e.send->Send(1, poison, e.out_stream.get());
  CHECK(e.send->Poll(2) == PortState::kWaiting);
  Value first, second;
  const EventRef got = *e.recv->Recv(0, e.b.Buffer(v1::F32, {kElements}), &first, e.in_stream.get());
  CHECK(IsReady(*e.recv->Recv(1, e.b.Buffer(v1::F32, {kElements}), &second, e.in_stream.get())));
  REQUIRE(second.error != nullptr);
  CHECK(second.error->ToString() == error->ToString());
  CHECK(e.send->Poll(2) == PortState::kWaiting);  // both slots, since the first's value may still be copied
  REQUIRE(Until([&] { return IsReady(got); }));
  e.recv->Arrived(0);
  CHECK(e.send->Poll(2) == PortState::kReady);
}

TEST_CASE("ipc ports: a closed edge releases a stream that waits for a value that will not come, before and after it waits") {
  Ends e;
  StreamGate gate;
  gate.Hold(&e.a, e.out_stream.get());  // a producer that has died before its kernel was done
  const EventRef never = *e.send->Send(0, e.Made(0, 1), e.out_stream.get());
  (void)e.send->Send(1, e.Made(1, 1), e.out_stream.get());
  Value out;
  const EventRef got = *e.recv->Recv(0, e.b.Buffer(v1::F32, {kElements}), &out, e.in_stream.get());
  CHECK_FALSE(IsReady(got));
  const auto release = e.recv->Releaser();
  std::thread closing([&] { release(); });
  closing.join();
  CHECK(Until([&] { return IsReady(got); }));
  const EventRef late = *e.recv->Recv(1, e.b.Buffer(v1::F32, {kElements}), &out, e.in_stream.get());
  CHECK(Until([&] { return IsReady(late); }));
}

TEST_CASE("ipc ports: what the consumer cannot see, and what does not fit, is refused with the edge's name") {
  Ends e;
  Value elsewhere;
  elsewhere.tensor = e.a.Upload(*Tensor::OnHost(v1::F32, {kElements}));
  const absl::Status refused = e.send->Send(0, elsewhere, e.out_stream.get()).status();
  CHECK(std::string(refused.message()).find("edge a:0 -> b:0 (w0 -> w1)") != std::string::npos);
  CHECK(std::string(refused.message()).find("AllocateOutput") != std::string::npos);
  Value wrong;
  wrong.tensor = Tensor(v1::F32, {kElements + 1}, e.arena.get(), e.arena);
  CHECK_FALSE(e.send->Send(0, wrong, e.out_stream.get()).ok());

  (void)*e.send->Send(0, e.Made(0, 1), e.out_stream.get());
  Value out;
  CHECK(IsReady(*e.recv->Recv(0, e.b.Buffer(v1::F32, {10}), &out, e.in_stream.get())));
  REQUIRE(out.error != nullptr);
  CHECK(out.error->message.find("4000 bytes came, 40 are reserved") != std::string::npos);
}

TEST_CASE("ipc ports: any call of CUDA that fails is a status with the edge's name") {
  for (const char* call : {"StreamWrite32", "StreamWait32", "MemcpyAsync", "EventRecord"}) {
    INFO(call);
    Ends e;
    StreamGate gate;
    gate.Hold(&e.a, e.out_stream.get());  // so that the flags are the devices' work
    const bool sends = std::string(call) == "StreamWrite32";
    if (sends) e.a.fake.cuda.FailCall(call, 1, kCudaInvalidValue);
    const auto sent = e.send->Send(0, e.Made(0, 1), e.out_stream.get());
    CHECK(sent.ok() == !sends);
    if (sends) {
      CHECK(std::string(sent.status().message()).find("w0 -> w1") != std::string::npos);
      continue;
    }
    e.b.fake.cuda.FailCall(call, 1, kCudaInvalidValue);
    Value out;
    const absl::Status got = e.recv->Recv(0, e.b.Buffer(v1::F32, {kElements}), &out, e.in_stream.get()).status();
    CHECK_FALSE(got.ok());
    e.recv->Releaser()();
  }
}

}  // namespace
}  // namespace weft
