#include "common/base/token_file.h"

#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

namespace weft {
namespace {

// A file with that content, gone with the object.
class TokenFixture {
 public:
  explicit TokenFixture(const std::string& content) {
    path_ = "/tmp/weft-token-XXXXXX";
    if (const char* dir = getenv("TEST_TMPDIR")) path_ = std::string(dir) + "/weft-token-XXXXXX";
    const int fd = mkstemp(path_.data());
    REQUIRE(fd >= 0);
    REQUIRE(write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size()));
    close(fd);
  }
  ~TokenFixture() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string Refusal(const std::string& path) {
  const auto token = ReadTokenFile("--token-file", path);
  REQUIRE(token.status().code() == absl::StatusCode::kInvalidArgument);
  const std::string message(token.status().message());
  CHECK(message.find("--token-file " + path) != std::string::npos);
  return message;
}

TEST_CASE("token file: the first line, whatever ends it") {
  for (const char* content : {"s3cret", "s3cret\n", "s3cret\r\n", "s3cret\nmore \xff\n"}) {
    const TokenFixture file(content);
    const auto token = ReadTokenFile("--token-file", file.path());
    REQUIRE(token.ok());
    CHECK(*token == "s3cret");
  }
  const TokenFixture longest(std::string(4096, 'x') + "\n");
  CHECK(ReadTokenFile("--token-file", longest.path())->size() == 4096);
}

TEST_CASE("token file: what is no token is refused, and never shown") {
  for (const std::string& content : {std::string(), std::string("\nsecond"), std::string("\r\n")}) {
    const TokenFixture file(content);
    CHECK(Refusal(file.path()).find("no token in its first line") != std::string::npos);
  }
  for (const std::string& content : {std::string("two words"), std::string("tab\there"), std::string("nul\0here", 8), std::string("\xc3\xa4")}) {
    const TokenFixture file(content);
    const std::string message = Refusal(file.path());
    CHECK(message.find("printable ASCII") != std::string::npos);
    CHECK(message.find("words") == std::string::npos);
  }
  const TokenFixture endless(std::string(5000, 'x'));
  CHECK(Refusal(endless.path()).find("longer than 4096") != std::string::npos);
  CHECK(Refusal("/nonexistent/token").find("No such file") != std::string::npos);
  CHECK(Refusal("/").find("is a directory") != std::string::npos);
  CHECK(CheckTokenText("token", "").ok());
}

}  // namespace
}  // namespace weft
