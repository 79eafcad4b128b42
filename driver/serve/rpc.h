#pragma once

// Small things that every handler needs.

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace weft {

// gRPC carries a status in HTTP/2 trailers, of which a peer takes 8 KiB by default and otherwise drops the whole status: longer
// messages are cut at the end of a line, and say how much is missing.
grpc::Status ToGrpc(const absl::Status& status);

// Unauthenticated unless the call carries the driver's join token as metadata "weft-token". An empty `token` lets all pass.
absl::Status CheckToken(const grpc::ServerContext& context, const std::string& token);

// A value that some thread sets once and one waits for. Shared by both.
template <typename T>
class Promise {
 public:
  void Set(T value) {
    MutexLock lock(&mu_);
    if (!value_.has_value()) value_ = std::move(value);
    cv_.NotifyAll();
  }
  // False when `timeout` passed first.
  bool WaitFor(std::chrono::milliseconds timeout) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    MutexLock lock(&mu_);
    while (!value_.has_value()) {
      const auto left = until - std::chrono::steady_clock::now();
      if (left.count() <= 0) return false;
      cv_.WaitFor(&mu_, std::chrono::duration_cast<std::chrono::nanoseconds>(left));
    }
    return true;
  }
  // Pre: WaitFor returned true; once.
  T Take() {
    MutexLock lock(&mu_);
    return std::move(*value_);
  }

 private:
  Mutex mu_;
  CondVar cv_;
  std::optional<T> value_ WEFT_GUARDED_BY(mu_);
};

// Waits until the promise is kept; false when the client went away before.
template <typename T>
bool WaitFor(Promise<T>* promise, const grpc::ServerContext& context) {
  // A blocking handler learns of a cancellation only by asking.
  while (!promise->WaitFor(std::chrono::milliseconds(50))) {
    if (context.IsCancelled()) return false;
  }
  return true;
}

}  // namespace weft
