#pragma once

// Ranks in one process, each with its own fakes, a stream, and after Join a communicator. AtOnce: launches that take no time.

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "common/device/cuda/fake/fake_plugin.h"
#include "common/device/cuda/fake/fake_test_util.h"

namespace weft {

inline FakePlugin::Options AtOnce() {
  FakePlugin::Options options;
  options.nccl.launch_polls = 0;
  return options;
}

class TestRank {
 public:
  explicit TestRank(const FakePlugin::Options& options) : plugin_(options), stream(NewStream(&plugin_.cuda)) {}
  FakeCuda& cuda() { return plugin_.cuda; }
  FakeNccl& nccl() { return plugin_.nccl; }
  bool Becomes(NcclCommHandle c, int wanted) {
    return Eventually([&] {
      int state = -1;
      return nccl().GetAsyncError(c, &state) == kNcclSuccess && state == wanted;
    });
  }

 private:
  FakePlugin plugin_;

 public:
  const CudaStreamHandle stream;
  NcclCommHandle comm = nullptr;
};

class RankSet {
 public:
  RankSet(int ranks, const FakePlugin::Options& options) {
    for (int r = 0; r < ranks; ++r) ranks_.push_back(std::make_unique<TestRank>(options));
  }
  TestRank& operator[](int r) { return *ranks_[r]; }
  int size() const { return static_cast<int>(ranks_.size()); }

  void Join(int max_ctas) {
    NcclId id;
    REQUIRE(ranks_[0]->nccl().GetUniqueId(&id) == kNcclSuccess);
    for (int r = 0; r < size(); ++r) REQUIRE(ranks_[r]->nccl().CommInit(&ranks_[r]->comm, size(), id, r, max_ctas) == kNcclInProgress);
    for (const auto& r : ranks_) REQUIRE(r->Becomes(r->comm, kNcclSuccess));
  }
  bool Synchronize() {
    for (const auto& r : ranks_) {
      if (r->cuda().StreamSynchronize(r->stream) != kCudaSuccess) return false;
    }
    return true;
  }

 private:
  std::vector<std::unique_ptr<TestRank>> ranks_;
};

}  // namespace weft
