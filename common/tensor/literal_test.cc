#include "common/tensor/literal.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace weft {
namespace {

Spec MakeSpec(DType d, const char* shape) { return Spec{d, *Shape::Parse(shape)}; }

TEST_CASE("literal: nested brackets give shape and elements in order") {
  const Tensor t = *ParseLiteral(" [[1,2.5, -3e2],\n[4, inf, nan]] ", MakeSpec(v1::F32, "[2, ?<=4]"));
  CHECK(t.dims() == Dims{2, 3});
  CHECK(t.as<float>()[1] == 2.5f);
  CHECK(t.as<float>()[2] == -300.0f);
  CHECK(t.as<float>()[3] == 4.0f);
  CHECK(std::isinf(t.as<float>()[4]));
  CHECK(std::isnan(t.as<float>()[5]));
  CHECK(ParseLiteral("[\"-inf\", \"nan\"]", MakeSpec(v1::F64, "[2]"))->as<double>()[0] == -INFINITY);
  CHECK(ParseLiteral("[]", MakeSpec(v1::I8, "[?]"))->dims() == Dims{0});
  CHECK(ParseLiteral("[[], []]", MakeSpec(v1::I8, "[2, ?]"))->dims() == Dims{2, 0});
  CHECK(ParseLiteral("[9223372036854775807, -9223372036854775808]", MakeSpec(v1::I64, "[2]"))->as<int64_t>()[0] == INT64_MAX);
  CHECK(ParseLiteral("[true, 0, FALSE, 1]", MakeSpec(v1::BOOL, "[4]"))->as<uint8_t>()[0] == 1);
  CHECK(ParseLiteral("[1e2]", MakeSpec(v1::I8, "[1]"))->as<int8_t>()[0] == 100);
}

TEST_CASE("literal: a bare number fills a static shape") {
  CHECK(ParseLiteral("3", MakeSpec(v1::F32, "[]"))->as<float>()[0] == 3);
  CHECK(ParseLiteral("3", MakeSpec(v1::F32, "[1]"))->dims() == Dims{1});
  const Tensor t = *ParseLiteral("-7", MakeSpec(v1::I16, "[2, 3]"));
  for (int i = 0; i < 6; ++i) CHECK(t.as<int16_t>()[i] == -7);
  CHECK(ParseLiteral("1", MakeSpec(v1::F16, "[0, 4]"))->elements() == 0);
  CHECK_FALSE(ParseLiteral("3", MakeSpec(v1::F32, "[?<=4]")).ok());
  CHECK_FALSE(ParseLiteral("3", MakeSpec(v1::F32, "[?]")).ok());
}

TEST_CASE("literal: every malformed text is refused with a place") {
  for (const char* t : {"", " ", "[", "]", "[1", "1]", "[1,]", "[,1]", "[1,,2]", "[1 2]", "[1][2]", "1 2", "[[1],[2,3]]", "[[1],2]", "[1,[2]]",
                        "[[],[1]]", "[[[]],[]]", "[[],[[]]]", "[\"nan]", "[abc]", "[0x10]", "[--1]", "[1e]", "[\"\"]", "[true]", "[1e400]",
                        "[[[[[[[[[1]]]]]]]]]"}) {
    INFO(t);
    for (const char* shape : {"[?]", "[?, ?]", "[?, ?, ?]"}) {
      const absl::Status s = ParseLiteral(t, MakeSpec(v1::F32, shape)).status();
      CHECK(s.code() == absl::StatusCode::kInvalidArgument);
      CHECK(std::string(s.message()).find("literal") == 0);
    }
  }
  // Depth costs no stack.
  CHECK_FALSE(ParseLiteral(std::string(1 << 20, '['), MakeSpec(v1::F32, "[?]")).ok());
}

TEST_CASE("literal: what does not fit is refused, not saturated") {
  for (const auto& [t, d] : std::initializer_list<std::pair<const char*, DType>>{{"[128]", v1::I8},
                                                                                 {"[-1]", v1::U8},
                                                                                 {"[1.5]", v1::I32},
                                                                                 {"[nan]", v1::I32},
                                                                                 {"[inf]", v1::I64},
                                                                                 {"[9223372036854775808]", v1::I64},
                                                                                 {"[2]", v1::BOOL},
                                                                                 {"[1e6]", v1::F16},
                                                                                 {"[65520]", v1::F16},
                                                                                 {"[1e39]", v1::F32},
                                                                                 {"[3.4e38]", v1::F16},
                                                                                 {"[3.3999e38]", v1::I64}}) {
    INFO(t);
    CHECK(ParseLiteral(t, MakeSpec(d, "[1]")).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(ParseLiteral("[65519]", MakeSpec(v1::F16, "[1]")).ok());
}

TEST_CASE("literal: the shape must be the declared one") {
  CHECK_FALSE(ParseLiteral("[1,2,3]", MakeSpec(v1::F32, "[2]")).ok());
  CHECK_FALSE(ParseLiteral("[1,2,3]", MakeSpec(v1::F32, "[?<=2]")).ok());
  CHECK_FALSE(ParseLiteral("[[1]]", MakeSpec(v1::F32, "[1]")).ok());
  CHECK_FALSE(ParseLiteral("[1]", MakeSpec(v1::F32, "[]")).ok());
}

}  // namespace
}  // namespace weft
