#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/cli/cluster_dir.h"
#include "client/cli/process.h"
#include "client/cli/supervisor.h"
#include "client/cli/test_dir.h"

namespace weft {
namespace {

// The environment that addresses are resolved in, put back at the end.
class Environment {
 public:
  Environment() {
    setenv("XDG_RUNTIME_DIR", dir_.path().c_str(), 1);
    unsetenv("WEFT_ADDRESS");
    unsetenv("WEFT_CLUSTER");
  }
  ~Environment() {
    for (const char* name : {"XDG_RUNTIME_DIR", "WEFT_ADDRESS", "WEFT_CLUSTER"}) unsetenv(name);
  }
  std::string Root() const { return dir_.File("weft"); }

 private:
  TestDir dir_;
};

// A process that holds the cluster as a supervisor does, until Kill.
class OtherSupervisor {
 public:
  OtherSupervisor(const std::string& name, const std::string& address) {
    int fds[2];
    REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      auto dir = ClusterDir::Claim(name);
      if (dir.ok()) std::ofstream(dir->File("address")) << address << "\n";
      const char answer = dir.ok() ? '+' : '-';
      if (write(fds[1], &answer, 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(fds[1]);
    char answer = 0;
    REQUIRE(read(fds[0], &answer, 1) == 1);
    REQUIRE(answer == '+');
    close(fds[0]);
  }
  ~OtherSupervisor() { Kill(); }
  void Kill() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST_CASE("address: flag, then environment, then the cluster's file") {
  Environment env;
  const auto none = ResolveAddress("", "");
  CHECK(none.status().code() == absl::StatusCode::kUnavailable);
  CHECK(none.status().message().find("weft up") != absl::string_view::npos);

  OtherSupervisor other("default", "127.0.0.1:77");
  CHECK(*ResolveAddress("", "") == "127.0.0.1:77");
  setenv("WEFT_ADDRESS", "127.0.0.1:88", 1);
  CHECK(*ResolveAddress("", "") == "127.0.0.1:88");
  CHECK(*ResolveAddress("127.0.0.1:99", "") == "127.0.0.1:99");
  // Named outright, a cluster is meant even so.
  CHECK(*ResolveAddress("", "default") == "127.0.0.1:77");
  unsetenv("WEFT_ADDRESS");
  setenv("WEFT_CLUSTER", "two", 1);
  CHECK(ResolveAddress("", "").status().message().find("\"two\"") != absl::string_view::npos);
  CHECK(ResolveAddress("", "../x").status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ResolveAddress("", "..").status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a cluster's name is taken once, and free again when its supervisor was killed") {
  Environment env;
  OtherSupervisor other("c", "127.0.0.1:77");
  const auto refused = ClusterDir::Claim("c");
  CHECK(refused.status().code() == absl::StatusCode::kAlreadyExists);
  CHECK(refused.status().message().find(absl::StrCat("pid ", other.pid())) != absl::string_view::npos);
  CHECK(refused.status().message().find("127.0.0.1:77") != absl::string_view::npos);
  CHECK(RemoveStaleCluster("c").code() == absl::StatusCode::kFailedPrecondition);
  auto state = LookUpCluster("c");
  REQUIRE(state.ok());
  CHECK(state->running);
  CHECK(state->pid == other.pid());

  other.Kill();
  state = LookUpCluster("c");
  REQUIRE(state.ok());
  CHECK(state->exists);
  CHECK_FALSE(state->running);
  CHECK(ResolveAddress("", "c").status().code() == absl::StatusCode::kUnavailable);
  {
    auto claimed = ClusterDir::Claim("c");
    REQUIRE(claimed.ok());
    CHECK(ReadFirstLine(claimed->File("address")).empty());
    CHECK(std::filesystem::exists(env.Root() + "/c"));
  }
  CHECK_FALSE(std::filesystem::exists(env.Root()));
}

TEST_CASE("what a killed cluster left is removed, others stay") {
  Environment env;
  OtherSupervisor stays("stays", "127.0.0.1:1");
  OtherSupervisor killed("killed", "127.0.0.1:2");
  killed.Kill();
  CHECK(RemoveStaleCluster("killed").ok());
  CHECK(RemoveStaleCluster("never-was").ok());
  CHECK_FALSE(std::filesystem::exists(env.Root() + "/killed"));
  CHECK(LookUpCluster("stays")->running);
}

TEST_CASE("a directory that others may write to is refused") {
  Environment env;
  std::filesystem::create_directories(env.Root());
  chmod(env.Root().c_str(), 0777);
  CHECK(ClusterDir::Claim("c").status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(ResolveAddress("", "c").status().code() == absl::StatusCode::kFailedPrecondition);
  std::filesystem::remove(env.Root());
  std::filesystem::create_directory_symlink("/tmp", env.Root());
  CHECK(ClusterDir::Claim("c").status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("spawn: output, exit, and a program that is not there") {
  TestDir dir;
  const int out = open(dir.File("out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  SpawnOptions options;
  options.argv = {"/bin/sh", "-c", "echo hello; exit 3"};
  options.stdout_fd = out;
  auto pid = Spawn(options);
  REQUIRE(pid.ok());
  int status = 0;
  REQUIRE(waitpid(*pid, &status, 0) == *pid);
  close(out);
  CHECK(DescribeExit(status) == "exited with code 3");
  CHECK(ReadFirstLine(dir.File("out")) == "hello");
  options.argv = {dir.File("absent")};
  CHECK(Spawn(options).status().message().find("No such file") != absl::string_view::npos);
}

TEST_CASE("spawn: a child dies with its parent, however the parent dies") {
  int fds[2];
  REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
  const pid_t parent = fork();
  if (parent == 0) {
    SpawnOptions options;
    // Holds the pipe open as long as it lives.
    options.argv = {"/bin/sh", "-c", "echo x; exec sleep 1000"};
    options.stdout_fd = fds[1];
    if (!Spawn(options).ok()) _exit(1);
    for (;;) pause();
  }
  close(fds[1]);
  char buffer[8];
  REQUIRE(read(fds[0], buffer, sizeof(buffer)) > 0);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  // End of file only when the grandchild is gone too.
  CHECK(read(fds[0], buffer, sizeof(buffer)) == 0);
  close(fds[0]);
}

TEST_CASE("daemons are looked for where WEFT_BIN_DIR says") {
  TestDir dir;
  setenv("WEFT_BIN_DIR", dir.path().c_str(), 1);
  const auto absent = FindDaemon("weft-driver");
  CHECK(absent.status().message().find(dir.path()) != absl::string_view::npos);
  std::ofstream(dir.File("weft-driver")) << "#!/bin/sh\n";
  chmod(dir.File("weft-driver").c_str(), 0755);
  CHECK(*FindDaemon("weft-driver") == dir.File("weft-driver"));
  unsetenv("WEFT_BIN_DIR");
}

TEST_CASE("backoff doubles up to a limit and starts over after a child that lived") {
  Backoff backoff;
  CHECK(backoff.Next(0) == Backoff::kFirst);
  CHECK(backoff.Next(0) == 2 * Backoff::kFirst);
  CHECK(backoff.quick_deaths() == 2);
  for (int i = 0; i < 100; ++i) CHECK(backoff.Next(0) <= Backoff::kMost);
  CHECK(backoff.Next(0) == Backoff::kMost);
  CHECK(backoff.Next(Backoff::kLived) == Backoff::kFirst);
  CHECK(backoff.quick_deaths() == 1);
}

TEST_CASE("supervisor: a driver that cannot start is reported with its log, and nothing is left") {
  Environment env;
  TestDir dir;
  setenv("WEFT_BIN_DIR", dir.path().c_str(), 1);
  for (const char* name : {"weft-driver", "weft-worker"}) {
    std::ofstream(dir.File(name)) << "#!/bin/sh\necho cannot bind to 1.2.3.4 >&2\nexit 7\n";
    chmod(dir.File(name).c_str(), 0755);
  }
  sigset_t signals, before;
  sigemptyset(&signals);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals, s);
  sigprocmask(SIG_BLOCK, &signals, &before);
  {
    auto cluster = ClusterDir::Claim("c");
    REQUIRE(cluster.ok());
    ClusterConfig config;
    config.name = "c";
    config.workers = 2;
    config.device = "cpu";
    config.listen = "127.0.0.1:0";
    config.log_level = "info";
    bool ready = false;
    const absl::Status status = Supervisor(config, *cluster).Run([&](const std::string&) { ready = true; });
    CHECK_FALSE(ready);
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(status.message().find("exited with code 7") != absl::string_view::npos);
    CHECK(status.message().find("cannot bind to 1.2.3.4") != absl::string_view::npos);
  }
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);  // no child is left
  CHECK_FALSE(std::filesystem::exists(env.Root()));
  sigprocmask(SIG_SETMASK, &before, nullptr);
  unsetenv("WEFT_BIN_DIR");
}

}  // namespace
}  // namespace weft
