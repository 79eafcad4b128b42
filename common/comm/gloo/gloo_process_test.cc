// Ranks in processes of their own, one of which is killed.

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "common/comm/fake/directory_store.h"
#include "common/comm/gloo/gloo_communicator.h"
#include "common/comm/gloo/gloo_test_util.h"

namespace weft {
namespace {

// What the processes tell each other outside the mesh.
struct Shared {
  std::atomic<int> connected;
  std::atomic<int> calls[3];
  std::atomic<bool> go;
};

enum Moment { kIdle, kWaitingForPeer, kMidPayload };

// Returns 0 when this rank saw its peer's death as it should.
int Survivor(int rank, const std::string& dir, Moment moment, Shared* shared) {
  const auto device = GlooDevice::Create("127.0.0.1");
  if (!device.ok()) return 10;
  DirectoryStore store(dir);
  const std::unique_ptr<Doorbell> bell = Doorbell::InProcess();
  const auto mesh = *GlooMesh::Create(*device, MeshOptions(rank, 3, &store, bell.get()));
  if (!mesh->Connect(30 * kNanosPerSecond).ok()) return 11;
  GroupInfo group;
  group.name = "grads";
  group.workers = WorkerNames(3);
  GlooCommunicator comm(mesh, group, bell.get());
  const int64_t n = moment == kMidPayload ? 1 << 22 : 16;
  Value in, out;
  in.tensor = *Tensor::OnHost(v1::F32, {n});
  for (int64_t i = 0; i < n; ++i) in.tensor.as<float>()[i] = 1;
  const Tensor buffer = *Tensor::OnHost(v1::F32, {n});
  const auto once = [&]() -> absl::StatusOr<EventRef> { return comm.Run(CollectiveCall(), in, buffer, &out, nullptr); };
  // One call that all take part in.
  absl::StatusOr<EventRef> e = once();
  if (!e.ok() || !AwaitBell(bell.get(), [&] { return (*e)->Ready(); }) || out.error != nullptr) return 12;
  ++shared->connected;
  if (rank == 1) {  // the one that dies
    for (;;) {
      if (moment != kMidPayload || !shared->go) {
        ::sched_yield();
        continue;
      }
      e = once();
      if (!e.ok()) return 13;
      AwaitBell(bell.get(), [&] { return (*e)->Ready(); });
      ++shared->calls[rank];
    }
  }
  while (!shared->go) ::sched_yield();
  for (;;) {
    if (moment == kIdle) {
      if (!AwaitBell(bell.get(), [&] { return !comm.Health().ok(); }, 20 * kNanosPerSecond)) return 14;
      break;
    }
    e = once();
    if (!e.ok()) break;  // noticed between two calls
    ++shared->calls[rank];
    if (!AwaitBell(bell.get(), [&] { return (*e)->Ready(); }, 20 * kNanosPerSecond)) return 15;
    if (out.error == nullptr) continue;
    if (out.error->code != absl::StatusCode::kUnavailable) return 16;
    break;
  }
  const std::string why(comm.Health().message());
  // The dead one, or the other survivor that says who died.
  return comm.Health().code() == absl::StatusCode::kUnavailable && why.find("lost w1 (rank 1)") != std::string::npos ? 0 : 17;
}

void KillOne(Moment moment, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    std::string dir = std::string(std::getenv("TEST_TMPDIR") != nullptr ? std::getenv("TEST_TMPDIR") : "/tmp") + "/glooXXXXXX";
    REQUIRE(::mkdtemp(dir.data()) != nullptr);
    auto* shared = static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    REQUIRE(shared != MAP_FAILED);
    pid_t pids[3];
    for (int r = 0; r < 3; ++r) {
      pids[r] = ::fork();
      REQUIRE(pids[r] >= 0);
      if (pids[r] == 0) ::_exit(Survivor(r, dir, moment, shared));
    }
    const Nanos limit = Clock::Real()->Now() + 60 * kNanosPerSecond;
    while (shared->connected < 3 && Clock::Real()->Now() < limit) ::sched_yield();
    CHECK(shared->connected == 3);
    shared->go = true;
    // In the middle of some call: both survivors have begun one, and the victim has been through a few.
    while (moment != kIdle && Clock::Real()->Now() < limit &&
           (shared->calls[0] == 0 || shared->calls[2] == 0 || (moment == kMidPayload && shared->calls[1] < 1 + round % 3))) {
      ::sched_yield();
    }
    const Nanos start = Clock::Real()->Now();
    ::kill(pids[1], SIGKILL);
    for (int r = 0; r < 3; ++r) {
      int status = 0;
      REQUIRE(::waitpid(pids[r], &status, 0) == pids[r]);
      INFO("rank " << r << ", round " << round);
      if (r == 1) {
        CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
      } else {
        REQUIRE(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0);
      }
    }
    CHECK(Clock::Real()->Now() - start < kNanosPerSecond);
    ::munmap(shared, sizeof(Shared));
    std::filesystem::remove_all(dir);
  }
}

TEST_CASE("gloo processes: a killed rank is noticed while nothing runs") { KillOne(kIdle, 5); }
TEST_CASE("gloo processes: a killed rank is noticed by those who wait for it") { KillOne(kWaitingForPeer, 5); }
TEST_CASE("gloo processes: a killed rank is noticed in the middle of a payload") { KillOne(kMidPayload, 15); }

}  // namespace
}  // namespace weft
