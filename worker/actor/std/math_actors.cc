#include "worker/actor/std/methods.h"
#include "worker/actor/std/std_actors.h"

namespace weft {
namespace {

void RegisterTable(ActorRegistry* registry, const std::string& cls, std::vector<StdMethod> methods) {
  registry->Register(cls, [cls, methods = std::move(methods)](const v1::Config&, Device*) -> absl::StatusOr<std::unique_ptr<Actor>> {
    return std::make_unique<TableActor>(cls, methods);
  });
}

}  // namespace

void RegisterMathActors(ActorRegistry* registry) {
  RegisterTable(registry, "std.Identity", {cpu::IdentityMethod()});
  RegisterTable(registry, "std.Add", {cpu::AddMethod()});
  RegisterTable(registry, "std.Scale", {cpu::ScaleMethod()});
  RegisterTable(registry, "std.Split", {cpu::SplitMethod()});
  RegisterTable(registry, "std.Concat", {cpu::ConcatMethod()});
  RegisterTable(registry, "std.Reduce", {cpu::ReduceMethod()});
  RegisterTable(registry, "std.Gemm",
                {cpu::MatmulMethod(), cpu::SquareMethod(), cpu::AddMethod(), cpu::ScaleMethod(), cpu::IdentityMethod(), cpu::ReduceMethod(), cpu::PeekMethod()});
  RegisterTable(registry, "std.Math",
                {cpu::IdentityMethod(), cpu::AddMethod(), cpu::ScaleMethod(), cpu::SquareMethod(), cpu::MatmulMethod(), cpu::ReduceMethod(), cpu::SplitMethod(),
                 cpu::ConcatMethod(), cpu::PeekMethod()});
}

}  // namespace weft
