#pragma once

// std.Linear's arithmetic, for the actor and for a reference that computes the same network in one process.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tensor/tensor.h"

namespace weft {

enum class Activation { kNone, kRelu, kGelu, kTanh, kSigmoid };

// "" and "none", "relu", "gelu" (x·Φ(x) by erf, not its approximation), "tanh", "sigmoid". InvalidArgument lists them.
absl::StatusOr<Activation> ParseActivation(const std::string& name);

float Activate(Activation a, float x);
double Activate(Activation a, double x);

// dy * f'(x) by y = f(x). Not for kGelu, whose slope y does not tell.
float ActivationGradient(Activation a, float y, float dy);
double ActivationGradient(Activation a, double y, double dy);

struct LinearParameters {
  Tensor weights;  // [out_features, in_features]
  Tensor bias;     // [out_features]
};

// Uniform in ±1/sqrt(in_features): with u = UniformDouble(CounterBits(seed, s, i)) of random.h, element i is (2u - 1) / sqrt(in),
// computed in double and rounded to `dtype` (F16 and BF16 by way of F32). Stream s is 0 for the weights (i row-major in [out, in])
// and 1 for the bias. InvalidArgument for sizes below 1 or a dtype that is no float; ResourceExhausted when they are larger than this
// host's memory.
absl::StatusOr<LinearParameters> LinearWeights(int64_t in_features, int64_t out_features, uint64_t seed, DType dtype);

// out[b, out_features] = activation(x[b, in_features] · weightsᵀ + bias), all of one dtype, F32 or F64. Pre: the shapes fit.
absl::Status LinearForward(const Tensor& x, const LinearParameters& p, Activation activation, const Tensor& out);

}  // namespace weft
