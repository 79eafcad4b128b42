#include "client/doctor/gpu_probe.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>

#include "client/doctor/gpu_checks.h"
#include "client/doctor/probe_server.h"
#include "common/device/cuda/fake/fake_plugin.h"

namespace weft {
namespace {

// A probe in this process, on a CUDA that all of them share.
class LocalProbe : public Probe {
 public:
  explicit LocalProbe(const CudaPlugin* plugin) : server_(plugin, Clock::Real(), kNanosPerSecond * 5) {}
  absl::Status Send(const std::string& request) override {
    answer_ = std::async(std::launch::async, [this, request] { return server_.Answer(request); });
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Receive(Nanos) override { return answer_.get(); }

 private:
  ProbeServer server_;
  std::future<std::string> answer_;
};

// One that answers as told, then is gone.
class ScriptedProbe : public Probe {
 public:
  explicit ScriptedProbe(std::vector<std::string> answers, absl::Status then) : answers_(std::move(answers)), then_(std::move(then)) {}
  absl::Status Send(const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<std::string> Receive(Nanos) override {
    if (next_ == answers_.size()) return then_;
    return answers_[next_++];
  }

 private:
  const std::vector<std::string> answers_;
  const absl::Status then_;
  size_t next_ = 0;
};

// The fake moves bytes with the host's cores.
const TrialSizes kSmall = {1 << 16, 4 << 10, 64 << 10, 3};

struct Machine {
  explicit Machine(FakePlugin::Options options) : fake(std::move(options)), plugin(fake.plugin(nullptr)) {}
  GpuFacts Look() {
    return LookAtGpus(
        [this]() -> absl::StatusOr<std::unique_ptr<Probe>> {
          ++started;
          return std::unique_ptr<Probe>(new LocalProbe(&plugin));
        },
        kSmall);
  }
  FakePlugin fake;
  const CudaPlugin plugin;
  int started = 0;
};

TEST_CASE("gpu probe: one GPU is tried by two processes, and everything is given back") {
  Machine m({});
  const GpuFacts f = m.Look();
  CHECK(f.problem.empty());
  CHECK(m.started == 2);
  REQUIRE(f.gpus.size() == 1);
  CHECK(f.gpus[0].name == "Fake GPU");
  CHECK(f.gpus[0].problem.empty());
  CHECK(f.gpus[0].free_bytes > 0);
  CHECK(f.gpus[0].stream_memory_problem.empty());
  CHECK(f.gpus[0].stream_memory_s > 0);
  CHECK(f.gpus[0].host_copy_problem.empty());
  CHECK(f.gpus[0].to_device > 0);
  REQUIRE(f.ipc.size() == 1);
  CHECK(f.ipc[0].problem.empty());
  CHECK(f.times.problem.find("two GPUs") != std::string::npos);
  CHECK(Worst(CheckGpus(HostFacts(), f)) != Verdict::kFail);
  const FakeCuda::Books left = m.fake.cuda.books();
  CHECK(left.allocations + left.host_allocations + left.registrations + left.ipc_opened + left.streams + left.events == 0);
}

TEST_CASE("gpu probe: two GPUs are tried both ways, and transfers are timed at every size") {
  FakePlugin::Options o;
  o.cuda.device_count = 2;
  o.nccl.connect_polls = 2;
  Machine m(o);
  const GpuFacts f = m.Look();
  CHECK(m.started == 2);
  CHECK(f.ipc.size() == 2);
  for (const IpcTrial& t : f.ipc) CHECK(t.problem.empty());
  CHECK(f.times.problem == "");
  REQUIRE(f.times.sizes.size() == 5);
  CHECK(f.times.ipc_s.size() == 5);
  CHECK(f.times.nccl_s.size() == 5);
  CHECK(f.times.from == 0);
  CHECK(f.times.to == 1);
  CHECK(m.fake.nccl.comms() == 0);
  CHECK(m.fake.cuda.books().ipc_opened == 0);
}

TEST_CASE("gpu probe: what CUDA refuses is named, and the rest is tried all the same") {
  struct Case {
    const char* call;
    int nth;
    const std::string& (*problem)(const GpuFacts&);
    const char* says;
  };
  const Case cases[] = {
      {"MemInfo", 1, [](const GpuFacts& f) -> const std::string& { return f.gpus[f.gpus[0].problem.empty() ? 1 : 0].problem; }, "memory"},
      {"StreamWait32", 1, [](const GpuFacts& f) -> const std::string& { return f.gpus[0].stream_memory_problem; },
       "word of registered memory"},
      // What waits on the device by then is let go, else the memory could not be given back.
      {"StreamWrite32", 10, [](const GpuFacts& f) -> const std::string& { return f.gpus[0].stream_memory_problem; },
       "word of registered memory"},
      {"HostRegister", 1, [](const GpuFacts& f) -> const std::string& { return f.gpus[0].stream_memory_problem; },
       "registering a memory file"},
      {"IpcGetHandle", 1, [](const GpuFacts& f) -> const std::string& { return f.ipc.at(0).problem; }, "IPC handle"},
      {"IpcOpen", 1, [](const GpuFacts& f) -> const std::string& { return f.ipc.at(0).problem; }, "opening another process's memory"},
      {"DeviceCount", 1, [](const GpuFacts& f) -> const std::string& { return f.problem; }, "looking for GPUs"},
  };
  for (const Case& c : cases) {
    INFO(c.call);
    FakePlugin::Options o;
    o.cuda.device_count = 2;
    Machine m(o);
    m.fake.cuda.FailCall(c.call, c.nth, kCudaInvalidValue);
    const GpuFacts f = m.Look();
    CHECK(c.problem(f).find(c.says) != std::string::npos);
    CHECK(Worst(CheckGpus(HostFacts(), f)) == Verdict::kFail);
    if (f.problem.empty()) CHECK(f.gpus[1].host_copy_problem.empty());
    CHECK(m.fake.cuda.books().registrations == 0);
  }
}

TEST_CASE("gpu probe: without NCCL or peer access the transfer times are left out, with the reason") {
  FakePlugin::Options o;
  o.cuda.device_count = 2;
  o.nccl_problem = "libnccl.so.2 is not installed";
  Machine without_nccl(o);
  const GpuFacts f = without_nccl.Look();
  CHECK(f.nccl_problem == "libnccl.so.2 is not installed");
  CHECK(f.times.problem.find("no NCCL") != std::string::npos);
  o.nccl_problem = "";
  o.cuda.peer_access = false;
  Machine without_peers(o);
  const GpuFacts g = without_peers.Look();
  CHECK(g.ipc.empty());
  CHECK(g.times.problem.find("no two GPUs") != std::string::npos);
}

TEST_CASE("gpu probe: a library that is not there, a hang and a crash are findings") {
  ProbeServer absent(absl::NotFoundError("weft's CUDA library is not there"), Clock::Real());
  CHECK(absent.Answer(R"({"do": "facts"})").find("not there") != std::string::npos);
  CHECK(absent.Answer("garbage").find("error") != std::string::npos);

  const std::string facts = R"({"driver": 13000, "runtime": 13000, "nccl": 22809, "gpus": [{"name": "G", "bytes": 1}], "peers": [[0]]})";
  const auto look = [&](std::vector<std::string> answers, absl::Status then) {
    return LookAtGpus([&]() -> absl::StatusOr<std::unique_ptr<Probe>> { return std::unique_ptr<Probe>(new ScriptedProbe(answers, then)); });
  };
  const GpuFacts gone = look({}, absl::UnavailableError("was killed by signal 11"));
  CHECK(gone.problem.find("signal 11") != std::string::npos);
  CHECK(gone.died);
  CHECK(CheckGpus(HostFacts(), gone).at(0).remedy.find("dmesg") != std::string::npos);
  CHECK_FALSE(look({R"({"error": "no GPU"})"}, absl::OkStatus()).died);
  const GpuFacts hung = look({facts}, absl::DeadlineExceededError("it does not answer"));
  REQUIRE(hung.gpus.size() == 1);
  CHECK(hung.gpus[0].problem == "take: it does not answer within 60.000 s");
  const GpuFacts crashed = look({facts, R"({"free": 5})"}, absl::UnavailableError("was killed by signal 11"));
  CHECK(crashed.gpus[0].free_bytes == 5);
  CHECK(crashed.gpus[0].stream_memory_problem == "stream_memory: was killed by signal 11");
  CHECK(crashed.gpus[0].host_copy_problem == crashed.gpus[0].stream_memory_problem);
  REQUIRE(crashed.ipc.size() == 1);
  CHECK(crashed.ipc[0].problem == crashed.gpus[0].stream_memory_problem);
  CHECK(look({"[]"}, absl::OkStatus()).problem.find("JSON") != std::string::npos);
  CHECK(look({R"({"gpus": 7})"}, absl::OkStatus()).problem.find("cannot be read") != std::string::npos);
}

}  // namespace
}  // namespace weft
