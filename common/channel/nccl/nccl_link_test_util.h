#pragma once

// Both ends of a link over two fake GPUs, announcements through FakeLinks.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/channel/fake/fake_link.h"
#include "common/channel/nccl/announcement.h"
#include "common/channel/nccl/nccl_link.h"
#include "common/comm/nccl/nccl_test_util.h"
#include "common/session/edge_trial.h"

namespace weft {

inline ShmEdgeSpec NcclEdge(int32_t edge, const std::string& shape, DType dtype = v1::F32, int slots = 2) {
  ShmEdgeSpec e;
  e.edge = edge;
  e.slots = slots;
  e.spec = Spec{dtype, *Shape::Parse(shape)};
  e.bytes = e.spec.MaxBytes();
  e.name = "edge a:0 -> b:0 (w0 -> w1)";
  e.src_worker = "w0";
  e.dst_worker = "w1";
  return e;
}

inline Tensor HostValue(const Dims& dims, int64_t seed) {
  const Tensor t = *Tensor::OnHost(v1::F32, dims);
  for (int64_t i = 0; i < t.elements(); ++i) t.as<float>()[i] = static_cast<float>((seed * 131 + i) % 65521);
  return t;
}

// Asks every one each time: asking is what moves them on.
inline bool AllReady(const std::vector<EventRef>& events) {
  bool all = true;
  for (const EventRef& e : events) all &= IsReady(e);
  return all;
}

inline Value Poison(int64_t k) {
  auto e = std::make_shared<TaskError>();
  e->worker = "w0";
  e->node = "a";
  e->execution = k;
  e->code = absl::StatusCode::kInvalidArgument;
  e->message = "bad luck";
  Value v;
  v.error = e;
  return v;
}

// One end of the link.
struct LinkEnd {
  LinkEnd(TestGpu* g, std::shared_ptr<NcclComm> c, std::shared_ptr<NcclQueue> q, uint64_t plan_hash, bool send_when_taken = false,
          bool receive_alone = false, bool replay = false, std::shared_ptr<const std::atomic<int>> at_once = nullptr)
      : gpu(g), comm(std::move(c)), queue(std::move(q)), stream(*gpu->device->NewStream(v1::LANE_SEND)) {
    link = *NcclLink::Create({comm, queue, *NcclScratch::Create(gpu->device.get()), gpu->device.get(), plan_hash, send_when_taken, receive_alone, replay,
                              std::move(at_once)});
  }
  TestGpu* gpu;
  std::shared_ptr<NcclComm> comm;
  std::shared_ptr<NcclQueue> queue;
  std::unique_ptr<Stream> stream;
  std::shared_ptr<NcclLink> link;
};

struct LinkEnds {
  explicit LinkEnds(TestGpu* a, TestGpu* b, uint64_t send_hash = 7, uint64_t recv_hash = 7, bool send_when_taken = false, bool receive_alone = false,
                    bool replay = false, const std::shared_ptr<const std::atomic<int>>& at_once = nullptr) {
    const auto comms = JoinAll({a, b});
    send = std::make_unique<LinkEnd>(a, comms[0], std::make_shared<NcclQueue>(), send_hash, send_when_taken, false, replay, at_once);
    recv = std::make_unique<LinkEnd>(b, comms[1], std::make_shared<NcclQueue>(), recv_hash, false, receive_alone, replay, at_once);
  }
  ~LinkEnds() {
    send->link->Close(absl::CancelledError("the test is over"));
    recv->link->Close(absl::CancelledError("the test is over"));
  }

  std::pair<std::unique_ptr<SendPort>, std::unique_ptr<RecvPort>> Ports(const ShmEdgeSpec& edge, FakeLink::Options o = {}) {
    return Ports(edge, edge, std::move(o));
  }
  std::pair<std::unique_ptr<SendPort>, std::unique_ptr<RecvPort>> Ports(const ShmEdgeSpec& out, const ShmEdgeSpec& in, FakeLink::Options o = {}) {
    auto [s, r] = FakeLink::Make(NcclHeaderSpec(out), std::move(o));
    return {*NcclLink::NewSendPort(send->link, out, std::move(s)), *NcclLink::NewRecvPort(recv->link, in, std::move(r))};
  }

  std::unique_ptr<LinkEnd> send, recv;
};

inline constexpr int64_t kLate = static_cast<int64_t>(NcclLink::kLateBytes / 4);  // elements of F32

inline std::string Large() { return "[?<=" + std::to_string(kLate) + "]"; }

inline Value Of(TestGpu* gpu, int64_t elements, int64_t seed) {
  Value v;
  v.tensor = gpu->Upload(HostValue({elements}, seed));
  return v;
}

// Often enough for whatever would come too early.
inline void Ask(const std::vector<EventRef>& events) {
  for (int i = 0; i < 100; ++i) (void)AllReady(events);
}

}  // namespace weft
