#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "common/tensor/literal.h"

namespace weft {
namespace {

using nlohmann::json;

TEST_CASE("tensor JSON: every dtype makes the round trip through text") {
  const double values[] = {0, 1, 0.1, -2.5, 100};
  for (const DType d : {v1::F16, v1::BF16, v1::F32, v1::F64, v1::I8, v1::U8, v1::I16, v1::I32, v1::I64, v1::BOOL}) {
    for (const Dims& dims : {Dims{}, Dims{5}, Dims{1, 5}, Dims{5, 1}, Dims{0, 3}, Dims{int64_t{1} << 40, 0}}) {
      const Tensor t = *Tensor::OnHost(d, dims);
      for (int64_t i = 0; i < t.elements(); ++i) SetElementFromDouble(t, i, values[i]);
      INFO(t.ToString());
      const absl::StatusOr<Tensor> back = TensorFromJson(json::parse(TensorToJson(t).dump()));
      REQUIRE(back.ok());
      CHECK(BitEqual(*back, t));
    }
  }
}

TEST_CASE("tensor JSON: the form is nested, short, and has no bare non-finite numbers") {
  const Tensor t = *Tensor::OnHost(v1::F32, {2, 2});
  t.as<float>()[0] = 0.1f;
  t.as<float>()[1] = std::numeric_limits<float>::infinity();
  t.as<float>()[2] = -std::numeric_limits<float>::infinity();
  t.as<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK(TensorToJson(t).dump() == R"({"data":[[0.1,"inf"],["-inf","nan"]],"dtype":"F32","shape":[2,2]})");
  const Tensor back = *TensorFromJson(TensorToJson(t));
  CHECK(back.as<float>()[2] == t.as<float>()[2]);
  CHECK(std::isnan(back.as<float>()[3]));
}

TEST_CASE("tensor JSON: all floats of a sample come back exactly") {
  const Tensor t = *Tensor::OnHost(v1::F32, {20000});
  uint32_t x = 12345;
  for (int i = 0; i < 20000; ++i) {
    x = x * 1664525 + 1013904223;
    t.as<uint32_t>()[i] = (x & 0x7f800000) == 0x7f800000 ? x & 0xff7fffff : x;
  }
  CHECK(BitEqual(*TensorFromJson(json::parse(TensorToJson(t).dump())), t));
}

TEST_CASE("tensor JSON: 64-bit integers keep every bit; flat data is taken") {
  const Tensor t = *TensorFromJson(json::parse(R"({"dtype":"i64","shape":[2,1],"data":[9223372036854775807,-9223372036854775808]})"));
  CHECK(t.as<int64_t>()[0] == INT64_MAX);
  CHECK(t.as<int64_t>()[1] == INT64_MIN);
  CHECK(TensorFromJson(json::parse(R"({"dtype":"F32","shape":[],"data":[1.5]})"))->as<float>()[0] == 1.5f);
}

TEST_CASE("tensor JSON: malformed objects are refused by field") {
  for (const char* text :
       {"3", "[]", "{}", R"({"dtype":"F32","shape":[1]})", R"({"dtype":3,"shape":[1],"data":[1]})",
        R"({"dtype":"F99","shape":[1],"data":[1]})", R"({"dtype":"F32","shape":3,"data":[1]})", R"({"dtype":"F32","shape":[-1],"data":[1]})",
        R"({"dtype":"F32","shape":[1.5],"data":[1]})", R"({"dtype":"F32","shape":[18446744073709551615],"data":[1]})",
        R"({"dtype":"F32","shape":[2],"data":[1]})", R"({"dtype":"F32","shape":[2,2],"data":[[1,2],[3]]})",
        R"({"dtype":"F32","shape":[2,2],"data":[[1,2],3]})", R"({"dtype":"F32","shape":[1],"data":[null]})",
        R"({"dtype":"F32","shape":[1],"data":[[1]]})", R"({"dtype":"F32","shape":[1],"data":["x"]})",
        R"({"dtype":"I8","shape":[1],"data":[128]})", R"({"dtype":"I64","shape":[1],"data":[9223372036854775808]})",
        R"({"dtype":"F32","shape":[1],"data":[1],"extra":0})", R"({"dtype":"F32","shape":[1000000,1000000],"data":[1]})",
        R"({"dtype":"F32","shape":[],"data":{"a":1}})", R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data":[1]})"}) {
    INFO(text);
    const absl::Status s = TensorFromJson(json::parse(text)).status();
    CHECK(s.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(s.message()).find("tensor in JSON") == 0);
  }
}

}  // namespace
}  // namespace weft
