#include "driver/serve/server.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/channel/remote/remote_link.h"
#include "common/session/edge_trial.h"
#include "driver/serve/rpc.h"
#include "weft/v1/client_service.grpc.pb.h"
#include "weft/v1/worker_service.grpc.pb.h"

namespace weft {
namespace {

bool Has(const std::string& s, const std::string& text) { return s.find(text) != std::string::npos; }

std::unique_ptr<DriverServer> NewServer(const std::string& token = "") {
  DriverOptions o;
  o.token = token;
  o.host_id = "here";
  auto server = DriverServer::Start(o);
  REQUIRE(server.ok());
  return *std::move(server);
}

std::shared_ptr<grpc::Channel> Dial(const DriverServer& server) {
  return grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials());
}

struct Behaviour {
  absl::Status load_answer;
  bool answers = true;    // commands
  bool passes_on = true;  // values
};

// A worker of another host, by hand: registers, obeys, and passes input values on as outputs over its data stream.
class RemoteWorker {
 public:
  explicit RemoteWorker(const DriverServer& server, const std::string& name = "", Behaviour behaviour = Behaviour())
      : behaviour_(std::move(behaviour)),
        stub_(v1::WorkerService::NewStub(Dial(server))), stream_(stub_->Session(&context_)) {
    v1::WorkerMessage m = Message();
    m.mutable_register_()->set_name(name);
    m.mutable_register_()->set_host_id("elsewhere");
    m.mutable_register_()->set_device("cpu");
    m.mutable_register_()->set_pid(4711);
    m.mutable_register_()->set_plan_version(kPlanVersion);
    stream_->Write(m);
    v1::DriverMessage welcome;
    welcomed_ = stream_->Read(&welcome) && welcome.has_welcome();
    name_ = welcome.welcome().name();
    if (welcomed_) reader_ = std::thread([this] { Read(); });
  }
  ~RemoteWorker() { Die(); }

  void Die() {
    context_.TryCancel();
    if (reader_.joinable()) reader_.join();
    if (!finished_) end_ = stream_->Finish();
    finished_ = true;
    if (data_context_ != nullptr) data_context_->TryCancel();
    bell_->Ring();
    if (data_reader_.joinable()) data_reader_.join();
    if (loop_.joinable()) loop_.join();
    if (data_ != nullptr) data_->Finish();
    data_ = nullptr;
  }
  // Of a worker that was refused: why.
  grpc::Status End() {
    end_ = stream_->Finish();
    finished_ = true;
    return end_;
  }

  bool welcomed_ = false;
  std::string name_;

 private:
  class Pipe : public MessagePipe {
   public:
    explicit Pipe(RemoteWorker* w) : w_(w) {}
    void Send(v1::DataMessage message) override {
      MutexLock lock(&mu_);
      w_->data_->Write(message);
    }
    void Close(const absl::Status&) override { w_->data_context_->TryCancel(); }

   private:
    RemoteWorker* const w_;
    Mutex mu_;
  };

  v1::WorkerMessage Message() {
    v1::WorkerMessage m;
    m.set_incarnation("inc");
    return m;
  }
  void Read() {
    v1::DriverMessage m;
    std::string plan_bytes;
    while (stream_->Read(&m)) {
      v1::WorkerMessage reply = Message();
      if (!behaviour_.answers && !m.has_clock_ping()) continue;
      if (m.has_load()) {
        plan_bytes += m.load().piece();
        if (!m.load().last()) continue;
        v1::Plan proto;
        proto.ParseFromString(plan_bytes);
        plan_bytes.clear();
        plan_ = std::make_shared<Plan>(*PlanFromProto(proto));
        attempt_ = m.load().attempt();
        reply.mutable_load_reply()->set_graph(m.load().graph());
        reply.mutable_load_reply()->set_attempt(attempt_);
        reply.mutable_load_reply()->set_plan_hash(plan_->hash);
        reply.mutable_load_reply()->set_code(static_cast<int>(behaviour_.load_answer.code()));
        reply.mutable_load_reply()->set_message(std::string(behaviour_.load_answer.message()));
      } else if (m.has_connect()) {
        reply.mutable_connect_reply()->set_graph(m.connect().graph());
        reply.mutable_connect_reply()->set_attempt(attempt_);
        OpenData(m.connect().graph());
      } else if (m.has_start()) {
        reply.mutable_start_reply()->set_graph(m.start().graph());
        reply.mutable_start_reply()->set_attempt(attempt_);
      } else if (m.has_unload()) {
        reply.mutable_unload_reply()->set_graph(m.unload().graph());
        reply.mutable_unload_reply()->set_attempt(m.unload().attempt());
      } else if (m.has_inspect()) {
        reply.mutable_inspect_result()->set_request(m.inspect().request());
        v1::WorkerView* view = reply.mutable_inspect_result()->add_view();
        view->set_graph(m.inspect().graph());
        v1::LaneView* lane = view->add_lane();
        lane->set_lane(v1::LANE_COMPUTE);
        lane->set_op("COMPUTE pass");
        lane->set_state("waiting");
        lane->set_waits_for("a test");
      } else if (m.has_clock_ping()) {
        reply.mutable_clock_reply()->set_request(m.clock_ping().request());
        reply.mutable_clock_reply()->set_worker_ns(Clock::Real()->Now());
      } else {
        continue;
      }
      stream_->Write(reply);
    }
  }
  void OpenData(const std::string& graph) {
    data_context_ = std::make_unique<grpc::ClientContext>();
    data_ = stub_->Data(data_context_.get());
    v1::DataMessage open;
    open.mutable_open()->set_graph(graph);
    open.mutable_open()->set_attempt(attempt_);
    open.mutable_open()->set_worker(name_);
    open.mutable_open()->set_incarnation("inc");
    data_->Write(open);
    link_ = RemoteLink::Create({plan_, plan_->part_of, kClient, bell_.get()}, std::make_shared<Pipe>(this));
    data_reader_ = std::thread([this] {
      v1::DataMessage m;
      while (data_->Read(&m)) link_->OnMessage(m);
      link_->OnClosed(absl::UnavailableError("the driver's stream closed"));
    });
    loop_ = std::thread([this] { Loop(); });
  }
  // The n-th input edge's values go out on the n-th output edge.
  void Loop() {
    struct Way {
      std::unique_ptr<RecvPort> in;
      std::unique_ptr<SendPort> out;
      int32_t out_edge = 0;
      int64_t next_in = kTrialExecution, next_out = kTrialExecution;
      std::map<int64_t, Value> values;
    };
    std::vector<Way> ways;
    std::vector<int32_t> in, out;
    for (const PlanEdge& e : plan_->edges) {
      if (e.src_worker == kClient) in.push_back(e.id);
      if (e.dst_worker == kClient) out.push_back(e.id);
    }
    for (size_t i = 0; i < in.size(); ++i) {
      ways.emplace_back();
      ways.back().in = *link_->TakeRecvPort(in[i]);
      ways.back().out = *link_->TakeSendPort(out[i]);
      ways.back().out_edge = out[i];
    }
    while (link_->closed().ok()) {
      const uint32_t seen = bell_->Snapshot();
      for (Way& w : ways) {
        while (w.next_in <= link_->admitted() && w.in->Poll(w.next_in) == PortState::kReady) {
          Value v;
          if (!w.in->Recv(w.next_in, Tensor(), &v, nullptr).ok()) return;
          w.in->Release(w.next_in);
          w.values[w.next_in++] = v;
        }
        while (w.values.count(w.next_out) > 0 && (behaviour_.passes_on || w.next_out < 0) && w.out->Poll(w.next_out) == PortState::kReady) {
          const Value v = w.next_out < 0 ? TrialValue(w.out_edge) : w.values[w.next_out];
          if (!w.out->Send(w.next_out, v, nullptr).ok()) return;
          w.values.erase(w.next_out++);
        }
      }
      bell_->Wait(seen, Clock::Real()->Now() + kNanosPerSecond, 0);
    }
  }

  const Behaviour behaviour_;
  grpc::ClientContext context_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::DriverMessage>> stream_;
  std::thread reader_, data_reader_, loop_;
  std::shared_ptr<Plan> plan_;
  std::string attempt_;
  std::unique_ptr<Doorbell> bell_ = Doorbell::InProcess();
  std::unique_ptr<grpc::ClientContext> data_context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::DataMessage, v1::DataMessage>> data_;
  std::shared_ptr<RemoteLink> link_;
  bool finished_ = false;
  grpc::Status end_;
};

v1::Graph PassGraph(const std::string& name, const std::string& shape = "[?<=2000000]") {
  v1::Graph g;
  g.set_name(name);
  v1::Actor* a = g.add_actor();
  a->set_name("a");
  a->set_class_("std.Identity");
  a->set_worker("w0");
  v1::Node* n = g.add_node();
  n->set_name("pass");
  n->set_actor("a");
  n->add_arg()->set_input("x");
  v1::Input* in = g.add_input();
  in->set_name("x");
  in->set_dtype(v1::I8);
  in->set_shape(shape);
  v1::Output* out = g.add_output();
  out->set_name("o");
  out->set_node("pass");
  g.mutable_options()->set_bootstrap_timeout_s(10);
  return g;
}

grpc::Status Compile(v1::ClientService::Stub* stub, const v1::Graph& graph, v1::CompileReply* reply) {
  grpc::ClientContext context;
  auto writer = stub->Compile(&context, reply);
  const std::string bytes = graph.SerializeAsString();
  v1::CompileRequest r;
  r.set_graph_piece(bytes.substr(0, 10));
  writer->Write(r);
  r.set_graph_piece(bytes.substr(10));
  writer->Write(r);
  writer->WritesDone();
  return writer->Finish();
}

// One client's Execute call.
struct Execution {
  Execution(v1::ClientService::Stub* stub, const std::string& graph, double deadline_s = 0) {
    stream = stub->Execute(&context);
    v1::ExecuteRequest r;
    r.mutable_open()->set_graph(graph);
    r.mutable_open()->set_deadline_s(deadline_s);
    stream->Write(r);
  }
  void Submit(int64_t sequence, const std::string& data) {
    v1::ExecuteRequest r;
    for (size_t at = 0; at == 0 || at < data.size(); at += 1 << 20) {
      v1::TensorChunk* c = r.mutable_piece()->mutable_chunk();
      r.mutable_piece()->set_sequence(sequence);
      c->set_name("x");
      c->clear_dim();
      if (at == 0) {
        c->set_dtype(v1::I8);
        c->add_dim(static_cast<int64_t>(data.size()));
      }
      c->set_total_bytes(data.size());
      c->set_offset(at);
      c->set_data(data.substr(at, 1 << 20));
      stream->Write(r);
    }
    r.mutable_submit()->set_sequence(sequence);
    stream->Write(r);
  }
  v1::ExecuteReply Read() {
    v1::ExecuteReply r;
    stream->Read(&r);
    return r;
  }
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExecuteRequest, v1::ExecuteReply>> stream;
};

// What threads of the driver come to by themselves.
void Await(const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds()) {
    REQUIRE(std::chrono::steady_clock::now() < until);
    std::this_thread::yield();
  }
}

TEST_CASE("server: addresses are checked before they are bound") {
  for (const char* bad : {"", ":1", "host", "host:", "host:99999", "::1:0", "[1.2.3.4]:0", "host:-1", "unix:"}) {
    INFO(bad);
    DriverOptions o;
    o.listen = bad;
    CHECK(absl::IsInvalidArgument(DriverServer::Start(o).status()));
  }
  DriverOptions o;
  o.listen = "0.0.0.0:0";
  const absl::Status open = DriverServer::Start(o).status();
  CHECK(absl::IsInvalidArgument(open));
  CHECK(Has(std::string(open.message()), "--token-file"));
  auto first = NewServer();
  o.listen = first->address();
  CHECK(absl::IsUnavailable(DriverServer::Start(o).status()));
  o.listen = "[::1]:0";
  auto six = DriverServer::Start(o);
  if (six.ok()) CHECK(Has((*six)->address(), "[::1]:"));  // where the machine has IPv6
}

TEST_CASE("server: long messages are cut to what a status can carry") {
  std::string many;
  for (int i = 0; i < 200; ++i) absl::StrAppend(&many, "node n", i, ": a problem with Umlauten äöü that takes about eighty characters\n");
  const grpc::Status status = ToGrpc(absl::InvalidArgumentError(many));
  CHECK(status.error_message().size() < 6100);
  CHECK(Has(status.error_message(), "more bytes are in the driver's log"));
  CHECK(ToGrpc(absl::InvalidArgumentError("short")).error_message() == "short");
  CHECK(ToGrpc(absl::OkStatus()).ok());
}

TEST_CASE("server: every call needs the token, where there is one") {
  auto server = NewServer("secret");
  auto client = v1::ClientService::NewStub(Dial(*server));
  auto worker = v1::WorkerService::NewStub(Dial(*server));
  v1::ListGraphsReply graphs;
  {
    grpc::ClientContext context;
    CHECK(client->ListGraphs(&context, {}, &graphs).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  }
  for (const char* wrong : {"secre", "secret2", "Secret", ""}) {
    grpc::ClientContext context;
    context.AddMetadata("weft-token", wrong);
    CHECK(client->ListGraphs(&context, {}, &graphs).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  }
  {
    grpc::ClientContext context;
    context.AddMetadata("weft-token", "secret");
    CHECK(client->ListGraphs(&context, {}, &graphs).ok());
  }
  {
    grpc::ClientContext context;
    v1::StoreSetReply reply;
    CHECK(worker->StoreSet(&context, {}, &reply).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  }
  RemoteWorker refused(*server);
  CHECK_FALSE(refused.welcomed_);
}

TEST_CASE("server: a graph runs on a worker of another host over the data stream") {
  auto server = NewServer();
  auto client = v1::ClientService::NewStub(Dial(*server));
  RemoteWorker worker(*server);
  REQUIRE(worker.welcomed_);
  CHECK(worker.name_ == "w0");
  {
    RemoteWorker twin(*server, "w0");
    CHECK_FALSE(twin.welcomed_);
    CHECK(twin.End().error_code() == grpc::StatusCode::ALREADY_EXISTS);
  }
  v1::CompileReply compiled;
  const grpc::Status status = Compile(client.get(), PassGraph("g"), &compiled);
  INFO(status.error_message());
  REQUIRE(status.ok());
  CHECK(compiled.workers() == 1);
  CHECK(Compile(client.get(), PassGraph("g"), &compiled).error_code() == grpc::StatusCode::ALREADY_EXISTS);

  // Two clients at once, values of several pieces, an empty one, a wrong one.
  Execution a(client.get(), "g");
  Execution b(client.get(), "g");
  REQUIRE(a.Read().has_opened());
  REQUIRE(b.Read().has_opened());
  const std::string large(1'500'000, 'L');
  a.Submit(0, large);
  b.Submit(0, "b");
  a.Submit(1, "");
  a.Submit(2, std::string(2'000'001, 'x'));
  a.stream->WritesDone();
  b.stream->WritesDone();
  std::map<int64_t, std::string> got;
  int done = 0, refused = 0;
  v1::ExecuteReply r;
  while (a.stream->Read(&r)) {
    if (r.has_piece()) {
      CHECK(r.piece().chunk().data().size() <= (1 << 20));
      got[r.piece().sequence()] += r.piece().chunk().data();
    }
    if (r.has_done()) ++done;
    if (r.has_refused()) {
      ++refused;
      CHECK(r.refused().sequence() == 2);
      CHECK(Has(r.refused().message(), "input x is I8[2000001]"));
    }
  }
  CHECK(a.stream->Finish().ok());
  CHECK(done == 2);
  CHECK(refused == 1);
  CHECK(got[0] == large);
  CHECK(got[1].empty());
  REQUIRE(b.Read().piece().chunk().data() == "b");
  CHECK(b.Read().has_done());
  CHECK_FALSE(b.stream->Read(&r));
  CHECK(b.stream->Finish().ok());

  {
    grpc::ClientContext context;
    v1::ListGraphsReply graphs;
    REQUIRE(client->ListGraphs(&context, {}, &graphs).ok());
    CHECK(graphs.graph(0).executions_done() == 3);
  }
  {
    grpc::ClientContext context;
    v1::TeardownRequest request;
    v1::TeardownReply reply;
    request.set_graph("g");
    CHECK(client->Teardown(&context, request, &reply).ok());
  }
  Execution gone(client.get(), "g");
  CHECK(gone.Read().what_case() == v1::ExecuteReply::WHAT_NOT_SET);
  CHECK(gone.stream->Finish().error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("server: a deadline says who waits; a death fails what is pending with its cause") {
  auto server = NewServer();
  auto client = v1::ClientService::NewStub(Dial(*server));
  RemoteWorker worker(*server, "", {absl::OkStatus(), true, /*passes_on=*/false});
  v1::CompileReply compiled;
  REQUIRE(Compile(client.get(), PassGraph("g"), &compiled).ok());
  Execution hurried(client.get(), "g", 0.05);
  REQUIRE(hurried.Read().has_opened());
  hurried.Submit(0, "a");
  const v1::ExecuteReply late = hurried.Read();
  REQUIRE(late.has_refused());
  CHECK(late.refused().code() == static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  CHECK(Has(late.refused().message(), "w0 compute: COMPUTE pass of execution 0 waits for a test"));
  CHECK(Has(late.refused().message(), "@client"));

  Execution patient(client.get(), "g");
  REQUIRE(patient.Read().has_opened());
  patient.Submit(0, "b");
  // It is admitted before the worker dies.
  Await([&] { return server->coordinator()->ListGraphs().graph(0).executions_admitted() >= 2; });
  worker.Die();
  const v1::ExecuteReply failed = patient.Read();
  REQUIRE(failed.has_refused());
  CHECK(failed.refused().code() == static_cast<int>(absl::StatusCode::kFailedPrecondition));
  INFO(failed.refused().message());
  CHECK(Has(failed.refused().message(), "worker w0 (pid 4711) is gone: its control stream closed; graph g had executions 0..1 in flight"));
  patient.stream->WritesDone();
  CHECK(patient.Read().what_case() == v1::ExecuteReply::WHAT_NOT_SET);
  CHECK(patient.stream->Finish().ok());
  hurried.context.TryCancel();
  hurried.stream->Finish();
}

TEST_CASE("server: what goes wrong in a compile is told with its place") {
  auto server = NewServer();
  auto client = v1::ClientService::NewStub(Dial(*server));
  v1::CompileReply compiled;
  v1::Graph wrong = PassGraph("g");
  wrong.mutable_node(0)->set_actor("nobody");
  const grpc::Status invalid = Compile(client.get(), wrong, &compiled);
  CHECK(invalid.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(Has(invalid.error_message(), "nobody"));
  RemoteWorker worker(*server, "", {absl::ResourceExhaustedError("no memory"), true, true});
  const grpc::Status refused = Compile(client.get(), PassGraph("g"), &compiled);
  CHECK(refused.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(Has(refused.error_message(), "phase 1 (load): worker w0: no memory"));
  {
    grpc::ClientContext context;
    v1::CompileRequest r;
    r.set_graph_piece("\xff\xff\xff garbage");
    auto writer = client->Compile(&context, &compiled);
    writer->Write(r);
    writer->WritesDone();
    CHECK(writer->Finish().error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  }
}

TEST_CASE("server: a worker that dies while a graph is compiled is not a driver that cannot be reached") {
  auto server = NewServer();
  auto client = v1::ClientService::NewStub(Dial(*server));
  RemoteWorker worker(*server, "", {absl::OkStatus(), /*answers=*/false, true});
  v1::CompileReply compiled;
  grpc::Status status;
  std::thread compiling([&] { status = Compile(client.get(), PassGraph("g"), &compiled); });
  const auto loading = [&] {
    const auto graphs = server->coordinator()->ListGraphs();
    return graphs.graph_size() == 1 && graphs.graph(0).state() == "bootstrapping";
  };
  Await(loading);
  worker.Die();
  compiling.join();
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(Has(status.error_message(), "worker w0 (pid 4711) is gone"));
}

TEST_CASE("server: it stops in time whatever is open") {
  auto server = NewServer();
  auto client = v1::ClientService::NewStub(Dial(*server));
  RemoteWorker worker(*server, "", {absl::OkStatus(), /*answers=*/false, true});
  v1::CompileReply compiled;
  grpc::Status status;
  std::thread compiling([&] { status = Compile(client.get(), PassGraph("g"), &compiled); });
  Await([&] { return server->coordinator()->ListGraphs().graph_size() > 0; });
  const auto began = std::chrono::steady_clock::now();
  server->Stop(absl::UnavailableError("the driver was stopped"));
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(5));
  compiling.join();
  CHECK_FALSE(status.ok());
}

}  // namespace
}  // namespace weft
