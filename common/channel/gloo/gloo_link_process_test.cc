// A link between two processes, one of which is killed.

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "common/channel/gloo/gloo_link.h"
#include "common/comm/fake/directory_store.h"
#include "common/comm/gloo/gloo_test_util.h"

namespace weft {
namespace {

constexpr int64_t kElements = 1 << 20;

struct Shared {
  std::atomic<int64_t> done[2];
};

// Sends or receives until the link closes. 0 when it closed because the peer was lost.
int Run(int rank, const std::string& dir, Shared* shared) {
  const auto device = GlooDevice::Create("127.0.0.1");
  if (!device.ok()) return 10;
  DirectoryStore store(dir);
  const std::unique_ptr<Doorbell> bell = Doorbell::InProcess();
  const auto mesh = *GlooMesh::Create(*device, MeshOptions(rank, 2, &store, bell.get()));
  if (!mesh->Connect(30 * kNanosPerSecond).ok()) return 11;
  GlooLink link(mesh, 7, bell.get());
  ShmEdgeSpec edge;
  edge.edge = 3;
  edge.spec = Spec{v1::F32, Shape::Of({kElements})};
  edge.bytes = edge.spec.MaxBytes();
  std::unique_ptr<SendPort> s;
  std::unique_ptr<RecvPort> r;
  if (rank == 0) {
    s = *link.NewSendPort(edge);
  } else {
    r = *link.NewRecvPort(edge);
  }
  const Tensor buffer = *Tensor::OnHost(v1::F32, {kElements});
  for (int64_t k = 0;; ++k) {
    Value v;
    v.tensor = buffer;
    if (rank == 0) buffer.as<float>()[kElements - 1] = static_cast<float>(k);
    const absl::StatusOr<EventRef> e = rank == 0 ? s->Send(k, v, nullptr) : r->Recv(k, buffer, &v, nullptr);
    if (!e.ok()) break;
    if (!AwaitBell(bell.get(), [&] { return IsReady(*e); }, 20 * kNanosPerSecond)) return 12;
    if (v.error != nullptr) {
      if (v.error->code != absl::StatusCode::kUnavailable) return 13;
      break;
    }
    if (rank == 1 && link.Health().ok() && v.tensor.as<float>()[kElements - 1] != static_cast<float>(k)) return 14;
    shared->done[rank] = k + 1;
  }
  const std::string lost = rank == 0 ? "lost w1 (rank 1)" : "lost w0 (rank 0)";
  return link.Health().code() == absl::StatusCode::kUnavailable && link.Health().message() == "group test: " + lost ? 0 : 15;
}

TEST_CASE("gloo link processes: a killed peer closes the link at once, at either end, in the middle of a payload") {
  for (int round = 1; round <= 20; ++round) {
    const int victim = round % 2;
    std::string dir = std::string(std::getenv("TEST_TMPDIR") != nullptr ? std::getenv("TEST_TMPDIR") : "/tmp") + "/linkXXXXXX";
    REQUIRE(::mkdtemp(dir.data()) != nullptr);
    auto* shared = static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    REQUIRE(shared != MAP_FAILED);
    pid_t pids[2];
    for (int r = 0; r < 2; ++r) {
      pids[r] = ::fork();
      REQUIRE(pids[r] >= 0);
      if (pids[r] == 0) ::_exit(Run(r, dir, shared));
    }
    const Nanos limit = Clock::Real()->Now() + 60 * kNanosPerSecond;
    while ((shared->done[0] < round || shared->done[1] < round) && Clock::Real()->Now() < limit) ::sched_yield();
    // 4 MiB take about a millisecond: some rounds fall between two values, most into one.
    const Nanos start = Clock::Real()->Now();
    ::kill(pids[victim], SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(pids[victim], &status, 0) == pids[victim]);
    REQUIRE(::waitpid(pids[1 - victim], &status, 0) == pids[1 - victim]);
    INFO("round " << round);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(Clock::Real()->Now() - start < kNanosPerSecond);
    ::munmap(shared, sizeof(Shared));
    std::filesystem::remove_all(dir);
  }
}

}  // namespace
}  // namespace weft
