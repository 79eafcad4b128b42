#pragma once

// Shared by the client's calls: their contexts, so that all can be cancelled, and how gRPC's statuses read as absl's.

#include <memory>
#include <set>
#include <string>

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace weft {

// Contexts of calls in progress. Thread-safe.
class CallSet {
 public:
  // One call: registered while it lives.
  class Call {
   public:
    // A call of a set that was cancelled is cancelled from the start. timeout_s: seconds, infinite for none.
    Call(CallSet* set, double timeout_s);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    grpc::ClientContext* context() { return &context_; }

   private:
    CallSet* const set_;
    grpc::ClientContext context_;
  };

  // Every later call carries it as metadata "weft-token"; an empty one is not sent. Printable ASCII.
  void SetToken(const std::string& token);
  void CancelAll();
  bool cancelled() const;

 private:
  mutable Mutex mu_;
  std::set<grpc::ClientContext*> contexts_ WEFT_GUARDED_BY(mu_);
  std::string token_ WEFT_GUARDED_BY(mu_);
  bool cancelled_ WEFT_GUARDED_BY(mu_) = false;
};

// The same code; Unavailable, Unimplemented and DeadlineExceeded say whom was called, since gRPC's own text does not.
absl::Status FromGrpc(const grpc::Status& status, const std::string& address);

}  // namespace weft
