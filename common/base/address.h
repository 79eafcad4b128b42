#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace weft {

// Where a driver listens or is dialled.
struct Address {
  bool is_unix = false;
  std::string host;       // or the socket's path
  int port = 0;           // 0 with is_unix
  bool loopback = false;  // no other host gets there; also is_unix
};

// "host:port", "[ipv6]:port" or "unix:/path", with a port of at least `least_port`: 0 where one may be chosen (to listen), 1 where it is dialled.
// InvalidArgument names `what` and has the text. Whether anyone is there is found out by dialling.
absl::StatusOr<Address> ParseAddress(const std::string& what, const std::string& text, int least_port);

}  // namespace weft
