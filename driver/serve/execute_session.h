#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

#include "absl/status/status.h"
#include "driver/cluster/coordinator.h"
#include "weft/v1/client_service.grpc.pb.h"

namespace weft {

using ExecuteStream = grpc::ServerReaderWriter<v1::ExecuteReply, v1::ExecuteRequest>;

// One client's Execute call, from its opening to its end: reads requests on the caller's thread, writes replies on one of its own. The
// client has at most max_in_flight results that it has not read; more submits of its own wait, those of others do not.
// The status is the call's: why it could not be opened, or what the client did that no session survives.
absl::Status RunExecuteSession(Coordinator* coordinator, grpc::ServerContext* context, ExecuteStream* stream);

}  // namespace weft
