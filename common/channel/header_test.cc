#include "common/channel/header.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>

namespace weft {
namespace {

bool Has(const absl::Status& s, const std::string& text) { return std::string(s.message()).find(text) != std::string::npos; }

Spec SpecOf(const std::string& shape) { return Spec{v1::F32, *Shape::Parse(shape)}; }

TEST_CASE("header: a value fits its own spec") {
  const Tensor t = *Tensor::OnHost(v1::F32, {2, 3});
  const MessageHeader h = MakeHeader(7, 4, 9, 10, t, nullptr);
  CHECK(CheckHeader(h, 7, 4, 9, 10, SpecOf("[2, ?<=3]")).ok());
  CHECK(DimsOf(h) == Dims{2, 3});
  CHECK(h.bytes == 24);
  CHECK(ErrorOf(h) == nullptr);
}

TEST_CASE("header: each mismatch has its code and names both sides") {
  const Tensor t = *Tensor::OnHost(v1::F32, {2, 3});
  const MessageHeader good = MakeHeader(7, 4, 9, 10, t, nullptr);
  const Spec spec = SpecOf("[2, 3]");

  MessageHeader h = good;
  h.magic = 1;
  CHECK(CheckHeader(h, 7, 4, 9, 10, spec).code() == absl::StatusCode::kDataLoss);
  h = good;
  h.version = 2;
  CHECK(CheckHeader(h, 7, 4, 9, 10, spec).code() == absl::StatusCode::kDataLoss);
  CHECK(CheckHeader(good, 8, 4, 9, 10, spec).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(CheckHeader(good, 7, 5, 9, 10, spec).code() == absl::StatusCode::kInternal);
  CHECK(CheckHeader(good, 7, 4, 8, 10, spec).code() == absl::StatusCode::kInternal);
  CHECK(CheckHeader(good, 7, 4, 9, 11, spec).code() == absl::StatusCode::kInternal);

  const absl::Status shape = CheckHeader(good, 7, 4, 9, 10, SpecOf("[2, ?<=2]"));
  CHECK(shape.code() == absl::StatusCode::kOutOfRange);
  CHECK(Has(shape, "F32[2, 3]"));
  CHECK(Has(shape, "F32[2, ?<=2]"));
  CHECK(CheckHeader(good, 7, 4, 9, 10, Spec{v1::F64, *Shape::Parse("[2, 3]")}).code() == absl::StatusCode::kOutOfRange);
  h = good;
  h.bytes = 25;
  CHECK(CheckHeader(h, 7, 4, 9, 10, spec).code() == absl::StatusCode::kOutOfRange);
  h = good;
  h.rank = 200;
  CHECK(CheckHeader(h, 7, 4, 9, 10, spec).code() == absl::StatusCode::kDataLoss);
  h = good;
  h.dims[0] = -2;
  CHECK_FALSE(CheckHeader(h, 7, 4, 9, 10, SpecOf("[?, ?]")).ok());
  h.dims[0] = h.dims[1] = int64_t{1} << 62;
  CHECK_FALSE(CheckHeader(h, 7, 4, 9, 10, SpecOf("[?, ?]")).ok());
}

TEST_CASE("header: an error travels in the value's place") {
  auto error = std::make_shared<TaskError>();
  error->worker = "w3";
  error->node = "square0";
  error->execution = 5;
  error->code = absl::StatusCode::kInvalidArgument;
  error->message = "no such thing";
  MessageHeader h = MakeHeader(7, 4, 9, 10, *Tensor::OnHost(v1::F32, {2}), error);
  CHECK(h.bytes == 0);
  CHECK(CheckHeader(h, 7, 4, 9, 10, SpecOf("[2, 3]")).ok());
  const TaskErrorRef back = ErrorOf(h);
  REQUIRE(back != nullptr);
  CHECK(back->ToString() == "node square0 on w3, execution 5: no such thing");
  CHECK(back->code == absl::StatusCode::kInvalidArgument);
  h.bytes = 4;
  CHECK(CheckHeader(h, 7, 4, 9, 10, SpecOf("[2, 3]")).code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("header: long texts are cut between characters") {
  constexpr size_t kLimit = sizeof(MessageHeader().error_message);
  auto error = std::make_shared<TaskError>();
  error->code = absl::StatusCode::kOk;  // no code of an error: must not turn into a value
  error->message = std::string(kLimit - 6, 'a');
  for (int i = 0; i < 20; ++i) error->message += "\xc3\xa4";
  const MessageHeader h = MakeHeader(1, 0, 0, 0, Tensor(), error);
  const TaskErrorRef back = ErrorOf(h);
  REQUIRE(back != nullptr);
  CHECK(back->code == absl::StatusCode::kUnknown);
  CHECK(back->message.size() < kLimit);
  CHECK(back->message == std::string(kLimit - 6, 'a') + "\xc3\xa4...");
}

TEST_CASE("header: a control edge moves no value") {
  const MessageHeader h = MakeHeader(1, 2, 3, 4, Tensor(), nullptr);
  CHECK(CheckHeader(h, 1, 2, 3, 4, Spec()).ok());
  CHECK_FALSE(CheckHeader(h, 1, 2, 3, 4, SpecOf("[]")).ok());
}

TEST_CASE("header: random bytes are read without harm") {
  std::mt19937_64 rng(1);
  for (int i = 0; i < 20000; ++i) {
    MessageHeader h;
    auto* bytes = reinterpret_cast<unsigned char*>(&h);
    for (size_t b = 0; b < sizeof h; ++b) bytes[b] = static_cast<unsigned char>(rng());
    if (i % 2 == 0) {
      h.magic = MessageHeader::kMagic;
      h.version = 1;
      h.plan_hash = 1;
      h.edge = 2;
      h.execution = 3;
      h.sequence = 4;
    }
    if (i % 4 == 0) {
      h.dtype = v1::F32;
      h.rank = 2;
    }
    const absl::Status s = CheckHeader(h, 1, 2, 3, 4, SpecOf("[?, ?]"));
    if (i % 2 == 1) CHECK_FALSE(s.ok());
    const TaskErrorRef e = ErrorOf(h);
    if (e != nullptr) CHECK(e->message.size() <= sizeof h.error_message);
    CHECK(DimsOf(h).size() <= kMaxRank);
  }
}

TEST_CASE("header: plan hashes as numbers") {
  CHECK(HashAsNumber("00000000000000ff") == 255);
  CHECK(HashAsNumber("ffffffffffffffff") == ~uint64_t{0});
  CHECK(HashAsNumber("x") != HashAsNumber("y"));
}

}  // namespace
}  // namespace weft
