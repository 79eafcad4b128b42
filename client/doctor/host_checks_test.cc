#include "client/doctor/host_checks.h"

#include <catch2/catch.hpp>

#include "client/doctor/nccl_interface.h"

namespace weft {
namespace {

HostFacts GoodHost() {
  HostFacts f;
  f.kernel = "6.1.0";
  f.cpus = 8;
  f.memory_available = uint64_t{16} << 30;
  f.shm_bytes = f.shm_free = uint64_t{8} << 30;
  f.memlock = f.memlock_hard = HostFacts::kUnlimited;
  f.open_files = f.open_files_hard = 65536;
  f.interfaces = {{"lo", true, true, {"127.0.0.1"}}, {"docker0", true, false, {"172.17.0.1"}}, {"eth0", true, false, {"10.0.0.2"}}};
  f.default_route = "eth0";
  f.runtime_dir = "/run/user/1000/weft";
  f.driver_path = "/opt/weft/bin/weft-driver";
  f.worker_path = "/opt/weft/bin/weft-worker";
  return f;
}

Finding Named(const Findings& findings, const std::string& name) {
  for (const Finding& f : findings) {
    if (f.name == name) return f;
  }
  FAIL("no finding \"" << name << "\"");
  return {};
}

bool Says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("host checks: nothing is wrong with a good host, with a GPU and without") {
  for (const bool gpu : {false, true}) {
    for (const Finding& f : CheckHost(GoodHost(), gpu)) {
      INFO(f.name << ": " << f.seen);
      CHECK(f.verdict == Verdict::kOk);
      CHECK(f.remedy.empty());
      CHECK_FALSE(f.seen.empty());
    }
  }
}

TEST_CASE("host checks: what is missing fails by name, with the reason and a remedy") {
  struct Case {
    const char* name;
    void (*spoil)(HostFacts*);
    const char* says;
  };
  const Case cases[] = {
      {"system calls", [](HostFacts* f) { f->pidfd_error = "Function not implemented"; }, "pidfd_open: Function not implemented"},
      {"system calls", [](HostFacts* f) { f->memfd_error = "Operation not permitted"; }, "memfd_create: Operation not permitted"},
      {"/dev/shm", [](HostFacts* f) { f->shm_error = "No such file or directory"; }, "No such file"},
      {"open files", [](HostFacts* f) { f->open_files = 64; }, "limit 64"},
      {"network interface", [](HostFacts* f) { f->interfaces[0].up = false; }, "loopback"},
      {"network interface", [](HostFacts* f) { f->env["NCCL_SOCKET_IFNAME"] = "ens9"; }, "NCCL_SOCKET_IFNAME=ens9"},
      {"runtime directory", [](HostFacts* f) { f->runtime_error = "others may write to it"; }, "others may write"},
      {"weft-driver", [](HostFacts* f) { f->driver_error = "weft-driver was not found"; }, "was not found"},
      {"weft-worker", [](HostFacts* f) { f->worker_error = "weft-worker was not found"; }, "was not found"},
  };
  for (const Case& c : cases) {
    HostFacts f = GoodHost();
    c.spoil(&f);
    const Findings findings = CheckHost(f, true);
    const Finding found = Named(findings, c.name);
    INFO(found.name << ": " << found.seen);
    CHECK(found.verdict == Verdict::kFail);
    CHECK(Says(found.seen, c.says));
    CHECK_FALSE(found.remedy.empty());
    CHECK(Worst(findings) == Verdict::kFail);
    // And nothing else is blamed.
    CHECK(std::count_if(findings.begin(), findings.end(), [](const Finding& x) { return x.verdict != Verdict::kOk; }) == 1);
  }
}

TEST_CASE("host checks: what only NCCL needs is no matter without a GPU") {
  HostFacts f = GoodHost();
  f.shm_bytes = f.shm_free = 64 << 20;
  f.memlock = 8 << 20;
  CHECK(Named(CheckHost(f, true), "/dev/shm").verdict == Verdict::kWarn);
  CHECK(Says(Named(CheckHost(f, true), "/dev/shm").remedy, "--shm-size"));
  CHECK(Worst(CheckHost(f, false)) == Verdict::kOk);
  // Locked memory counts where a network card reads it.
  CHECK(Named(CheckHost(f, true), "locked memory").verdict == Verdict::kSkipped);
  f.infiniband = {"mlx5_0"};
  CHECK(Named(CheckHost(f, true), "locked memory").verdict == Verdict::kWarn);
  f.shm_error = "No such file or directory";
  CHECK(Named(CheckHost(f, false), "/dev/shm").verdict == Verdict::kSkipped);
}

TEST_CASE("host checks: an interface that is not the default route's is worth a word, unless it was asked for") {
  HostFacts f = GoodHost();
  f.interfaces.insert(f.interfaces.begin(), {"aux0", true, false, {"192.168.9.1"}});
  const Finding found = Named(CheckHost(f, true), "network interface");
  CHECK(found.verdict == Verdict::kWarn);
  CHECK(Says(found.remedy, "NCCL_SOCKET_IFNAME=eth0"));
  f.env["NCCL_SOCKET_IFNAME"] = "aux0";
  CHECK(Named(CheckHost(f, true), "network interface").verdict == Verdict::kOk);
  CHECK(Named(CheckHost(f, false), "network interface").verdict == Verdict::kOk);
}

TEST_CASE("nccl interface: prefixes, whole names, exclusion, and the order without a setting") {
  std::vector<NetInterface> i = {{"lo", true, true, {"127.0.0.1"}},       {"docker0", true, false, {"172.17.0.1"}},
                                 {"eth0", false, false, {"10.0.0.2"}},    {"eth1", true, false, {"10.0.1.2"}},
                                 {"eth10", true, false, {"10.0.2.2"}},    {"ib0", true, false, {}},
                                 {"virbr0", true, false, {"192.168.1.1"}}};
  using Names = std::vector<std::string>;
  CHECK(NcclInterface(i, "").names == Names{"eth1"});
  CHECK(NcclInterface(i, "eth").names == Names{"eth1", "eth10"});
  CHECK(NcclInterface(i, "=eth1").names == Names{"eth1"});
  CHECK(NcclInterface(i, "^eth,lo").names == Names{"docker0", "virbr0"});
  CHECK(NcclInterface(i, "^=eth1,docker0,virbr0").names == Names{"lo", "eth10"});
  CHECK(NcclInterface(i, "eth0").names.empty());  // it is down
  i[5].addresses = {"10.1.0.1"};
  CHECK(NcclInterface(i, "").names == Names{"ib0"});
  i.erase(i.begin() + 2, i.begin() + 6);
  CHECK(NcclInterface(i, "").names == Names{"docker0"});
  i.resize(1);
  CHECK(NcclInterface(i, "").names == Names{"lo"});
  CHECK(NcclInterface({}, "").names.empty());
}

TEST_CASE("environment: each setting that matters is named with its value; harmless ones are listed") {
  HostFacts f = GoodHost();
  f.env = {{"NCCL_NVLS_ENABLE", "0"},
           {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
           {"NCCL_P2P_DISABLE", "0"},
           {"NCCL_IB_DISABLE", "1"},
           {"HOME", "/root"}};
  Findings found = CheckGpuEnvironment(f);
  REQUIRE(found.size() == 1);
  CHECK(found[0].verdict == Verdict::kOk);
  CHECK(Says(found[0].seen, "NCCL_NVLS_ENABLE=0"));
  CHECK_FALSE(Says(found[0].seen, "HOME"));

  f.env["NCCL_P2P_DISABLE"] = "1";
  f.env["CUDA_DEVICE_MAX_CONNECTIONS"] = "1";
  f.env["CUDA_LAUNCH_BLOCKING"] = "1";
  f.infiniband = {"mlx5_0"};
  found = CheckGpuEnvironment(f);
  REQUIRE(found.size() == 4);
  CHECK(Worst(found) == Verdict::kFail);
  std::string all;
  for (const Finding& x : found) {
    all += x.seen + "\n";
    CHECK_FALSE(x.remedy.empty());
  }
  for (const char* part : {"NCCL_P2P_DISABLE=1", "CUDA_DEVICE_MAX_CONNECTIONS=1", "CUDA_LAUNCH_BLOCKING=1", "NCCL_IB_DISABLE=1"})
    CHECK(Says(all, part));
}

TEST_CASE("host facts: routes and the driver's version are read from their files") {
  CHECK(DefaultRouteOf("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n"
                       "eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n"
                       "wlan0\t00000000\t0100000A\t0003\t0\t0\t600\t00000000\t0\n"
                       "eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\n") == "eth0");
  CHECK(DefaultRouteOf("").empty());
  CHECK(NvidiaDriverOf(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version:  gcc version 12.2.0\n") ==
        "580.159.04");
  CHECK(NvidiaDriverOf("").empty());
}

TEST_CASE("host facts: this machine has what every machine has that runs this test") {
  const HostFacts f = ReadHostFacts();
  CHECK(f.pidfd_error.empty());
  CHECK(f.memfd_error.empty());
  CHECK_FALSE(f.kernel.empty());
  CHECK(f.cpus > 0);
  CHECK(f.open_files > 0);
  CHECK(f.memory_available > 0);
  CHECK(f.env.count("PATH") == 1);
  // Another root has none of the files, and limits and calls are the process's.
  const HostFacts empty = ReadHostFacts("/nonexistent");
  CHECK_FALSE(empty.shm_error.empty());
  CHECK_FALSE(empty.nvidia_device);
  CHECK(empty.kernel == f.kernel);
}

TEST_CASE("report: a line for each, the remedy below it, counts at the end") {
  const std::string text =
      ReportText({Ok("cores", "8"), Warn("/dev/shm", "64 MiB", "more"), Fail("CUDA", "none", "install it"), Skipped("GPU", "none")});
  CHECK(Says(text, "ok       cores     8\n"));
  CHECK(Says(text, "warn     /dev/shm  64 MiB\n         do: more\n"));
  CHECK(Says(text, "fail     CUDA      none\n         do: install it\n"));
  CHECK(Says(text, "1 ok, 1 warning, 1 failure, 1 skipped\n"));
  CHECK(Worst({Ok("a", "b"), Skipped("a", "b")}) == Verdict::kOk);
  CHECK(Worst({Warn("a", "b", "c"), Ok("a", "b")}) == Verdict::kWarn);
}

}  // namespace
}  // namespace weft
