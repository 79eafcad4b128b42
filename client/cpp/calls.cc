#include "client/cpp/calls.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft {

CallSet::Call::Call(CallSet* set, double timeout_s) : set_(set) {
  if (std::isfinite(timeout_s)) {
    // A year stands for "longer than anything", and does not overflow.
    const double bounded = std::min(std::max(timeout_s, 0.0), 365.0 * 86400);
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::duration<double>(bounded)));
  }
  MutexLock lock(&set_->mu_);
  if (!set_->token_.empty()) context_.AddMetadata("weft-token", set_->token_);
  set_->contexts_.insert(&context_);
  if (set_->cancelled_) context_.TryCancel();
}

CallSet::Call::~Call() {
  MutexLock lock(&set_->mu_);
  set_->contexts_.erase(&context_);
}

void CallSet::SetToken(const std::string& token) {
  MutexLock lock(&mu_);
  token_ = token;
}

void CallSet::CancelAll() {
  MutexLock lock(&mu_);
  cancelled_ = true;
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
}

bool CallSet::cancelled() const {
  MutexLock lock(&mu_);
  return cancelled_;
}

absl::Status FromGrpc(const grpc::Status& status, const std::string& address) {
  if (status.ok()) return absl::OkStatus();
  std::string message = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      message = absl::StrCat("driver at ", address, " is not reachable: ", message);
      break;
    case grpc::StatusCode::UNIMPLEMENTED:
      message = absl::StrCat("what answers at ", address, " is no weft driver, or an older one: ", message);
      break;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      message = absl::StrCat("driver at ", address, ": ", message);
      break;
    case grpc::StatusCode::CANCELLED:
      if (message.empty() || absl::EqualsIgnoreCase(message, "cancelled")) message = "interrupted";  // gRPC's own word for it
      break;
    default:
      break;
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), message);
}

}  // namespace weft
