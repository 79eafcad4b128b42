#pragma once

// weft's own actor classes on CUDA: those of worker/actor/std, with the same results. Calls only launch, on the call's stream. Made for a
// CudaDevice, which outlives them.
//
// Results are those of the CPU bit for bit, but for: products of F32 and F64 (cuBLAS sums in another order) and what Linear and
// Mlp make of them;
// reductions of floats over more than 4096 elements (reduce_order.h); which NaN an operation gives.

#include "common/device/cuda/cuda_device.h"
#include "worker/actor/actor.h"

namespace weft {

// std.Identity, std.Add, std.Scale, std.Split, std.Concat, std.Reduce, std.Gemm, std.Math.
void RegisterCudaMathActors(ActorRegistry* registry);
// std.Source, std.Constant.
void RegisterCudaSourceActors(ActorRegistry* registry);
// std.Linear.
void RegisterCudaLinearActor(ActorRegistry* registry);
// std.Mlp.
void RegisterCudaMlpActor(ActorRegistry* registry);
// std.Delay, std.Fail, std.Check.
void RegisterCudaTestingActors(ActorRegistry* registry);
// weft.Bucket, for the compiler alone: copies on the call's stream.
void RegisterCudaBucketActor(ActorRegistry* registry);

// All of them.
void RegisterCudaActors(ActorRegistry* registry);

}  // namespace weft
