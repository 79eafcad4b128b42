#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <vector>

#include "common/channel/fake/fake_link.h"
#include "common/channel/staged/staged_order.h"
#include "common/channel/staged/staged_recv_port.h"
#include "common/channel/staged/staged_send_port.h"
#include "common/device/cuda/fake/fake_kernels.h"
#include "common/device/cuda/fake/fake_plugin.h"

namespace weft {
namespace {

struct Gpu {
  Gpu() : kernels(&fake.cuda), device(*CudaDevice::Create(fake.plugin(&kernels), Clock::Real(), 0)), stream(*device->NewStream(v1::LANE_COPY)) {}

  // A value in device memory, all elements `v`.
  Value Made(int64_t elements, float v) {
    const auto memory = *device->Allocate(static_cast<size_t>(elements) * 4);
    for (int64_t i = 0; i < elements; ++i) static_cast<float*>(memory.get())[i] = v;  // the fake's device memory is the host's too
    Value value;
    value.tensor = Tensor(v1::F32, {elements}, memory.get(), memory);
    return value;
  }

  FakePlugin fake;
  FakeKernels kernels;
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<Stream> stream;
};

ShmEdgeSpec Edge(int32_t id, int64_t elements, int slots = 2) {
  ShmEdgeSpec e;
  e.edge = id;
  e.slots = slots;
  e.spec = {v1::F32, Shape::Of({elements})};
  e.bytes = e.spec.MaxBytes();
  e.src_worker = "w0";
  e.dst_worker = "w1";
  return e;
}

bool Soon(const EventRef& event) {
  const Nanos until = Clock::Real()->Now() + 20 * kNanosPerSecond;
  while (!IsReady(event)) {
    if (Clock::Real()->Now() > until) return false;
  }
  return true;
}

TEST_CASE("staged ports: values go from device to device over a host channel, many times over the same slots") {
  Gpu a, b;
  const ShmEdgeSpec edge = Edge(1, 5000);
  auto [sender, receiver] = FakeLink::Make(edge, {});
  const auto send = *StagedSendPort::Create(std::move(sender), edge, a.device.get(), nullptr);
  const auto recv = *StagedRecvPort::Create(std::move(receiver), edge, b.device.get(), false);
  const auto memory = *b.device->Allocate(edge.bytes);
  const Tensor buffer(v1::F32, {5000}, memory.get(), memory);
  for (int64_t k = 0; k < 200; ++k) {
    REQUIRE(send->Poll(k) == PortState::kReady);
    const EventRef sent = *send->Send(k, a.Made(5000, static_cast<float>(k)), a.stream.get());
    REQUIRE(Soon(sent));
    REQUIRE(recv->Poll(k) == PortState::kReady);
    Value out;
    const EventRef got = *recv->Recv(k, buffer, &out, b.stream.get());
    REQUIRE(Soon(got));
    recv->Arrived(k);
    REQUIRE(out.error == nullptr);
    CHECK(out.tensor.data() == memory.get());
    CHECK(out.tensor.as<float>()[0] == static_cast<float>(k));
    CHECK(out.tensor.as<float>()[4999] == static_cast<float>(k));
    recv->Release(k);
  }
}

TEST_CASE("staged ports: a small reachable value is given in place, and its slot is held until it is released") {
  Gpu b;
  const ShmEdgeSpec edge = Edge(1, 4, 1);
  auto [send, receiver] = FakeLink::Make(edge, {});
  const auto recv = *StagedRecvPort::Create(std::move(receiver), edge, b.device.get(), true);
  const auto memory = *b.device->Allocate(edge.bytes);
  const Tensor buffer(v1::F32, {4}, memory.get(), memory);
  Value value;
  value.tensor = *Tensor::OnHost(v1::F32, {4});
  for (int i = 0; i < 4; ++i) value.tensor.as<float>()[i] = 7;
  REQUIRE(Soon(*send->Send(0, value, nullptr)));
  REQUIRE(recv->Poll(0) == PortState::kReady);
  Value out;
  REQUIRE(Soon(*recv->Recv(0, buffer, &out, b.stream.get())));
  CHECK(out.tensor.data() != memory.get());
  CHECK(out.tensor.as<float>()[3] == 7);
  recv->Arrived(0);
  CHECK(send->Poll(1) == PortState::kWaiting);
  recv->Release(0);
  CHECK(send->Poll(1) == PortState::kReady);
}

TEST_CASE("staged ports: what a broken device has left in host memory is not sent, and nobody waits for it") {
  Gpu a;
  const ShmEdgeSpec edge = Edge(1, 5000);
  auto [sender, recv] = FakeLink::Make(edge, {});
  const auto send = *StagedSendPort::Create(std::move(sender), edge, a.device.get(), nullptr);
  REQUIRE(a.fake.cuda.Enqueue(a.stream->native(), [&] { a.fake.cuda.WaitUntil([] { return false; }); }) == kCudaSuccess);
  const EventRef sent = *send->Send(0, a.Made(5000, 1), a.stream.get());
  CHECK_FALSE(IsReady(sent));
  a.fake.cuda.BreakDevice(kCudaIllegalAddress);
  CHECK(Soon(sent));
  CHECK(recv->Poll(0) == PortState::kWaiting);
  CHECK(send->Poll(1) == PortState::kClosed);
  CHECK(std::string(send->closed().message()).find("cudaErrorIllegalAddress") != std::string::npos);
}

TEST_CASE("staged ports: an error known to the host travels, and one that the device knows takes the value's place") {
  Gpu a, b;
  const ShmEdgeSpec edge = Edge(1, 8, 4);
  auto [sender, recv] = FakeLink::Make(edge, {});
  const auto send = *StagedSendPort::Create(std::move(sender), edge, a.device.get(), [](uint64_t word) {
    auto e = std::make_shared<TaskError>();
    e->node = "n" + std::to_string(word);
    e->code = absl::StatusCode::kInternal;
    return e;
  });
  Value host;
  auto error = std::make_shared<TaskError>();
  error->node = "host";
  error->code = absl::StatusCode::kInternal;
  host.error = error;
  REQUIRE(Soon(*send->Send(0, host, a.stream.get())));
  const auto word = *a.device->Allocate(sizeof(DeviceStatus));
  for (const uint64_t w : {uint64_t{0}, uint64_t{42}}) {
    Value value = a.Made(8, 1);
    value.status = static_cast<DeviceStatus*>(word.get());
    value.status->word = w;
    REQUIRE(Soon(*send->Send(w == 0 ? 1 : 2, value, a.stream.get())));
  }
  const char* const wanted[] = {"host", "", "n42"};
  for (int64_t k = 0; k < 3; ++k) {
    Value out;
    REQUIRE(recv->Poll(k) == PortState::kReady);
    REQUIRE(Soon(*recv->Recv(k, Tensor(), &out, nullptr)));
    CHECK((out.error == nullptr ? "" : out.error->node) == wanted[k]);
    recv->Release(k);
  }
}

TEST_CASE("staged ports: a copy that fails ends the port with its edge's name; a value that does not fit is refused") {
  Gpu a;
  const ShmEdgeSpec edge = Edge(3, 2000);
  auto [sender, recv] = FakeLink::Make(edge, {});
  const auto send = *StagedSendPort::Create(std::move(sender), edge, a.device.get(), nullptr);
  CHECK(absl::IsOutOfRange(send->Send(0, a.Made(2001, 1), a.stream.get()).status()));
  a.fake.cuda.FailCall("MemcpyAsync", 1, kCudaInvalidValue);
  CHECK_FALSE(send->Send(0, a.Made(2000, 1), a.stream.get()).ok());
}

TEST_CASE("staged order: only the first may leave, the next is woken, and one that is dropped holds nobody up") {
  StagedOrder order;
  int a = 0, b = 0, c = 0, woken = 0;
  order.Add(&a, [] {});
  order.Add(&b, [&] { woken = 1; });
  order.Add(&c, [&] { woken = 2; });
  CHECK(order.IsFirst(&a));
  CHECK_FALSE(order.IsFirst(&b));
  order.Pop();
  CHECK(woken == 1);
  CHECK(order.IsFirst(&b));
  order.Drop(&b);
  CHECK(woken == 2);
  CHECK(order.IsFirst(&c));
}

}  // namespace
}  // namespace weft
