#include "worker/session/driver_store.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "worker/session/grpc_status.h"

namespace weft {
namespace {

// The driver answers late by itself; this is for a driver that does not answer at all.
constexpr auto kGrace = std::chrono::seconds(2);

}  // namespace

absl::Status DriverStore::Set(const std::string& key, const std::string& value) {
  grpc::ClientContext context;
  if (!token_.empty()) context.AddMetadata("weft-token", token_);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  v1::StoreSetRequest request;
  request.set_graph(graph_);
  request.set_attempt(attempt_);
  request.set_key(key);
  request.set_value(value);
  v1::StoreSetReply reply;
  return FromGrpc(stub_->StoreSet(&context, request, &reply), absl::StrCat("driver's store, set ", key));
}

absl::StatusOr<std::vector<std::string>> DriverStore::Get(const std::vector<std::string>& keys, Nanos timeout) {
  grpc::ClientContext context;
  if (!token_.empty()) context.AddMetadata("weft-token", token_);
  const Nanos bounded = std::clamp<Nanos>(timeout, 0, 3600 * kNanosPerSecond);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(bounded) + kGrace);
  v1::StoreGetRequest request;
  request.set_graph(graph_);
  request.set_attempt(attempt_);
  for (const std::string& k : keys) request.add_key(k);
  request.set_timeout_s(ToSeconds(bounded));
  v1::StoreGetReply reply;
  const absl::Status s = FromGrpc(stub_->StoreGet(&context, request, &reply), absl::StrCat("driver's store, get of ", keys.size(), " keys"));
  if (!s.ok()) return s;
  if (reply.value_size() != static_cast<int>(keys.size())) {
    return absl::InternalError(absl::StrCat("driver's store: ", reply.value_size(), " values came for ", keys.size(), " keys"));
  }
  return std::vector<std::string>(reply.value().begin(), reply.value().end());
}

}  // namespace weft
