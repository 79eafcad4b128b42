// std.Mlp on the CPU: its gradients against differences of its loss, and a network in one stage against the same in several.

#include <cmath>

#include "common/tensor/linear.h"
#include "common/tensor/random.h"
#include "worker/actor/std/call_test_util.h"

namespace weft {
namespace {

v1::Config Config(const std::vector<int64_t>& widths, int64_t first_layer, bool last, DType dtype = v1::F64) {
  v1::Config c;
  for (const int64_t w : widths) c.add_widths(w);
  c.set_dtype(dtype);
  c.set_rows(3);
  c.set_microbatches(2);
  c.set_first_layer(first_layer);
  c.set_seed(5);
  c.set_activation("tanh");
  c.set_learning_rate(0.5);
  if (last) c.set_loss("mse");
  return c;
}

// One stage, called as a worker would.
class Stage {
 public:
  explicit Stage(const v1::Config& config) : config_(config), actor_(*ActorRegistry::Std("cpu").Make("std.Mlp", config, nullptr)) {}

  absl::StatusOr<Tensor> Call(const std::string& method, int64_t microbatch, const std::vector<Tensor>& args, int64_t slot = -1) {
    TestContext ctx;
    ctx.config_ = config_;
    ctx.execution_ = execution;
    ctx.config_.set_microbatch(microbatch);
    if (slot >= 0) ctx.config_.set_slot(slot);
    std::vector<Tensor> outs(1);
    const absl::Status s = actor_->Call(*actor_->Method(method), ctx, args, &outs);
    if (!s.ok()) return s;
    return outs[0];
  }
  std::vector<double> Weights() { return Values(*Call("weights", 0, {})); }

  int64_t execution = 0;

 private:
  const v1::Config config_;
  const std::unique_ptr<Actor> actor_;
};

Tensor Data(DType dtype, int64_t width, uint64_t seed) {
  const Tensor t = *Tensor::OnHost(dtype, {3, width});
  for (int64_t i = 0; i < t.elements(); ++i)
    SetElementFromDouble(t, i, 2 * UniformDouble(CounterBits(seed, 0, static_cast<uint64_t>(i))) - 1);
  return t;
}

// One step of both microbatches on a network of one stage; the loss of each.
std::vector<double> Train(Stage* s, bool fused, int64_t in, int64_t out, DType dtype = v1::F64) {
  std::vector<double> losses;
  Tensor last;
  for (int64_t k = 0; k < 2; ++k) {
    const Tensor loss = *s->Call("forward", k, {Data(dtype, in, 1 + k), Data(dtype, out, 11 + k)});
    losses.push_back(ElementAsDouble(loss, 0));
    if (fused) {
      last = *s->Call("backward", k, {loss});
    } else {
      last = *s->Call("weight_grad", k, {*s->Call("input_grad", k, {loss})});
    }
    CHECK(Values(last) == std::vector<double>{static_cast<double>(k)});
  }
  CHECK(Values(*s->Call("step", 0, {last})) == std::vector<double>{2});
  return losses;
}

// The loss of both microbatches with these parameters, layer by layer in plain loops.
double LossOf(const std::vector<double>& p, const std::vector<int64_t>& widths) {
  double loss = 0;
  for (int64_t k = 0; k < 2; ++k) {
    std::vector<double> x = Values(Data(v1::F64, widths.front(), 1 + k));
    const std::vector<double> t = Values(Data(v1::F64, widths.back(), 11 + k));
    size_t at = 0;
    for (size_t l = 0; l + 1 < widths.size(); ++l) {
      const int64_t in = widths[l], out = widths[l + 1];
      std::vector<double> y(static_cast<size_t>(3 * out));
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t o = 0; o < out; ++o) {
          double sum = p[at + out * in + o];
          for (int64_t i = 0; i < in; ++i) sum += x[r * in + i] * p[at + o * in + i];
          y[r * out + o] = l + 2 < widths.size() ? std::tanh(sum) : sum;
        }
      }
      at += static_cast<size_t>(out * in + out);
      x = y;
    }
    for (size_t i = 0; i < x.size(); ++i) loss += (x[i] - t[i]) * (x[i] - t[i]) / (2 * 3 * 2);
  }
  return loss;
}

}  // namespace

TEST_CASE("mlp: a step goes along the gradient, which differences of the loss confirm") {
  const std::vector<int64_t> widths = {4, 5, 3, 2};
  for (const bool fused : {false, true}) {
    Stage s(Config(widths, 0, true));
    const std::vector<double> before = s.Weights();
    const std::vector<double> losses = Train(&s, fused, 4, 2);
    CHECK(losses[0] + losses[1] == Approx(LossOf(before, widths)).epsilon(1e-12));
    const std::vector<double> after = s.Weights();
    REQUIRE(after.size() == 4 * 5 + 5 + 5 * 3 + 3 + 3 * 2 + 2);
    for (size_t i = 0; i < before.size(); ++i) {
      constexpr double kH = 1e-6;
      std::vector<double> up = before, down = before;
      up[i] += kH;
      down[i] -= kH;
      const double slope = (LossOf(up, widths) - LossOf(down, widths)) / (2 * kH);
      INFO(i);
      CHECK(before[i] - after[i] == Approx(0.5 * slope).margin(1e-9));
    }
    CHECK(LossOf(after, widths) < LossOf(before, widths));
  }
}

TEST_CASE("mlp: first weights are those of std.Linear's rule, by the layer's number in the network") {
  Stage s(Config({5, 3, 2}, 1, true));
  std::vector<double> want;
  for (const auto& [in, out, seed] : {std::tuple<int64_t, int64_t, uint64_t>{5, 3, 6}, {3, 2, 7}}) {
    const LinearParameters p = *LinearWeights(in, out, seed, v1::F64);
    for (const double v : Values(p.weights)) want.push_back(v);
    for (const double v : Values(p.bias)) want.push_back(v);
  }
  CHECK(s.Weights() == want);
}

TEST_CASE("mlp: stages give the bits of the whole network") {
  for (const DType dtype : {v1::F32, v1::F64}) {
    const std::vector<int64_t> widths = {4, 6, 5, 3, 2};
    Stage whole(Config(widths, 0, true, dtype));
    Stage a(Config({4, 6, 5}, 0, false, dtype)), b(Config({5, 3}, 2, false, dtype)), c(Config({3, 2}, 3, true, dtype));
    for (int64_t e = 0; e < 3; ++e) {
      for (Stage* s : {&whole, &a, &b, &c}) s->execution = e;
      const std::vector<double> losses = Train(&whole, true, 4, 2, dtype);
      // All forwards first, as GPipe has them.
      std::vector<Tensor> loss(2), last(3);
      for (int64_t k = 0; k < 2; ++k) {
        const Tensor y = *b.Call("forward", k, {*a.Call("forward", k, {Data(dtype, 4, 1 + k)})});
        loss[k] = *c.Call("forward", k, {y, Data(dtype, 2, 11 + k)});
        CHECK(ElementAsDouble(loss[k], 0) == losses[k]);
      }
      for (int64_t k = 0; k < 2; ++k) {
        const Tensor gc = *c.Call("input_grad", k, {loss[k]});
        CHECK(gc.dims() == Dims{3, 3});
        last[2] = *c.Call("weight_grad", k, {gc});
        const Tensor gb = last[1] = *b.Call("backward", k, {gc});
        last[0] = *a.Call("backward", k, {gb});
        CHECK(last[0].dims() == Dims{1});
      }
      std::vector<double> parts;
      int i = 0;
      for (Stage* s : {&a, &b, &c}) {
        REQUIRE(s->Call("step", 0, {last[i++]}).ok());
        for (const double v : s->Weights()) parts.push_back(v);
      }
      CHECK(parts == whole.Weights());
    }
  }
}

TEST_CASE("mlp: calls out of order, or for a slot that holds another microbatch, are errors that change nothing") {
  v1::Config config = Config({4, 2}, 0, true);
  config.set_slots(1);
  Stage s(config);
  const Tensor x = Data(v1::F64, 4, 1), t = Data(v1::F64, 2, 2), loss = MakeTensor(v1::F64, {1}, {0});
  CHECK(Mentions(s.Call("input_grad", 0, {loss}, 0).status(), "input_grad of microbatch 0 finds no activations"));
  REQUIRE(s.Call("forward", 0, {x, t}, 0).ok());
  CHECK(Mentions(s.Call("weight_grad", 0, {loss}, 0).status(), "finds no gradients"));
  CHECK(Mentions(s.Call("input_grad", 1, {loss}, 0).status(), "microbatch 1 finds no activations"));
  REQUIRE(s.Call("input_grad", 0, {loss}, 0).ok());
  CHECK_FALSE(s.Call("input_grad", 0, {loss}, 0).ok());
  REQUIRE(s.Call("weight_grad", 0, {loss}, 0).ok());
  const std::vector<double> before = s.Weights();
  CHECK(Mentions(s.Call("step", 0, {loss}).status(), "step finds the gradients of 1 microbatches, not of config.microbatches, 2"));
  CHECK(s.Weights() == before);
  CHECK(Mentions(s.Call("forward", 1, {x, t}).status(), "config.slot"));  // its own number is beyond the slots
  CHECK(Mentions(s.Call("forward", 0, {x}, 0).status(), "targets"));
  CHECK(Mentions(s.Call("forward", 0, {x, x}, 0).status(), "argument 1"));
  CHECK(Mentions(s.Call("forward", 0, {t, t}, 0).status(), "argument 0"));
  CHECK(Mentions(s.Call("backward", 0, {x}, 0).status(), "the loss"));
}

TEST_CASE("mlp: gradients are summed by microbatch, whatever the order of the calls") {
  const auto train = [](const std::vector<int64_t>& weight_grads) {
    v1::Config config = Config({4, 3, 2}, 0, true, v1::F32);
    config.set_microbatches(4);
    Stage s(config);
    std::vector<Tensor> last;
    for (int64_t k = 0; k < 4; ++k) {
      last.push_back(*s.Call("input_grad", k, {*s.Call("forward", k, {Data(v1::F32, 4, 1 + k), Data(v1::F32, 2, 11 + k)})}));
    }
    for (const int64_t k : weight_grads) CHECK(Values(*s.Call("weight_grad", k, {last[k]})) == std::vector<double>{static_cast<double>(k)});
    REQUIRE(s.Call("step", 0, last).ok());
    return s.Weights();
  };
  const std::vector<double> want = train({0, 1, 2, 3});
  CHECK(train({3, 2, 1, 0}) == want);
  CHECK(train({2, 0, 3, 1}) == want);
  CHECK(train({0, 2, 1, 3}) == want);
}

TEST_CASE("mlp: an execution that failed half-way leaves nothing for the next") {
  Stage broken(Config({4, 3, 2}, 0, true)), good(Config({4, 3, 2}, 0, true));
  const Tensor loss = *broken.Call("forward", 0, {Data(v1::F64, 4, 1), Data(v1::F64, 2, 11)});
  REQUIRE(broken.Call("backward", 0, {loss}).ok());
  REQUIRE(broken.Call("forward", 1, {Data(v1::F64, 4, 2), Data(v1::F64, 2, 12)}).ok());
  broken.execution = good.execution = 1;
  CHECK(Mentions(broken.Call("step", 0, {loss}).status(), "of 0 microbatches"));
  CHECK(Train(&broken, false, 4, 2) == Train(&good, false, 4, 2));
  CHECK(broken.Weights() == good.Weights());
}

TEST_CASE("mlp: what the CPU does not train") {
  const absl::Status s = ActorRegistry::Std("cpu").Make("std.Mlp", Config({4, 2}, 0, true, v1::BF16), nullptr).status();
  CHECK(Mentions(s, "BF16"));
  CHECK(Mentions(s, "--device cuda"));
  v1::Config large = Config({1, 1}, 0, true);
  large.set_rows(int64_t{1} << 31);
  large.set_slots(15);
  const absl::Status full = ActorRegistry::Std("cpu").Make("std.Mlp", large, nullptr).status();
  CHECK(absl::IsResourceExhausted(full));
  CHECK(Mentions(full, "larger than this host's memory"));
  CHECK(Mentions(ActorRegistry::Std("cpu").Make("std.Mlp", {}, nullptr).status(), "config.rows is missing"));
}

}  // namespace weft
