#include "client/doctor/probe.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

namespace weft {
namespace {

Nanos In(double seconds) { return Clock::Real()->Now() + FromSeconds(seconds); }

absl::StatusOr<std::string> AskShell(
    const std::string& script, double seconds, std::function<bool()> cancelled = [] { return false; }) {
  const auto probe = StartProbeProcess({"/bin/sh", "-c", script}, cancelled);
  if (!probe.ok()) return probe.status();
  const absl::Status sent = (*probe)->Send("{}");
  if (!sent.ok()) return sent;
  return (*probe)->Receive(In(seconds));
}

TEST_CASE("probe: how the process ended is the error; one that hangs is given up and killed") {
  const auto ended = AskShell("exit 3", 20);
  CHECK(absl::IsUnavailable(ended.status()));
  CHECK(std::string(ended.status().message()).find("exited with code 3") != std::string::npos);
  const auto crashed = AskShell("kill -11 $$", 20);
  CHECK(absl::IsUnavailable(crashed.status()));
  CHECK(std::string(crashed.status().message()).find("signal 11") != std::string::npos);
  const Nanos begin = Clock::Real()->Now();
  CHECK(absl::IsDeadlineExceeded(AskShell("exec sleep 1000", 0.1).status()));
  CHECK(absl::IsCancelled(AskShell("exec sleep 1000", 500, [] { return true; }).status()));
  CHECK(Clock::Real()->Now() - begin < 20 * kNanosPerSecond);
  const auto absent = StartProbeProcess({"/nonexistent/program"}, [] { return false; });
  REQUIRE(absent.ok());
  CHECK(absl::IsUnavailable((*absent)->Receive(In(20)).status()));
}

TEST_CASE("probe: requests are answered in order until the other end is closed") {
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
  std::thread server([&] { ServeProbe(fds[1], [](const std::string& r) { return "<" + r + ">"; }); });
  for (const std::string message : {"a", "bc"}) {
    REQUIRE(send(fds[0], message.data(), message.size(), 0) == static_cast<ssize_t>(message.size()));
    char reply[16];
    const ssize_t n = recv(fds[0], reply, sizeof(reply), 0);
    CHECK(std::string(reply, n > 0 ? static_cast<size_t>(n) : 0) == "<" + message + ">");
  }
  close(fds[0]);
  server.join();
  close(fds[1]);
}

}  // namespace
}  // namespace weft
