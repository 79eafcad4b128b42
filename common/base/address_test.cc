#include "common/base/address.h"

#include <catch2/catch.hpp>

namespace weft {
namespace {

TEST_CASE("address: what is loopback") {
  for (const char* text : {"127.0.0.1:0", "127.9.9.9:80", "[::1]:0", "localhost:1", "unix:/tmp/x"}) {
    INFO(text);
    CHECK(ParseAddress("address", text, 0)->loopback);
  }
  for (const char* text : {"0.0.0.0:0", "[::]:0", "127.0.0.1.example.org:1", "gpu7:5000"}) {
    INFO(text);
    CHECK_FALSE(ParseAddress("address", text, 0)->loopback);
  }
}

TEST_CASE("address: host and port") {
  const Address a = *ParseAddress("address", "gpu7.example.org:65535", 1);
  CHECK((a.host == "gpu7.example.org" && a.port == 65535 && !a.is_unix));
  const Address b = *ParseAddress("address", "[fe80::1%eth0]:7000", 1);
  CHECK((b.host == "fe80::1%eth0" && b.port == 7000));
  const Address c = *ParseAddress("address", "unix:/run/weft.sock", 1);
  CHECK((c.host == "/run/weft.sock" && c.port == 0 && c.is_unix));
}

TEST_CASE("address: what nobody could listen at or dial is refused, with its name and text") {
  for (const char* text : {"", ":", ":7000", "localhost", "127.0.0.1:", "h:port", "h:-1", "h:65536", "h:1 ", "h:+1", "::1:7000", "[h]:7000", "[]:7000", "unix:", "http://h:80",
                           "dns:///h:80", "a b:80", "[::1:80", "h:0x50"}) {
    INFO(text);
    const auto a = ParseAddress("--driver", text, 0);
    REQUIRE(absl::IsInvalidArgument(a.status()));
    CHECK(std::string(a.status().message()) == "--driver \"" + std::string(text) + "\" is not host:port, [ipv6]:port or unix:/path");
  }
  CHECK(ParseAddress("address", "h:0", 0).ok());
  CHECK_FALSE(ParseAddress("address", "h:0", 1).ok());
  CHECK(ParseAddress("address", std::string(5000, 'x'), 1).status().message().size() < 200);
}

}  // namespace
}  // namespace weft
