#include "common/tensor/tensor.h"

#include <catch2/catch.hpp>
#include <limits>

namespace weft {
namespace {

TEST_CASE("shape: text both ways") {
  for (const char* t : {"[]", "[4]", "[4, ?<=1024, ?]", "[0, ?]"}) CHECK(Shape::Parse(t)->ToString() == t);
  CHECK(Shape::Parse(" [ 4,?<= 8 ] ")->ToString() == "[4, ?<=8]");
  for (const char* t : {"", "4", "[4", "[-1]", "[4,]", "[,]", "[a]", "[?<=]", "[?<=-1]", "[1.5]", "[4 4]", "[?<4]", "[99999999999999]",
                        "[1,1,1,1,1,1,1,1,1]", "[1048576, 1048577]", "[1099511627776, ?<=1099511627776]"}) {
    INFO(t);
    CHECK(Shape::Parse(t).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(Shape::Parse("[1099511627776, 0]").ok());
}

TEST_CASE("shape: what it admits and reserves") {
  const Shape s = *Shape::Parse("[4, ?<=3, 2]");
  CHECK_FALSE(s.IsStatic());
  CHECK_FALSE(s.HasDynamic());
  CHECK(s.MaxElements() == 24);
  CHECK(s.MaxDims() == Dims{4, 3, 2});
  CHECK(s.Admits({4, 0, 2}));
  CHECK(s.Admits({4, 3, 2}));
  CHECK_FALSE(s.Admits({4, 4, 2}));
  CHECK_FALSE(s.Admits({3, 3, 2}));
  CHECK_FALSE(s.Admits({4, 3}));
  CHECK_FALSE(s.Admits({4, -1, 2}));
  const Shape d = *Shape::Parse("[?, 2]");
  CHECK(d.HasDynamic());
  CHECK(d.MaxElements() == std::nullopt);
  CHECK(d.Admits({1 << 20, 2}));
  CHECK(Shape::Of({2, 3}) == *Shape::Parse("[2,3]"));
  CHECK_FALSE(*Shape::Parse("[?<=2]") == *Shape::Parse("[2]"));
}

TEST_CASE("spec: proto both ways, limits") {
  v1::TensorSpec p;
  p.set_dtype(v1::F16);
  p.set_shape("[4, ?<=8]");
  const Spec s = *SpecFromProto(p);
  CHECK(s.ToString() == "F16[4, ?<=8]");
  CHECK(s.MaxBytes() == 64);
  CHECK(*SpecFromProto(SpecToProto(s)) == s);
  p.set_dtype(v1::DTYPE_UNSPECIFIED);
  CHECK_FALSE(SpecFromProto(p).ok());
  p.set_dtype(v1::F64);
  p.set_shape("[1099511627776]");  // 2^40 elements are 8 TiB
  CHECK_FALSE(SpecFromProto(p).ok());
}

TEST_CASE("elements: products never overflow") {
  CHECK(*NumElements({}) == 1);
  CHECK(*NumElements({3, 0, 5}) == 0);
  const int64_t big = std::numeric_limits<int64_t>::max();
  CHECK_FALSE(NumElements({big, big}).ok());
  CHECK_FALSE(NumElements({-1, 0}).ok());
  CHECK(*NumElements({big, 0}) == 0);
  CHECK_FALSE(NumElements(Dims(9, 1)).ok());
}

TEST_CASE("tensor: host memory is aligned, empty ones exist, bad ones do not") {
  const Tensor t = *Tensor::OnHost(v1::F32, {2, 3});
  CHECK(t.bytes() == 24);
  CHECK(reinterpret_cast<uintptr_t>(t.data()) % 64 == 0);
  CHECK(t.ToString() == "F32[2, 3]");
  CHECK(Tensor::OnHost(v1::F32, {0, 5})->bytes() == 0);
  CHECK(Tensor::OnHost(v1::I64, {})->bytes() == 8);
  CHECK_FALSE(Tensor::OnHost(v1::DTYPE_UNSPECIFIED, {1}).ok());
  CHECK_FALSE(Tensor::OnHost(v1::F64, {int64_t{1} << 40}).ok());
  CHECK_FALSE(Tensor().defined());
}

TEST_CASE("tensor: equality is of bits") {
  const Tensor a = *Tensor::OnHost(v1::F32, {2}), b = *Tensor::OnHost(v1::F32, {2});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  a.as<float>()[0] = b.as<float>()[0] = nan;
  a.as<float>()[1] = b.as<float>()[1] = 0.0f;
  CHECK(BitEqual(a, b));
  b.as<float>()[1] = -0.0f;
  CHECK_FALSE(BitEqual(a, b));
  CHECK_FALSE(BitEqual(*Tensor::OnHost(v1::F32, {0}), *Tensor::OnHost(v1::F32, {0, 1})));
}

TEST_CASE("tensor: elements as doubles truncate and saturate") {
  const Tensor i8 = *Tensor::OnHost(v1::I8, {4});
  SetElementFromDouble(i8, 0, 300);
  SetElementFromDouble(i8, 1, -1.9);
  SetElementFromDouble(i8, 2, std::numeric_limits<double>::quiet_NaN());
  SetElementFromDouble(i8, 3, -1e300);
  CHECK(i8.as<int8_t>()[0] == 127);
  CHECK(i8.as<int8_t>()[1] == -1);
  CHECK(i8.as<int8_t>()[2] == 0);
  CHECK(i8.as<int8_t>()[3] == -128);
  for (const DType d : {v1::F16, v1::BF16, v1::F32, v1::F64, v1::I8, v1::U8, v1::I16, v1::I32, v1::I64, v1::BOOL}) {
    const Tensor t = *Tensor::OnHost(d, {1});
    SetElementFromDouble(t, 0, 1);
    CHECK(ElementAsDouble(t, 0) == 1);
  }
}

}  // namespace
}  // namespace weft
