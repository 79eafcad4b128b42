#pragma once

#include <string>

#include "weft/v1/client_service.pb.h"

namespace weft {

// Who waits for what in words, one line a lane that is not idle and one a worker that does not answer:
//   w3 recv0: RECV make0:0 -> square0:0 of execution 5 waits for w0 to send, for 3.1 s
// With `graph` set only its views. "" when nothing runs and nobody waits.
std::string InspectText(const v1::InspectReply& reply, const std::string& graph = "");

}  // namespace weft
