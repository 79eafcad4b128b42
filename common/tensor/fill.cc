#include "common/tensor/fill.h"

#include <cmath>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/tensor/arith.h"
#include "common/tensor/random.h"

namespace weft {
namespace {

// An integer in the dtype of `t`: exact where it fits, else wrapped around or rounded.
void StoreNumber(const Tensor& t, int64_t i, int64_t v) {
  if (t.dtype() == v1::BOOL) {
    t.as<uint8_t>()[i] = v != 0;
    return;
  }
  (void)ForElementType(t.dtype(), [&](auto e) {
    using E = decltype(e);
    t.as<typename E::Storage>()[i] = E::Store(static_cast<typename E::Compute>(v));
    return absl::OkStatus();
  });
}

// Copies element 0 to all others.
void Spread(const Tensor& t) {
  const size_t size = SizeOf(t.dtype());
  const size_t total = t.bytes();
  for (size_t done = size; done < total;) {
    const size_t n = std::min(done, total - done);
    std::memcpy(t.as<char>() + done, t.data(), n);
    done += n;
  }
}

void Random(const Tensor& t, uint64_t seed, int64_t execution) {
  const uint64_t stream = static_cast<uint64_t>(execution);
  for (int64_t i = 0; i < t.elements(); ++i) {
    const uint64_t bits = CounterBits(seed, stream, static_cast<uint64_t>(i));
    switch (t.dtype()) {
      case v1::F64: t.as<double>()[i] = UniformDouble(bits); break;
      case v1::F32: t.as<float>()[i] = UniformFloat(bits); break;
      case v1::F16: t.as<uint16_t>()[i] = FloatToHalf(static_cast<float>(bits >> 53) * 0x1p-11f); break;
      case v1::BF16: t.as<uint16_t>()[i] = FloatToBFloat16(static_cast<float>(bits >> 56) * 0x1p-8f); break;
      case v1::BOOL: t.as<uint8_t>()[i] = static_cast<uint8_t>(bits >> 63); break;
      default: StoreNumber(t, i, static_cast<int64_t>((bits >> 32) * 10 >> 32)); break;
    }
  }
}

}  // namespace

absl::StatusOr<Fill> Fill::Parse(const std::string& text) {
  if (text == "execution") return Fill{kExecution, 0};
  if (text == "zeros") return Fill{kNumber, 0};
  if (text == "ones") return Fill{kNumber, 1};
  if (text == "iota") return Fill{kIota, 0};
  if (text == "random") return Fill{kRandom, 0};
  double v = 0;
  if (!absl::SimpleAtod(text, &v) || !std::isfinite(v)) {
    return absl::InvalidArgumentError(absl::StrCat("config.fill \"", text.substr(0, 40),
                                                   "\" is not one of execution, zeros, ones, iota, random, or a finite number"));
  }
  return Fill{kNumber, v};
}

void FillTensor(const Fill& fill, uint64_t seed, int64_t execution, const Tensor& out) {
  if (out.elements() == 0) return;
  switch (fill.kind) {
    case Fill::kExecution:
      StoreNumber(out, 0, execution);
      Spread(out);
      break;
    case Fill::kNumber:
      SetElementFromDouble(out, 0, fill.number);
      Spread(out);
      break;
    case Fill::kIota:
      for (int64_t i = 0; i < out.elements(); ++i) StoreNumber(out, i, i);
      break;
    case Fill::kRandom:
      Random(out, seed, execution);
      break;
  }
}

}  // namespace weft
