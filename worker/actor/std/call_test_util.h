#pragma once

// Calls std actors in tests as a worker would.

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "worker/actor/actor.h"

namespace weft {

class TestContext : public CallContext {
 public:
  int64_t execution() const override { return execution_; }
  const v1::Config& config() const override { return config_; }
  absl::StatusOr<Tensor> AllocateOutput(int, DType dtype, const Dims& dims) override {
    absl::StatusOr<Tensor> t = Tensor::OnHost(dtype, dims);
    if (t.ok() && t->bytes() > 0) std::memset(t->data(), 0xa5, t->bytes());  // shows elements that are not written
    return t;
  }
  void Hold(Nanos duration) override { held = duration; }
  Stream* stream() const override { return nullptr; }

  int64_t execution_ = 0;
  v1::Config config_;
  Nanos held = -1;
};

// One call of `cls`.`method`; the actor is made with the same config.
inline absl::StatusOr<std::vector<Tensor>> CallStd(const std::string& cls, const std::string& method, const v1::Config& config,
                                                   const std::vector<Tensor>& args, int outputs = 1, int64_t execution = 0,
                                                   Nanos* held = nullptr) {
  absl::StatusOr<std::unique_ptr<Actor>> actor = ActorRegistry::Std("cpu").Make(cls, config, nullptr);
  if (!actor.ok()) return actor.status();
  const absl::StatusOr<int> m = (*actor)->Method(method);
  if (!m.ok()) return m.status();
  TestContext ctx;
  ctx.config_ = config;
  ctx.execution_ = execution;
  std::vector<Tensor> outs(outputs);
  const absl::Status s = (*actor)->Call(*m, ctx, args, &outs);
  if (held != nullptr) *held = ctx.held;
  if (!s.ok()) return s;
  return outs;
}

inline Tensor MakeTensor(DType dtype, const Dims& dims, const std::vector<double>& values) {
  const Tensor t = *Tensor::OnHost(dtype, dims);
  REQUIRE(static_cast<size_t>(t.elements()) == values.size());
  for (size_t i = 0; i < values.size(); ++i) SetElementFromDouble(t, static_cast<int64_t>(i), values[i]);
  return t;
}

inline std::vector<double> Values(const Tensor& t) {
  std::vector<double> v;
  for (int64_t i = 0; i < t.elements(); ++i) v.push_back(ElementAsDouble(t, i));
  return v;
}

inline bool Mentions(const absl::Status& s, const std::string& word) { return std::string(s.message()).find(word) != std::string::npos; }

}  // namespace weft
