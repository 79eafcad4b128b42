#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/fake/memory_store.h"
#include "common/comm/gloo/gloo_mesh.h"

namespace weft {

inline std::vector<std::string> WorkerNames(int size) {
  std::vector<std::string> names;
  for (int i = 0; i < size; ++i) names.push_back("w" + std::to_string(i));
  return names;
}

inline GlooMesh::Options MeshOptions(int rank, int size, KeyValueStore* store, Doorbell* bell = nullptr) {
  GlooMesh::Options o;
  o.rank = rank;
  o.store = store;
  o.prefix = "test";
  o.label = "group test";
  o.workers = WorkerNames(size);
  o.doorbell = bell;
  return o;
}

// All ranks of a connected mesh in this process, over loopback.
inline std::vector<std::shared_ptr<GlooMesh>> ConnectAll(const std::shared_ptr<GlooDevice>& device, int size,
                                                         const std::vector<Doorbell*>& bells = {}) {
  MemoryStore store;
  std::vector<std::shared_ptr<GlooMesh>> meshes;
  std::vector<absl::Status> status(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    meshes.push_back(*GlooMesh::Create(device, MeshOptions(r, size, &store, bells.empty() ? nullptr : bells[r])));
  }
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] { status[r] = meshes[r]->Connect(30 * kNanosPerSecond); });
  }
  for (std::thread& t : threads) t.join();
  for (const absl::Status& s : status) {
    INFO(s.ToString());
    REQUIRE(s.ok());
  }
  return meshes;
}

// Waits as a worker's loop does; the limit only keeps a broken build from hanging.
template <typename Done>
bool AwaitBell(Doorbell* bell, Done done, Nanos limit = 60 * kNanosPerSecond) {
  const Nanos until = Clock::Real()->Now() + limit;
  for (;;) {
    const uint32_t seen = bell->Snapshot();
    if (done()) return true;
    if (Clock::Real()->Now() > until) return false;
    bell->Wait(seen, until, 0);
  }
}

}  // namespace weft
