#include "worker/actor/cuda/math_methods.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/actor/std/checks.h"

namespace weft::gpu_methods {
namespace {

// Of one Add kernel.
constexpr size_t kMaxArgs = 64;
// cudaMemcpy2D's limit of a row.
constexpr size_t kMaxPitch = INT32_MAX;

absl::Status Identity(CudaDevice& device, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, args[0].dtype(), args[0].dims()));
  return CopyOnDevice(device, ctx, args[0], outs->at(0));
}

absl::Status Add(CudaDevice& device, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  WEFT_RETURN_IF_ERROR(CheckAdd(args));
  const DType dtype = args[0].dtype();
  if (args.size() > kMaxArgs && (dtype == v1::F16 || dtype == v1::BF16)) {
    // Their sum is rounded once, so it cannot be made in pieces.
    return absl::InvalidArgumentError(absl::StrCat("add of ", DTypeName(dtype), " takes at most ", kMaxArgs, " arguments on CUDA, not ",
                                                   args.size(), "; add them in two steps"));
  }
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, dtype, args[0].dims()));
  const Tensor& out = outs->at(0);
  std::vector<const void*> inputs;
  for (size_t from = 0; from < args.size();) {
    inputs.clear();
    if (from > 0) inputs.push_back(out.data());
    while (from < args.size() && inputs.size() < kMaxArgs) inputs.push_back(args[from++].data());
    WEFT_RETURN_IF_ERROR(device.Check(device.kernels()->Add(dtype, inputs.data(), static_cast<int>(inputs.size()), out.data(), out.elements(),
                                                            ctx.stream()->native()),
                                      "launching add"));
  }
  return absl::OkStatus();
}

absl::Status Scale(CudaDevice& device, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  const Tensor& x = args[0];
  WEFT_RETURN_IF_ERROR(CheckScale(ctx.config(), x));
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, x.dtype(), x.dims()));
  return device.Check(
      device.kernels()->Scale(x.dtype(), x.data(), ctx.config().scale(), outs->at(0).data(), x.elements(), ctx.stream()->native()),
      "launching scale");
}

absl::Status Reduce(CudaDevice& device, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  const Tensor& x = args[0];
  WEFT_ASSIGN_OR_RETURN(const ReduceCall call, CheckReduce(ctx.config(), x));
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, x.dtype(), call.dims));
  static_assert(static_cast<int>(DeviceReduce::kSum) == ReduceCall::kSum && static_cast<int>(DeviceReduce::kMean) == ReduceCall::kMean);
  static_assert(static_cast<int>(DeviceReduce::kMax) == ReduceCall::kMax && static_cast<int>(DeviceReduce::kMin) == ReduceCall::kMin);
  return device.Check(device.kernels()->Reduce(static_cast<DeviceReduce>(call.how), x.dtype(), x.data(), call.view.outer, call.view.size,
                                               call.view.inner, outs->at(0).data(), ctx.stream()->native()),
                      "launching reduce");
}

// `value`, which a double holds exactly, into element `i`.
absl::Status Put(CudaDevice& device, CallContext& ctx, const Tensor& out, int64_t i, double value) {
  void* const at = out.as<char>() + static_cast<size_t>(i) * SizeOf(out.dtype());
  return device.Check(
      device.kernels()->Fill(DeviceFill::kNumber, value, 0, {nullptr, 0}, out.dtype(), at, 1, ctx.stream()->native()), "launching fill");
}

absl::Status Peek(CudaDevice& device, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  const Tensor& x = args[0];
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, x.dtype(), {1}));
  WEFT_ASSIGN_OR_RETURN(outs->at(1), ctx.AllocateOutput(1, v1::I64, {static_cast<int64_t>(x.dims().size())}));
  WEFT_ASSIGN_OR_RETURN(outs->at(2), ctx.AllocateOutput(2, v1::I32, {1}));
  if (x.elements() > 0) {
    WEFT_RETURN_IF_ERROR(CopyOnDevice(device, ctx, outs->at(0).data(), x.data(), SizeOf(x.dtype())));
  } else {
    WEFT_RETURN_IF_ERROR(Put(device, ctx, outs->at(0), 0, 0));
  }
  // By kernels and not by copies from the host, which a captured graph would repeat from memory that has gone.
  for (size_t i = 0; i < x.dims().size(); ++i) {
    WEFT_RETURN_IF_ERROR(Put(device, ctx, outs->at(1), static_cast<int64_t>(i), static_cast<double>(x.dims()[i])));
  }
  return Put(device, ctx, outs->at(2), 0, x.dtype());
}

// `rows` pieces of `bytes`, each `to_pitch` and `from_pitch` behind the one before.
absl::Status CopyRows(CudaDevice& device, CallContext& ctx, char* to, size_t to_pitch, const char* from, size_t from_pitch, size_t bytes,
                      int64_t rows) {
  if (bytes == 0 || rows == 0) return absl::OkStatus();
  if (rows == 1 || (to_pitch == bytes && from_pitch == bytes)) return CopyOnDevice(device, ctx, to, from, bytes * static_cast<size_t>(rows));
  if (std::max(to_pitch, from_pitch) > kMaxPitch) {
    for (int64_t r = 0; r < rows; ++r) WEFT_RETURN_IF_ERROR(CopyOnDevice(device, ctx, to + r * to_pitch, from + r * from_pitch, bytes));
    return absl::OkStatus();
  }
  return device.Check(
      device.api()->Memcpy2DAsync(to, to_pitch, from, from_pitch, bytes, static_cast<size_t>(rows), ctx.stream()->native()),
      "copying on the device");
}

absl::Status Split(CudaDevice& device, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  const Tensor& x = args[0];
  WEFT_ASSIGN_OR_RETURN(const SplitCall call, CheckSplit(ctx.config(), x, outs->size()));
  const size_t row = static_cast<size_t>(call.view.size * call.view.inner) * SizeOf(x.dtype());
  const size_t piece = row / outs->size();
  for (size_t p = 0; p < outs->size(); ++p) {
    WEFT_ASSIGN_OR_RETURN(outs->at(p), ctx.AllocateOutput(static_cast<int>(p), x.dtype(), call.dims));
    WEFT_RETURN_IF_ERROR(CopyRows(device, ctx, outs->at(p).as<char>(), piece, x.as<char>() + p * piece, row, piece, call.view.outer));
  }
  return absl::OkStatus();
}

absl::Status Concat(CudaDevice& device, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  WEFT_ASSIGN_OR_RETURN(const ConcatCall call, CheckConcat(ctx.config(), args));
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, args[0].dtype(), call.dims));
  const auto bytes = [&](int64_t size) { return static_cast<size_t>(size * call.view.inner) * SizeOf(args[0].dtype()); };
  const size_t row = bytes(call.dims[call.axis]);
  char* to = outs->at(0).as<char>();
  for (const Tensor& a : args) {
    const size_t piece = bytes(a.dims()[call.axis]);
    WEFT_RETURN_IF_ERROR(CopyRows(device, ctx, to, row, a.as<char>(), piece, piece, call.view.outer));
    to += piece;
  }
  return absl::OkStatus();
}

absl::Status Product(CudaDevice& device, CallContext& ctx, const Tensor& a, const Tensor& b, std::vector<Tensor>* outs) {
  WEFT_ASSIGN_OR_RETURN(const DevicePrecision precision, PrecisionOf(ctx.config()));
  const int64_t m = a.dims()[0], k = a.dims()[1], n = b.dims()[1];
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, a.dtype(), {m, n}));
  return device.Check(
      device.kernels()->Matmul(a.dtype(), precision, a.data(), b.data(), outs->at(0).data(), m, n, k, ctx.stream()->native()),
      "launching a matrix product");
}

absl::Status Matmul(CudaDevice& device, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  WEFT_RETURN_IF_ERROR(CheckProduct(args[0], args[1]));
  return Product(device, ctx, args[0], args[1], outs);
}

absl::Status Square(CudaDevice& device, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  WEFT_RETURN_IF_ERROR(CheckSquare(args[0]));
  return Product(device, ctx, args[0], args[0], outs);
}

}  // namespace

CudaMethod IdentityMethod() { return {{"identity", 1, 1, 1, 0, nullptr}, Identity}; }
CudaMethod AddMethod() { return {{"add", 1, -1, 1, 0, nullptr}, Add}; }
CudaMethod ScaleMethod() { return {{"scale", 1, 1, 1, 0, nullptr}, Scale}; }
CudaMethod ReduceMethod() { return {{"reduce", 1, 1, 1, 0, nullptr}, Reduce}; }
CudaMethod PeekMethod() { return {{"peek", 1, 1, 3, 0, nullptr}, Peek}; }
CudaMethod SplitMethod() { return {{"split", 1, 1, -1, 0, nullptr}, Split}; }
CudaMethod ConcatMethod() { return {{"concat", 1, -1, 1, 0, nullptr}, Concat}; }
CudaMethod MatmulMethod() { return {{"matmul", 2, 2, 1, 0, nullptr}, Matmul, true}; }
CudaMethod SquareMethod() { return {{"square", 1, 1, 1, 0, nullptr}, Square, true}; }

}  // namespace weft::gpu_methods
