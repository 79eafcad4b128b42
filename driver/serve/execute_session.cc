#include "driver/serve/execute_session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "driver/cluster/inspect_text.h"
#include "driver/serve/execute_queue.h"
#include "driver/serve/input_assembly.h"
#include "driver/serve/rpc.h"

namespace weft {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
// Inputs of executions that were begun and not submitted yet, of one client.
constexpr size_t kMaxAssemblies = 4096;
constexpr uint64_t kMaxAssemblyBytes = uint64_t{8} << 30;

bool WriteTensor(ExecuteStream* stream, int64_t sequence, const std::string& name, const Tensor& tensor) {
  const char* data = static_cast<const char*>(tensor.data());
  size_t at = 0;
  do {
    const size_t n = std::min(kPieceBytes, tensor.bytes() - at);
    v1::ExecuteReply reply;
    reply.mutable_piece()->set_sequence(sequence);
    v1::TensorChunk* chunk = reply.mutable_piece()->mutable_chunk();
    chunk->set_name(name);
    if (at == 0) {
      chunk->set_dtype(tensor.dtype());
      for (const int64_t d : tensor.dims()) chunk->add_dim(d);
    }
    chunk->set_total_bytes(tensor.bytes());
    chunk->set_offset(at);
    if (n > 0) chunk->set_data(data + at, n);
    if (!stream->Write(reply)) return false;
    at += n;
  } while (at < tensor.bytes());
  return true;
}

bool WriteReply(ExecuteStream* stream, const SessionSpec& spec, const ExecuteQueue::Reply& r) {
  v1::ExecuteReply reply;
  if (!r.result.has_value()) {
    reply.mutable_refused()->set_sequence(r.sequence);
    reply.mutable_refused()->set_code(static_cast<int32_t>(r.refusal.code()));
    reply.mutable_refused()->set_message(std::string(r.refusal.message()));
    return stream->Write(reply);
  }
  v1::ExecutionDone* done = reply.mutable_done();
  done->set_sequence(r.sequence);
  done->set_execution(r.result->execution);
  done->set_admitted_ns(r.result->admitted);
  done->set_done_ns(r.result->done);
  for (size_t i = 0; i < r.result->outputs.size(); ++i) {
    const SessionOutput& output = r.result->outputs[i];
    if (output.error != nullptr) {
      v1::TaskError& e = (*done->mutable_error())[spec.outputs[i].name];
      e.set_worker(output.error->worker);
      e.set_node(output.error->node);
      e.set_execution(output.error->execution);
      e.set_code(static_cast<int32_t>(output.error->code));
      e.set_message(output.error->message);
    } else if (output.tensor.defined()) {
      if (!WriteTensor(stream, r.sequence, spec.outputs[i].name, output.tensor)) return false;
    }
  }
  return stream->Write(reply);
}

bool WriteOpened(ExecuteStream* stream, const SessionSpec& spec) {
  v1::ExecuteReply reply;
  v1::SessionOpened* opened = reply.mutable_opened();
  for (const SessionValueSpec& v : spec.inputs) {
    v1::Input* input = opened->add_inputs();
    input->set_name(v.name);
    input->set_dtype(v.spec.dtype);
    input->set_shape(v.spec.shape.ToString());
  }
  for (const SessionValueSpec& v : spec.outputs) {
    v1::OutputSpec* output = opened->add_outputs();
    output->set_name(v.name);
    *output->mutable_spec() = SpecToProto(v.spec);
  }
  opened->set_max_in_flight(spec.max_in_flight);
  return stream->Write(reply);
}

// Reads requests until the client ends them, or does what no session survives.
absl::Status ReadRequests(grpc::ServerContext* context, ExecuteStream* stream, const SessionSpec& spec, ExecuteQueue* queue) {
  std::map<int64_t, InputAssembly> assemblies;
  int64_t last = -1;  // highest sequence that was submitted
  const auto gone = [context] { return context->IsCancelled(); };
  v1::ExecuteRequest request;
  while (stream->Read(&request)) {
    switch (request.what_case()) {
      case v1::ExecuteRequest::kPiece: {
        const int64_t sequence = request.piece().sequence();
        auto it = assemblies.find(sequence);
        if (it == assemblies.end()) {
          if (sequence <= last) break;  // of an execution that was refused before its pieces ended
          if (assemblies.size() >= kMaxAssemblies) {
            return absl::ResourceExhaustedError(absl::StrCat("inputs of ", kMaxAssemblies, " executions were begun and not submitted"));
          }
          it = assemblies.emplace(sequence, InputAssembly(&spec)).first;
        }
        it->second.Add(request.piece().chunk());
        uint64_t bytes = 0;
        for (const auto& [s, assembly] : assemblies) bytes += assembly.bytes();
        if (bytes > kMaxAssemblyBytes) {
          return absl::ResourceExhaustedError(absl::StrCat("inputs that were begun and not submitted have ", bytes, " bytes, at most ",
                                                           kMaxAssemblyBytes));
        }
        break;
      }
      case v1::ExecuteRequest::kSubmit: {
        const int64_t sequence = request.submit().sequence();
        if (sequence <= last) {
          return absl::InvalidArgumentError(
              absl::StrCat("sequence ", sequence, " was submitted after ", last, ": sequences of a session count up from 0"));
        }
        last = sequence;
        absl::StatusOr<std::vector<Tensor>> inputs = [&] {
          const auto it = assemblies.find(sequence);
          return it == assemblies.end() ? InputAssembly(&spec).Finish() : it->second.Finish();
        }();
        assemblies.erase(sequence);
        if (inputs.ok()) {
          queue->Submit(sequence, *std::move(inputs), gone);
        } else {
          queue->Refuse(sequence, inputs.status());
        }
        break;
      }
      case v1::ExecuteRequest::kDrop:
        assemblies.erase(request.drop().sequence());
        queue->Drop(request.drop().sequence());
        break;
      case v1::ExecuteRequest::kOpen:
        return absl::InvalidArgumentError("this call has opened its session already: open another with another call");
      case v1::ExecuteRequest::WHAT_NOT_SET:
        break;  // of a newer client
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunExecuteSession(Coordinator* coordinator, grpc::ServerContext* context, ExecuteStream* stream) {
  v1::ExecuteRequest first;
  if (!stream->Read(&first) || !first.has_open()) return absl::InvalidArgumentError("an Execute call must begin with open");
  const v1::OpenSession& open = first.open();
  if (!std::isfinite(open.deadline_s()) || open.deadline_s() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("deadline_s is ", open.deadline_s(), ": seconds from 0 (none) on"));
  }
  if (!v1::SubmitMode_IsValid(open.submit())) {
    return absl::InvalidArgumentError(absl::StrCat("submit mode ", open.submit(), " is none: FAIL_FAST, WAIT or QUEUE"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<GraphEnd> end, coordinator->SessionOf(open.graph()));
  const std::shared_ptr<Session> session = end->session();

  ExecuteQueue::Options options;
  options.mode = open.submit();
  options.deadline_s = open.deadline_s();
  options.discard_outputs = open.discard_outputs();
  options.explain = [coordinator, graph = open.graph()](std::function<void(std::string)> told) {
    const absl::Status asked =
        coordinator->Inspect(graph, [told, graph](v1::InspectReply reply) { told(InspectText(reply, graph)); });
    if (!asked.ok()) told(std::string(asked.message()));
  };
  const auto queue = std::make_shared<ExecuteQueue>(session, std::move(options));
  if (!WriteOpened(stream, session->spec())) return absl::CancelledError("the client went away");

  const auto written = std::make_shared<Promise<bool>>();
  std::thread writer([&, written] {
    ExecuteQueue::Reply reply;
    while (queue->Next(&reply)) {
      if (!WriteReply(stream, session->spec(), reply)) {
        queue->Abandon();
        break;
      }
      reply = ExecuteQueue::Reply();
    }
    written->Set(true);
  });
  const absl::Status status = ReadRequests(context, stream, session->spec(), queue.get());
  if (!status.ok() || context->IsCancelled()) {
    queue->Abandon();
  } else {
    queue->FinishSubmits();
  }
  // A client that broke the rules gets the reason if it reads; one that does not read is cut off.
  if (!status.ok() && !written->WaitFor(std::chrono::milliseconds(1000))) context->TryCancel();
  // A reply that the client does not read ends with the call, not before.
  if (!WaitFor(written.get(), *context)) queue->Abandon();
  writer.join();
  return status;
}

}  // namespace weft
