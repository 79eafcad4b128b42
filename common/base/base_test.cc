#include <catch2/catch.hpp>
#include <set>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/parse.h"

namespace weft {
namespace {

TEST_CASE("names: allowed characters and length") {
  CHECK(CheckName("node", "a_B-9.x").ok());
  CHECK_FALSE(CheckName("node", "").ok());
  CHECK_FALSE(CheckName("node", "a b").ok());
  CHECK_FALSE(CheckName("node", "a/b").ok());
  CHECK(CheckName("node", std::string(63, 'x')).ok());
  CHECK_FALSE(CheckName("node", std::string(64, 'x')).ok());
  CHECK(std::string(CheckName("actor", "a b").message()).find("actor") != std::string::npos);
}

TEST_CASE("booleans: eight words, nothing else") {
  for (const char* t : {"true", "1", "yes", "on", "ON", "True"}) CHECK(*ParseBool("--x", t));
  for (const char* t : {"false", "0", "no", "off", "OFF"}) CHECK_FALSE(*ParseBool("--x", t));
  for (const char* t : {"", "2", "t", "yess", " on"}) CHECK_FALSE(ParseBool("--x", t).ok());
}

TEST_CASE("times: units, and nothing negative or non-finite") {
  CHECK(*ParseSeconds("t", "1.5") == 1.5);
  CHECK(*ParseSeconds("t", "10ms") == Approx(0.01));
  CHECK(*ParseSeconds("t", "2m") == 120);
  for (const char* t : {"-1", "nan", "inf", "1x", "", "ms", "1e999"}) CHECK_FALSE(ParseSeconds("t", t).ok());
}

TEST_CASE("sizes: units and overflow") {
  CHECK(*ParseBytes("b", "12") == 12);
  CHECK(*ParseBytes("b", "3MiB") == 3u << 20);
  CHECK(*ParseBytes("b", "1G") == 1u << 30);
  for (const char* t : {"-1", "1.5", "1XB", "99999999999999999999", "9999999TiB"}) CHECK_FALSE(ParseBytes("b", t).ok());
  CHECK(FormatBytes(1536) == "1.5 KiB");
}

TEST_CASE("seconds to nanoseconds saturate") {
  CHECK(FromSeconds(1e300) == std::numeric_limits<Nanos>::max());
  CHECK(FromSeconds(0.010) == 10'000'000);
  CHECK(FromSeconds(std::numeric_limits<double>::quiet_NaN()) == 0);
}

TEST_CASE("incarnations differ, the host id does not") {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) seen.insert(NewIncarnation());
  CHECK(seen.size() == 100);
  CHECK(LocalHostId() == LocalHostId());
}

}  // namespace
}  // namespace weft
