#include "worker/session/device_budget.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

namespace weft {
namespace {

TEST_CASE("device budget: graphs fit together or are refused with the numbers; the end of one makes room") {
  DeviceBudget budget(DeviceBudget::Default(132, 32));
  std::shared_ptr<void> a = *budget.Reserve("train", "w0", {2, 16, 5});
  std::shared_ptr<void> b = *budget.Reserve("serve", "w0", {2, 16, 4});
  std::shared_ptr<void> none = *budget.Reserve("plain", "w0", {0, 16, 2});
  const absl::Status s = budget.Reserve("third", "w0", {1, 16, 3}).status();
  CHECK(s.code() == absl::StatusCode::kResourceExhausted);
  CHECK(s.message() ==
        "graph third on w0 has 1 lanes with NCCL kernels of up to 16 CTAs, 16 together; of the 66 that NCCL may have on this GPU (half of its 132 "
        "SMs) 64 are taken by graph train (32), graph serve (32): lower the worker's --nccl-max-ctas or the graph's send_lanes, recv_lanes and "
        "collective_lanes, use IPC edges, or remove a graph");
  CHECK(budget.Reserve("third", "w0", {1, 2, 3}).ok());
  CHECK_FALSE(budget.Reserve("third", "w0", {1, 3, 3}).ok());
  b.reset();
  CHECK(budget.Reserve("third", "w0", {2, 16, 3}).ok());
  CHECK_FALSE(budget.Reserve("alone", "w0", {5, 16, 5}).ok());
}

TEST_CASE("device budget: streams are counted too") {
  DeviceBudget budget(DeviceBudget::Default(132, 8));
  std::shared_ptr<void> a = *budget.Reserve("train", "w0", {0, 16, 5});
  const absl::Status s = budget.Reserve("serve", "w0", {0, 16, 4}).status();
  CHECK(s.code() == absl::StatusCode::kResourceExhausted);
  CHECK(s.message() ==
        "graph serve on w0 has 4 lanes, a CUDA stream each; of the 8 that the GPU can run at once (CUDA_DEVICE_MAX_CONNECTIONS) 5 are taken by "
        "graph train (5): lower the graph's lanes, or remove a graph");
  CHECK(budget.Reserve("serve", "w0", {0, 16, 3}).ok());
  a.reset();
  CHECK(budget.Reserve("serve", "w0", {0, 16, 8}).ok());
}

TEST_CASE("device budget: lanes of a part, and which of them have NCCL kernels") {
  Plan p;
  p.part_of = 1;
  const auto edge = [&](int32_t id, v1::Transport t) {
    PlanEdge e;
    e.id = id;
    e.transport = t;
    p.edges.push_back(e);
  };
  edge(0, v1::NCCL);
  edge(1, v1::NCCL);
  edge(2, v1::IPC);
  PlanGroup g;
  g.id = 0;
  g.transport = v1::NCCL;
  p.groups.push_back(g);
  const auto op = [&](int32_t worker, LaneKind lane, int32_t index, int32_t e, int32_t group) {
    PlanOp o;
    o.id = static_cast<int32_t>(p.ops.size());
    o.worker = worker;
    o.lane = lane;
    o.lane_index = index;
    o.edge = e;
    o.group = group;
    p.ops.push_back(o);
  };
  op(1, v1::LANE_COMPUTE, 0, -1, -1);
  op(1, v1::LANE_RECV, 0, 0, -1);
  op(1, v1::LANE_RECV, 0, 1, -1);
  op(1, v1::LANE_RECV, 1, 2, -1);
  op(1, v1::LANE_COLLECTIVE, 0, -1, 0);
  op(0, v1::LANE_SEND, 0, 0, -1);  // another worker's
  const DeviceBudget::Need need = DeviceBudget::Of(p, 8);
  CHECK(need.nccl_lanes == 2);
  CHECK(need.max_ctas == 8);
  CHECK(need.streams == 4);
}

TEST_CASE("device budget: from many threads") {
  DeviceBudget budget(DeviceBudget::Default(132, 32));
  std::vector<std::thread> threads;
  std::atomic<int> got{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) got += budget.Reserve("g", "w0", {1, 16, 1}).ok();
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(got == 2000);  // four at a time always fit
  CHECK(budget.Reserve("g", "w0", {4, 16, 32}).ok());  // and all was given back
}

}  // namespace
}  // namespace weft
