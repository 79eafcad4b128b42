#include "client/cpp/client.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <map>
#include <thread>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "client/cpp/chunks.h"
#include "common/base/mutex.h"
#include "weft/v1/client_service.grpc.pb.h"

namespace weft {
namespace {

constexpr double kForever = 60;

Tensor Bytes(int64_t n) {
  Tensor t = *Tensor::OnHost(v1::U8, {n});
  for (int64_t i = 0; i < n; ++i) t.as<uint8_t>()[i] = static_cast<uint8_t>(i * 7 + i / 255);
  return t;
}

// Of a call, or empty.
std::string TokenOf(const grpc::ServerContext& context) {
  const auto it = context.client_metadata().find("weft-token");
  return it == context.client_metadata().end() ? "" : std::string(it->second.data(), it->second.size());
}

// A driver that asks for the token "secret" in every call.
class GuardedDriver : public v1::ClientService::Service {
 public:
  GuardedDriver() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~GuardedDriver() override { server_->Shutdown(std::chrono::system_clock::now()); }
  const std::string& address() const { return address_; }

  grpc::Status ListWorkers(grpc::ServerContext* c, const v1::ListWorkersRequest*, v1::ListWorkersReply*) override { return Check(*c); }
  grpc::Status Compile(grpc::ServerContext* c, grpc::ServerReader<v1::CompileRequest>*, v1::CompileReply*) override { return Check(*c); }
  grpc::Status Teardown(grpc::ServerContext* c, const v1::TeardownRequest*, v1::TeardownReply*) override { return Check(*c); }
  grpc::Status GetTrace(grpc::ServerContext* c, const v1::GetTraceRequest*, grpc::ServerWriter<v1::TraceReply>*) override { return Check(*c); }
  grpc::Status Execute(grpc::ServerContext* c, grpc::ServerReaderWriter<v1::ExecuteReply, v1::ExecuteRequest>* stream) override {
    const grpc::Status status = Check(*c);
    v1::ExecuteReply reply;
    reply.mutable_opened()->set_max_in_flight(1);
    if (status.ok()) stream->Write(reply);
    return status;
  }

 private:
  static grpc::Status Check(const grpc::ServerContext& context) {
    return TokenOf(context) == "secret" ? grpc::Status::OK : grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "another token");
  }

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// Answers as a driver would, by the graph's name: "echo" gives input x back as output y; "fail", "refuse", "stuck", "die" as they say.
class FakeDriver : public v1::ClientService::Service {
 public:
  FakeDriver() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~FakeDriver() override { server_->Shutdown(std::chrono::system_clock::now()); }
  const std::string& address() const { return address_; }
  int drops() const { return drops_; }

  grpc::Status ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*, v1::ListWorkersReply* reply) override {
    reply->add_worker()->set_name("w0");
    return grpc::Status::OK;
  }

  grpc::Status Compile(grpc::ServerContext*, grpc::ServerReader<v1::CompileRequest>* reader, v1::CompileReply* reply) override {
    std::string bytes;
    v1::CompileRequest request;
    int pieces = 0;
    while (reader->Read(&request)) {
      bytes += request.graph_piece();
      ++pieces;
    }
    v1::Graph graph;
    if (!graph.ParseFromString(bytes)) return {grpc::StatusCode::INTERNAL, "no graph"};
    if (graph.name() == "bad") return {grpc::StatusCode::INVALID_ARGUMENT, "node \"a\": no such actor\nnode \"b\": no such actor"};
    reply->set_graph(graph.name());
    reply->set_ops(graph.node_size());
    reply->set_workers(pieces);
    return grpc::Status::OK;
  }

  grpc::Status Teardown(grpc::ServerContext*, const v1::TeardownRequest* request, v1::TeardownReply*) override {
    if (request->graph() != "echo") return {grpc::StatusCode::NOT_FOUND, absl::StrCat("no graph \"", request->graph(), "\"")};
    return grpc::Status::OK;
  }

  grpc::Status GetPlan(grpc::ServerContext*, const v1::GetPlanRequest*, grpc::ServerWriter<v1::PlanChunk>* writer) override {
    v1::Plan plan;
    plan.set_graph("echo");
    const std::string bytes = plan.SerializeAsString();
    for (const char c : bytes) {
      v1::PlanChunk chunk;
      chunk.set_piece(std::string(1, c));
      writer->Write(chunk);
    }
    return grpc::Status::OK;
  }

  grpc::Status Execute(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<v1::ExecuteReply, v1::ExecuteRequest>* stream) override {
    v1::ExecuteRequest request;
    if (!stream->Read(&request)) return grpc::Status::OK;
    const std::string graph = request.open().graph();
    if (graph == "absent") return {grpc::StatusCode::NOT_FOUND, "no graph \"absent\"; compile it first"};
    v1::ExecuteReply reply;
    auto* input = reply.mutable_opened()->add_inputs();
    input->set_name("x");
    input->set_dtype(v1::U8);
    input->set_shape("[?<=10000000]");
    reply.mutable_opened()->set_max_in_flight(4);
    stream->Write(reply);
    std::map<int64_t, TensorAssembler> tensors;
    std::vector<int64_t> held;  // "reverse" answers in pairs, the later first
    while (stream->Read(&request)) {
      if (request.has_piece()) {
        if (!tensors[request.piece().sequence()].Add(request.piece().chunk()).ok()) return {grpc::StatusCode::INTERNAL, "bad piece"};
      } else if (request.has_drop()) {
        ++drops_;
      } else if (request.has_submit()) {
        held.push_back(request.submit().sequence());
        if (graph == "die") return {grpc::StatusCode::FAILED_PRECONDITION, "worker w3 died during SEND a:0 -> b:0, execution 7"};
        if (graph == "stuck") continue;
        if (graph == "reverse" && held.size() < 2) continue;
        for (; !held.empty(); held.pop_back()) Answer(graph, held.back(), tensors[held.back()].tensor(), stream);
      }
    }
    // Stuck until the client goes; bounded by the test's own time.
    return grpc::Status::OK;
  }

 private:
  static void Answer(const std::string& graph, int64_t sequence, const Tensor& x,
                     grpc::ServerReaderWriter<v1::ExecuteReply, v1::ExecuteRequest>* stream) {
    v1::ExecuteReply reply;
    if (graph == "refuse") {
      reply.mutable_refused()->set_sequence(sequence);
      reply.mutable_refused()->set_code(8);
      reply.mutable_refused()->set_message("4 of 4 in flight");
      stream->Write(reply);
      return;
    }
    if (graph != "fail") {
      TensorSplitter splitter("y", x);
      reply.mutable_piece()->set_sequence(sequence);
      while (splitter.Next(reply.mutable_piece()->mutable_chunk())) {
        stream->Write(reply);
        if (graph == "cut" && x.bytes() > kPieceBytes) break;
      }
    }
    v1::ExecutionDone* done = reply.mutable_done();
    done->set_sequence(sequence);
    done->set_execution(sequence + 100);
    done->set_done_ns(5);
    if (graph == "fail") (*done->mutable_error())["y"].set_message("chosen to fail");
    stream->Write(reply);
  }

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::atomic<int> drops_ = 0;
};

struct Fixture {
  FakeDriver driver;
  std::unique_ptr<Client> client = *Client::Connect(driver.address());

  std::unique_ptr<ClientSession> Open(const std::string& graph) {
    auto session = client->OpenSession({.graph = graph});
    REQUIRE(session.ok());
    return *std::move(session);
  }
};

TEST_CASE("chunks: any size comes back as it was; damage is named") {
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{kPieceBytes}, int64_t{kPieceBytes} + 1, int64_t{3} << 20}) {
    const Tensor t = Bytes(n);
    TensorSplitter splitter("t", t);
    TensorAssembler assembler;
    v1::TensorChunk chunk;
    while (splitter.Next(&chunk)) {
      CHECK(chunk.data().size() <= kPieceBytes);
      REQUIRE(assembler.Add(chunk).ok());
    }
    REQUIRE(assembler.complete());
    CHECK(BitEqual(assembler.tensor(), t));
  }
  v1::TensorChunk chunk;
  TensorSplitter splitter("t", Bytes(3 << 20));
  splitter.Next(&chunk);
  TensorAssembler gap;
  REQUIRE(gap.Add(chunk).ok());
  splitter.Next(&chunk);
  splitter.Next(&chunk);
  CHECK(gap.Add(chunk).code() == absl::StatusCode::kDataLoss);
  TensorAssembler late;
  CHECK(late.Add(chunk).code() == absl::StatusCode::kDataLoss);
  v1::TensorChunk lie;
  lie.set_name("lie");
  lie.set_dtype(v1::F32);
  lie.add_dim(4);
  lie.set_total_bytes(17);
  CHECK(TensorAssembler().Add(lie).message().find("lie") != absl::string_view::npos);
  lie.set_total_bytes(16);
  lie.set_data(std::string(17, 'x'));
  CHECK_FALSE(TensorAssembler().Add(lie).ok());
  lie.set_dim(0, -4);
  CHECK_FALSE(TensorAssembler().Add(lie).ok());
  lie.set_dim(0, int64_t{1} << 62);
  CHECK_FALSE(TensorAssembler().Add(lie).ok());
  lie.set_dtype(static_cast<v1::DType>(99));
  CHECK_FALSE(TensorAssembler().Add(lie).ok());
}

TEST_CASE("connect: nobody there, nonsense, and a server that is no driver") {
  for (const char* nonsense : {"nonsense", "localhost:port", "http://localhost:80"}) {
    CHECK(Client::Connect(nonsense).status().code() == absl::StatusCode::kInvalidArgument);
  }
  std::string gone;
  {
    FakeDriver driver;
    gone = driver.address();
  }
  const auto refused = Client::Connect(gone, kForever);
  CHECK(refused.status().code() == absl::StatusCode::kUnavailable);
  CHECK(refused.status().message().find(gone) != absl::string_view::npos);

  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  v1::ClientService::Service other;  // every method unimplemented
  builder.RegisterService(&other);
  auto server = builder.BuildAndStart();
  const auto strange = Client::Connect(absl::StrCat("127.0.0.1:", port), kForever);
  CHECK(strange.status().message().find("no weft driver") != absl::string_view::npos);
}

TEST_CASE("every call carries the join token, a second connection too") {
  GuardedDriver driver;
  for (const char* wrong : {"", "other"}) {
    CHECK(Client::Connect(driver.address(), kForever, wrong).status().code() == absl::StatusCode::kUnauthenticated);
  }
  auto client = Client::Connect(driver.address(), kForever, "secret");
  REQUIRE(client.ok());
  CHECK((*client)->Compile(v1::Graph(), {}).ok());
  CHECK((*client)->Teardown("any").ok());
  CHECK((*client)->GetTrace("any", 0).ok());
  CHECK((*client)->OpenSession({.graph = "any"}).ok());
  (*client)->CancelAll();
  auto second = (*client)->Reconnect(kForever);
  REQUIRE(second.ok());
  CHECK((*second)->Teardown("any").ok());
}

TEST_CASE("connect: a token that cannot travel is refused before anything is sent") {
  for (const std::string& token : {std::string("two\nlines"), std::string("nul\0", 4), std::string("\xff"), std::string(5000, 'x')}) {
    CHECK(Client::Connect("127.0.0.1:1", kForever, token).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("compile sends large graphs in pieces and returns every problem of a bad one") {
  Fixture f;
  v1::Graph graph;
  graph.set_name("large");
  for (int i = 0; i < 20; ++i) graph.add_node()->set_method(std::string(200'000, 'm'));
  const auto reply = f.client->Compile(graph, {});
  REQUIRE(reply.ok());
  CHECK(reply->ops() == 20);
  CHECK(reply->workers() == 4);
  graph.Clear();
  graph.set_name("bad");
  const auto bad = f.client->Compile(graph, {});
  CHECK(bad.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(bad.status().message()) == "node \"a\": no such actor\nnode \"b\": no such actor");
  CHECK(f.client->Teardown("nobody").code() == absl::StatusCode::kNotFound);
  CHECK(f.client->GetPlan("echo")->graph() == "echo");
}

TEST_CASE("session: values of several sizes, several in flight, results in any order of waiting") {
  Fixture f;
  const std::string graph = GENERATE("echo", "reverse");
  auto session = f.Open(graph);
  CHECK(session->max_in_flight() == 4);
  REQUIRE(session->inputs().size() == 1);
  std::vector<ClientSession::Handle> handles;
  std::vector<Tensor> sent;
  for (int i = 0; i < 6; ++i) {
    sent.push_back(Bytes(i * 700'001));
    auto handle = session->Submit({{"x", sent.back()}});
    REQUIRE(handle.ok());
    handles.push_back(*handle);
  }
  for (int i = 5; i >= 0; --i) {
    auto result = session->Wait(handles[i], kForever);
    REQUIRE(result.ok());
    CHECK(result->ok());
    CHECK(result->execution == 100 + i);
    CHECK(BitEqual(result->outputs.at("y"), sent[i]));
    CHECK(session->Wait(handles[i], kForever).status().code() == absl::StatusCode::kNotFound);
  }
  CHECK(session->Close(kForever).ok());
  CHECK_FALSE(session->Submit({{"x", sent[0]}}).ok());
}

TEST_CASE("session: inputs are checked before they travel, every problem at once") {
  Fixture f;
  auto session = f.Open("echo");
  const auto wrong = session->Submit({{"z", Bytes(1)}});
  CHECK(wrong.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(wrong.status().message().find("\"x\" (U8[?<=10000000]) is not given") != absl::string_view::npos);
  CHECK(wrong.status().message().find("no input \"z\"") != absl::string_view::npos);
  CHECK_FALSE(session->Submit({{"x", *Tensor::OnHost(v1::F32, {2})}}).ok());
  CHECK_FALSE(session->Submit({{"x", *Tensor::OnHost(v1::U8, {2, 2})}}).ok());
  // The session goes on.
  CHECK(session->Wait(*session->Submit({{"x", Bytes(1)}}), kForever).ok());
}

TEST_CASE("session: errors as values, refusals and a graph's death come to the caller") {
  Fixture f;
  auto failing = f.Open("fail");
  auto result = failing->Wait(*failing->Submit({{"x", Bytes(1)}}), kForever);
  REQUIRE(result.ok());
  CHECK_FALSE(result->ok());
  CHECK(result->errors.at("y").message() == "chosen to fail");

  auto refusing = f.Open("refuse");
  const auto refused = refusing->Wait(*refusing->Submit({{"x", Bytes(1)}}), kForever);
  CHECK(refused.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(refused.status().message() == "4 of 4 in flight");

  auto dying = f.Open("die");
  const auto handle = *dying->Submit({{"x", Bytes(1)}});
  const auto died = dying->Wait(handle, kForever);
  CHECK(died.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(died.status().message() == "worker w3 died during SEND a:0 -> b:0, execution 7");
  CHECK(dying->Submit({{"x", Bytes(1)}}).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(dying->Close(kForever).code() == absl::StatusCode::kFailedPrecondition);

  auto cut = f.Open("cut");
  const auto part = cut->Wait(*cut->Submit({{"x", Bytes(2 << 20)}}), kForever);
  CHECK(part.status().code() == absl::StatusCode::kDataLoss);

  CHECK(f.client->OpenSession({.graph = "absent"}).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("session: a wait that times out keeps its handle; cancel gives it up; destruction does not hang") {
  Fixture f;
  auto session = f.Open("stuck");
  const auto handle = *session->Submit({{"x", Bytes(1)}});
  CHECK_FALSE(session->Ready(handle));
  CHECK(session->Wait(handle, 0).status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(session->WaitAny({handle}, 0).status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(session->WaitAny({}, 0).status().code() == absl::StatusCode::kInvalidArgument);
  session->Cancel(handle);
  CHECK(session->Wait(handle, kForever).status().code() == absl::StatusCode::kNotFound);
  session->Cancel(handle);
  CHECK(session->Close(kForever).ok());  // the drop is sent before the end
  CHECK(f.driver.drops() == 1);
}

TEST_CASE("session: wait-any finds the one that is done") {
  Fixture f;
  auto session = f.Open("reverse");
  const auto first = *session->Submit({{"x", Bytes(1)}});
  const auto second = *session->Submit({{"x", Bytes(2)}});
  const auto third = *session->Submit({{"x", Bytes(3)}});  // has no partner: not answered
  const auto found = session->WaitAny({third, second}, kForever);
  REQUIRE(found.ok());
  CHECK(*found == second);
  CHECK(session->Wait(first, kForever).ok());
  CHECK_FALSE(session->Ready(third));
}

TEST_CASE("cancelling all calls ends every wait") {
  Fixture f;
  auto session = f.Open("stuck");
  const auto handle = *session->Submit({{"x", Bytes(1)}});
  std::thread interrupter([&] { f.client->CancelAll(); });
  const auto result = session->Wait(handle, kForever);
  interrupter.join();
  CHECK(result.status().code() == absl::StatusCode::kCancelled);
  CHECK(f.client->ListWorkers().status().code() == absl::StatusCode::kCancelled);
  CHECK(f.client->OpenSession({.graph = "echo"}).status().code() == absl::StatusCode::kCancelled);
}

TEST_CASE("session: many threads at once") {
  Fixture f;
  auto session = f.Open("echo");
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const Tensor x = Bytes(t * 100 + i);
        auto handle = session->Submit({{"x", x}});
        if (!handle.ok()) return;
        auto result = session->Wait(*handle, kForever);
        if (result.ok() && BitEqual(result->outputs.at("y"), x)) ++good;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(good == 100);
}

}  // namespace
}  // namespace weft
