#pragma once

#include "common/device/cuda/api/kernels_api.h"

namespace weft {

// Kernels in which one thing is wrong: where FailOn should set a status word, it writes to address 0. So std.Fail with config.on_device breaks the
// GPU for good in just the executions in which it was to fail, launched op by op or captured: a sticky error, as a bad kernel of a user makes it.
// Over the real kernels and over the fake's.
class FaultyKernels : public KernelsApi {
 public:
  explicit FaultyKernels(KernelsApi* inner) : inner_(inner) {}  // outlives this

  int FailOn(const int64_t* on, int count, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus*, void* stream) override {
    return inner_->FailOn(on, count, code_and_node, execution, nullptr, stream);
  }

  int Load(const char** problem) override { return inner_->Load(problem); }
  int OpenStream(void* stream) override { return inner_->OpenStream(stream); }
  void CloseStream(void* stream) override { inner_->CloseStream(stream); }
  int Fill(DeviceFill kind, double number, uint64_t seed, ExecutionNumber execution, int dtype, void* out, int64_t n, void* stream) override {
    return inner_->Fill(kind, number, seed, execution, dtype, out, n, stream);
  }
  int Add(int dtype, const void* const* args, int count, void* out, int64_t n, void* stream) override {
    return inner_->Add(dtype, args, count, out, n, stream);
  }
  int Scale(int dtype, const void* x, double factor, void* out, int64_t n, void* stream) override {
    return inner_->Scale(dtype, x, factor, out, n, stream);
  }
  int Reduce(DeviceReduce how, int dtype, const void* x, int64_t outer, int64_t size, int64_t inner, void* out, void* stream) override {
    return inner_->Reduce(how, dtype, x, outer, size, inner, out, stream);
  }
  int Matmul(int dtype, DevicePrecision precision, const void* a, const void* b, void* c, int64_t m, int64_t n, int64_t k, void* stream) override {
    return inner_->Matmul(dtype, precision, a, b, c, m, n, k, stream);
  }
  int Linear(int dtype, DevicePrecision precision, DeviceActivation activation, const void* x, const void* w, const void* bias, void* y,
             int64_t batch, int64_t in, int64_t out, void* stream) override {
    return inner_->Linear(dtype, precision, activation, x, w, bias, y, batch, in, out, stream);
  }
  int Gemm(int dtype, DevicePrecision precision, const void* a, bool a_transposed, const void* b, bool b_transposed, void* c, int64_t m, int64_t n,
           int64_t k, bool accumulate, void* stream) override {
    return inner_->Gemm(dtype, precision, a, a_transposed, b, b_transposed, c, m, n, k, accumulate, stream);
  }
  int ActivationGradient(int dtype, DeviceActivation activation, const void* y, const void* dy, void* dx, int64_t n, void* stream) override {
    return inner_->ActivationGradient(dtype, activation, y, dy, dx, n, stream);
  }
  int Delay(int64_t ns, int blocks, void* stream) override { return inner_->Delay(ns, blocks, stream); }
  int Calibrate() override { return inner_->Calibrate(); }
  int CombineStatus(const DeviceStatus* const* from, int count, DeviceStatus* to, void* stream) override {
    return inner_->CombineStatus(from, count, to, stream);
  }
  int CheckFinite(int dtype, const void* x, int64_t n, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus* to, void* stream) override {
    return inner_->CheckFinite(dtype, x, n, code_and_node, execution, to, stream);
  }
  int Advance(int64_t* counter, void* stream) override { return inner_->Advance(counter, stream); }
  int Nothing(void* stream) override { return inner_->Nothing(stream); }
  int IllegalAddress(void* stream) override { return inner_->IllegalAddress(stream); }

 private:
  KernelsApi* const inner_;
};

}  // namespace weft
