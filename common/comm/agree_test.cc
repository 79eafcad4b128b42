#include "common/comm/agree.h"

#include <catch2/catch.hpp>

namespace weft {
namespace {

GroupInfo Group(int size) {
  GroupInfo g;
  g.id = 3;
  g.name = "grads";
  g.plan_hash = 77;
  for (int i = 0; i < size; ++i) g.workers.push_back("w" + std::to_string(i));
  return g;
}

Value ValueOf(DType d, const Dims& dims) {
  Value v;
  v.tensor = *Tensor::OnHost(d, dims);
  return v;
}

CollectiveCall CallOf(v1::CollectiveOp op, int64_t execution = 5) {
  CollectiveCall c;
  c.op = op;
  c.execution = execution;
  return c;
}

std::vector<CollectiveHeader> Headers(const GroupInfo& g, const CollectiveCall& call, const std::vector<Value>& values) {
  std::vector<CollectiveHeader> h;
  for (int r = 0; r < g.size(); ++r) h.push_back(MakeCollectiveHeader(g, r, call, 9, values[r], *Tensor::OnHost(v1::F64, {1000})));
  return h;
}

bool Mentions(const Agreement& a, const std::string& word) { return a.error != nullptr && a.error->message.find(word) != std::string::npos; }

TEST_CASE("agree: result dims of each op") {
  const GroupInfo g = Group(2);
  const std::vector<Value> v(2, ValueOf(v1::F32, {4, 3}));
  CHECK(Agree(g, Headers(g, CallOf(v1::ALL_REDUCE), v)).out == Dims{4, 3});
  CHECK(Agree(g, Headers(g, CallOf(v1::ALL_GATHER), v)).out == Dims{8, 3});
  CHECK(Agree(g, Headers(g, CallOf(v1::REDUCE_SCATTER), v)).out == Dims{2, 3});
  const Agreement b = Agree(g, Headers(g, CallOf(v1::BROADCAST), v));
  CHECK(b.error == nullptr);
  CHECK(b.out == Dims{4, 3});
  CHECK(b.dtype == v1::F32);
}

TEST_CASE("agree: differing calls come before differing values, and name both ranks") {
  const GroupInfo g = Group(3);
  std::vector<Value> v(3, ValueOf(v1::F32, {4}));
  v[1] = ValueOf(v1::F64, {5});
  std::vector<CollectiveHeader> h = Headers(g, CallOf(v1::ALL_REDUCE), v);
  h[2].message.execution = 6;
  Agreement a = Agree(g, h);
  CHECK(Mentions(a, "rank 0 (w0) runs ALL_REDUCE SUM number 9 of execution 5"));
  CHECK(Mentions(a, "rank 2 (w2) runs ALL_REDUCE SUM number 9 of execution 6"));
  CHECK(a.error->worker == "w2");
  CHECK(a.error->node == "grads");
  h[2].message.execution = 5;
  a = Agree(g, h);
  CHECK(a.error->code == absl::StatusCode::kInvalidArgument);
  CHECK(Mentions(a, "rank 0 (w0) gives F32[4], rank 1 (w1) gives F64[5]"));
  h[1].op = v1::ALL_GATHER;
  CHECK(Mentions(Agree(g, h), "ALL_GATHER"));
  h[1].message.magic = 0;
  CHECK(Agree(g, h).error->code == absl::StatusCode::kDataLoss);
}

TEST_CASE("agree: the error of the lowest rank that has one is everybody's") {
  const GroupInfo g = Group(3);
  std::vector<Value> v(3, ValueOf(v1::F32, {4}));
  for (int r : {2, 1}) {
    auto e = std::make_shared<TaskError>();
    e->worker = "w9";
    e->node = "n" + std::to_string(r);
    e->message = "bad";
    e->code = absl::StatusCode::kDataLoss;
    v[r] = Value{Tensor(), nullptr, e};
  }
  const Agreement a = Agree(g, Headers(g, CallOf(v1::ALL_REDUCE), v));
  CHECK(a.error->node == "n1");
  CHECK(a.error->worker == "w9");
  CHECK(a.error->code == absl::StatusCode::kDataLoss);
}

TEST_CASE("agree: a rank whose buffer is too small, or that has no value, tells all") {
  const GroupInfo g = Group(2);
  const Value v = ValueOf(v1::F32, {4});
  std::vector<CollectiveHeader> h;
  h.push_back(MakeCollectiveHeader(g, 0, CallOf(v1::ALL_GATHER), 0, v, *Tensor::OnHost(v1::F32, {8})));
  h.push_back(MakeCollectiveHeader(g, 1, CallOf(v1::ALL_GATHER), 0, v, *Tensor::OnHost(v1::F32, {7})));
  CHECK(Agree(g, h).error->code == absl::StatusCode::kOutOfRange);
  CHECK(Mentions(Agree(g, h), "rank 1 (w1)"));
  h[1] = MakeCollectiveHeader(g, 1, CallOf(v1::ALL_GATHER), 0, Value(), *Tensor::OnHost(v1::F32, {8}));
  CHECK(Mentions(Agree(g, h), "no value"));
}

TEST_CASE("agree: calls that cannot be") {
  const GroupInfo g = Group(2);
  const auto error = [&](CollectiveCall c, DType d, const Dims& dims) {
    return Agree(g, Headers(g, c, std::vector<Value>(2, ValueOf(d, dims))));
  };
  CHECK(Mentions(error(CallOf(v1::REDUCE_SCATTER), v1::F32, {3}), "divide"));
  CHECK(Mentions(error(CallOf(v1::REDUCE_SCATTER), v1::F32, {}), "divide"));
  CHECK(Mentions(error(CallOf(v1::ALL_GATHER), v1::F32, {}), "scalar"));
  CHECK(Mentions(error(CallOf(v1::ALL_REDUCE), v1::BOOL, {2}), "BOOL"));
  CollectiveCall b = CallOf(v1::BROADCAST);
  b.root_rank = 2;
  CHECK(Mentions(error(b, v1::F32, {2}), "root rank 2"));
  CHECK(Mentions(error(CallOf(static_cast<v1::CollectiveOp>(99)), v1::F32, {2}), "99"));
  CollectiveCall r = CallOf(v1::ALL_REDUCE);
  r.reduce = v1::REDUCE_OP_UNSPECIFIED;
  CHECK(error(r, v1::F32, {2}).error != nullptr);
}

}  // namespace
}  // namespace weft
