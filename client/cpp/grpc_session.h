#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/support/sync_stream.h>

#include "client/cpp/calls.h"
#include "client/cpp/chunks.h"
#include "client/cpp/session.h"
#include "common/base/mutex.h"
#include "weft/v1/client_service.grpc.pb.h"

namespace weft {

// A session over one Execute stream. A writer thread sends what Submit and Cancel queue, so that neither blocks on a driver that does
// not read; a reader thread puts results together.
class GrpcSession : public ClientSession {
 public:
  // `calls` and `stub` outlive the session.
  static absl::StatusOr<std::unique_ptr<ClientSession>> Open(v1::ClientService::Stub* stub, CallSet* calls, const std::string& address,
                                                             const SessionOptions& options);
  ~GrpcSession() override;

  const std::vector<v1::Input>& inputs() const override { return inputs_; }
  const std::vector<v1::OutputSpec>& outputs() const override { return outputs_; }
  int max_in_flight() const override { return max_in_flight_; }

  absl::StatusOr<Handle> Submit(const std::map<std::string, Tensor>& inputs) override;
  bool Ready(Handle handle) const override;
  absl::StatusOr<ExecutionResult> Wait(Handle handle, double timeout_s) override;
  absl::StatusOr<Handle> WaitAny(const std::vector<Handle>& handles, double timeout_s) override;
  void Cancel(Handle handle) override;
  absl::Status Close(double timeout_s) override;

 private:
  using Stream = grpc::ClientReaderWriter<v1::ExecuteRequest, v1::ExecuteReply>;

  struct Pending {
    bool done = false;
    absl::Status status;  // of a refused or damaged one
    ExecutionResult result;
    std::map<std::string, TensorAssembler> assembling;
  };

  // Either an execution to submit or one to drop.
  struct Outgoing {
    Handle handle = -1;
    bool drop = false;
    std::map<std::string, Tensor> inputs;
  };

  GrpcSession(CallSet* calls, const std::string& address);

  absl::Status Start(v1::ClientService::Stub* stub, const SessionOptions& options);
  absl::Status CheckInputs(const std::map<std::string, Tensor>& inputs) const;
  void ReadLoop();
  void WriteLoop();
  bool WriteOne(const Outgoing& out);
  void Dispatch(const v1::ExecuteReply& reply) WEFT_REQUIRES(mu_);
  void Finish(Pending* pending, const v1::ExecutionDone& done) WEFT_REQUIRES(mu_);
  absl::Status EndedStatus() const WEFT_REQUIRES(mu_);

  const std::string address_;
  CallSet::Call call_;
  std::unique_ptr<Stream> stream_;
  std::vector<v1::Input> inputs_;
  std::vector<v1::OutputSpec> outputs_;
  int max_in_flight_ = 0;

  mutable Mutex mu_;
  CondVar changed_;
  std::map<Handle, Pending> pending_ WEFT_GUARDED_BY(mu_);
  std::deque<Outgoing> outgoing_ WEFT_GUARDED_BY(mu_);
  Handle next_ WEFT_GUARDED_BY(mu_) = 0;
  bool closing_ WEFT_GUARDED_BY(mu_) = false;
  bool ended_ WEFT_GUARDED_BY(mu_) = false;
  absl::Status end_status_ WEFT_GUARDED_BY(mu_);

  std::thread reader_;
  std::thread writer_;
};

}  // namespace weft
