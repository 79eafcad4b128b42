#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/actor/actor.h"

namespace weft {

// Up to so many bytes of arguments an elementwise call is shorter than a hand-over to another thread.
constexpr size_t kInlineBytes = 32 << 10;
// A matrix product does more work per byte.
constexpr size_t kInlineMatrixBytes = 4 << 10;

// One method whose result depends on its call alone.
struct StdMethod {
  const char* name;
  int min_args;
  int max_args;        // -1: any number
  int outputs;         // -1: as many as the task has
  size_t inline_bytes;
  absl::Status (*run)(CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs);
};

// NotFound names the class, the method and those there are.
absl::StatusOr<int> FindMethod(const std::string& cls, const std::vector<StdMethod>& methods, const std::string& name);

// Whether a call has as many arguments and outputs as the method takes. A plan that was edited by hand may say otherwise.
absl::Status CheckCounts(const StdMethod& method, size_t args, size_t outs);

size_t TotalBytes(const std::vector<Tensor>& tensors);

// "argument 1 is F32[2, 3]: what".
absl::Status BadArgument(size_t index, const Tensor& arg, const std::string& what);

// An actor without state.
class TableActor : public Actor {
 public:
  TableActor(std::string cls, std::vector<StdMethod> methods) : cls_(std::move(cls)), methods_(std::move(methods)) {}

  absl::StatusOr<int> Method(const std::string& name) const override { return FindMethod(cls_, methods_, name); }
  bool RunsInline(int method, const std::vector<Tensor>& args) const override;
  absl::Status Call(int method, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override;

 private:
  const std::string cls_;
  const std::vector<StdMethod> methods_;
};

}  // namespace weft
