#pragma once

// weft's own actor classes on the CPU. What they compute is told in common/classes, from which the compiler knows them.

#include "worker/actor/actor.h"

namespace weft {

// std.Identity, std.Add, std.Scale, std.Split, std.Concat, std.Reduce, std.Gemm, std.Math.
void RegisterMathActors(ActorRegistry* registry);
// std.Source, std.Constant.
void RegisterSourceActors(ActorRegistry* registry);
// std.Linear.
void RegisterLinearActor(ActorRegistry* registry);
// std.Mlp.
void RegisterMlpActor(ActorRegistry* registry);
// std.Delay, std.Fail, std.Check.
void RegisterTestingActors(ActorRegistry* registry);

// All of them, and weft.Bucket (bucket_class.h).
void RegisterStdActors(ActorRegistry* registry);

}  // namespace weft
