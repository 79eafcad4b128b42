#pragma once

// Test cases that hold for the fake of CUDA and for a real GPU alike, written once:
//
//   WEFT_GPU_CASE("kernels: what holds") { ... gpu.kernels()->Fill(...) ... }
//
// is a case of every run, on the fake, and one more with the tag [gpu], which only a run that asks for it has, on the machine's first GPU and the
// library that LoadCudaPlugin("") finds. Where there is none, a [gpu] case fails and says why: whoever starts it looks for a GPU first.

#include <catch2/catch.hpp>
#include <memory>

#include "common/base/clock.h"
#include "common/device/cuda/cuda_device.h"
#include "common/device/cuda/fake/fake_kernels.h"
#include "common/device/cuda/fake/fake_plugin.h"
#include "common/tensor/tensor.h"

namespace weft {

class TestGpu {
 public:
  // A GPU of its own for a case.
  static std::unique_ptr<TestGpu> Fake();
  // The process's one. Fails the case where there is none.
  static TestGpu& Real();
  ~TestGpu();

  bool real() const { return fake_ == nullptr; }
  CudaDevice* device() const { return device_.get(); }
  CudaApi* api() const { return device_->api(); }
  KernelsApi* kernels() const { return device_->kernels(); }
  // nullptr on a real GPU.
  FakeKernels* fake_kernels() const { return fake_kernels_.get(); }
  // A compute lane's, and its CUDA handle.
  Stream* stream() const { return stream_.get(); }
  void* native() const { return stream_->native(); }
  // Delay may be used from then on.
  void Calibrate();

  // Device memory full of rubbish; `shift` elements behind an address that is a multiple of 256.
  Tensor Rubbish(DType dtype, const Dims& dims, int64_t shift = 0);
  // The host tensor's elements on the device, and back. They wait for the stream.
  Tensor Upload(const Tensor& host, int64_t shift = 0);
  Tensor Download(const Tensor& on_device);
  // A status word on the device, and what it holds.
  Tensor NewStatus(uint64_t word = 0);
  uint64_t StatusWord(const Tensor& status);
  // Waits for the stream.
  void Sync();

 private:
  TestGpu() = default;
  void Start(const CudaPlugin& plugin);

  std::unique_ptr<FakePlugin> fake_;
  std::unique_ptr<FakeKernels> fake_kernels_;
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Stream> stream_;
  bool calibrated_ = false;
};

// A status word in a tensor of NewStatus.
inline DeviceStatus* StatusIn(const Tensor& t) { return static_cast<DeviceStatus*>(t.data()); }

#define WEFT_GPU_CASE_(function, name, tags)                                             \
  static void function(::weft::TestGpu& gpu);                                            \
  TEST_CASE(name) { function(*::weft::TestGpu::Fake()); }                                \
  TEST_CASE(name " (on a GPU)", "[.][gpu]" tags) { function(::weft::TestGpu::Real()); }  \
  static void function([[maybe_unused]] ::weft::TestGpu& gpu)
#define WEFT_GPU_CASE(name) WEFT_GPU_CASE_(INTERNAL_CATCH_UNIQUE_NAME(WeftGpuCase), name, "")

// Of weft's own device code alone, and little of it: compute-sanitizer runs those with the tag [kernels].
#define WEFT_KERNELS_CASE(name) WEFT_GPU_CASE_(INTERNAL_CATCH_UNIQUE_NAME(WeftGpuCase), name, "[kernels]")

// Of a real GPU only.
#define WEFT_REAL_GPU_CASE_(function, name)                                              \
  static void function(::weft::TestGpu& gpu);                                            \
  TEST_CASE(name " (on a GPU)", "[.][gpu]") { function(::weft::TestGpu::Real()); }       \
  static void function([[maybe_unused]] ::weft::TestGpu& gpu)
#define WEFT_REAL_GPU_CASE(name) WEFT_REAL_GPU_CASE_(INTERNAL_CATCH_UNIQUE_NAME(WeftGpuCase), name)

}  // namespace weft
