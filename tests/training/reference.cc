// The plain loop: trains the network of examples/training in one process, without graphs, stages or workers, and writes what `weft run`
// writes. With --check it computes in double by loops of its own, and says how far another's results are from that.
//
//   reference --x x.npy --t t.npy --widths 8,16,4 --microbatches 4 --stages 2 --output DIR
//   reference --x x.npy --t t.npy --widths 8,16,4 --microbatches 4 --stages 2 --check DIR --within 1e-5

#include <cblas.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "common/tensor/npy.h"
#include "common/tensor/random.h"

namespace {

struct Arguments {
  std::string x, t, output, check, activation = "relu";
  std::vector<int64_t> widths;
  int64_t microbatches = 1, stages = 1;
  uint64_t seed = 1;
  double learning_rate = 0.1, within = 0;
};

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "reference: %s\n", what.c_str());
  std::exit(2);
}

Arguments Parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--x") a.x = value;
    else if (name == "--t") a.t = value;
    else if (name == "--output") a.output = value;
    else if (name == "--check") a.check = value;
    else if (name == "--within") a.within = std::stod(value);
    else if (name == "--activation") a.activation = value;
    else if (name == "--microbatches") a.microbatches = std::stoll(value);
    else if (name == "--stages") a.stages = std::stoll(value);
    else if (name == "--seed") a.seed = std::stoull(value);
    else if (name == "--learning-rate") a.learning_rate = std::stod(value);
    else if (name == "--widths") {
      for (size_t at = 0; at < value.size();) {
        const size_t comma = std::min(value.find(',', at), value.size());
        a.widths.push_back(std::stoll(value.substr(at, comma - at)));
        at = comma + 1;
      }
    } else {
      Fail(name + " is no option");
    }
  }
  if (a.widths.size() < 2 || (a.output.empty() == a.check.empty())) Fail("give --widths, and one of --output and --check");
  return a;
}

// c[m, n] (+)= a[m, k] b[k, n], either of them transposed in memory. In F32 by the same library as weft's: a sum's bits depend on its
// order.
void Product(const float* a, bool ta, const float* b, bool tb, float* c, int m, int n, int k, bool add) {
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n, k, 1, a, ta ? m : k, b, tb ? k : n,
              add ? 1 : 0, c, n);
}
void Product(const double* a, bool ta, const double* b, bool tb, double* c, int m, int n, int k, bool add) {
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = add ? c[i * n + j] : 0;
      for (int p = 0; p < k; ++p) sum += (ta ? a[p * m + i] : a[i * k + p]) * (tb ? b[j * k + p] : b[p * n + j]);
      c[i * n + j] = sum;
    }
  }
}

template <typename T>
T Activate(const std::string& f, T z) {
  if (f == "relu") return z < 0 ? 0 : z;
  if (f == "tanh") return std::tanh(z);
  if (f == "sigmoid") return 1 / (1 + std::exp(-z));
  return z;
}
template <typename T>
T Slope(const std::string& f, T y, T dy) {
  if (f == "relu") return y > 0 ? dy : 0;
  if (f == "tanh") return dy * (1 - y * y);
  if (f == "sigmoid") return dy * (y * (1 - y));
  return dy;
}

template <typename T>
class Network {
 public:
  explicit Network(const Arguments& a) : a_(a), layers_(static_cast<int>(a.widths.size()) - 1) {
    for (int l = 0; l < layers_; ++l) {
      const int64_t in = a.widths[l], out = a.widths[l + 1];
      std::vector<T> p(static_cast<size_t>(out * in + out));
      // Uniform in +-1/sqrt(in), rounded to F32 in any case: the same start for both kinds.
      for (int64_t i = 0; i < out * in + out; ++i) {
        const bool bias = i >= out * in;
        const double u =
            weft::UniformDouble(weft::CounterBits(a.seed + static_cast<uint64_t>(l), bias, static_cast<uint64_t>(bias ? i - out * in : i)));
        p[i] = static_cast<float>((2 * u - 1) * (1 / std::sqrt(static_cast<double>(in))));
      }
      parameters.push_back(p);
      gradients_.push_back(std::vector<T>(p.size()));
    }
  }

  // One step on `all` rows; the loss before it.
  T Step(const float* x, const float* t, int all) {
    const int rows = all / static_cast<int>(a_.microbatches), in = width(0), out = width(layers_);
    T loss = 0;
    for (int k = 0; k < a_.microbatches; ++k) {
      const T part = Microbatch(std::vector<T>(x + k * rows * in, x + (k + 1) * rows * in),
                                std::vector<T>(t + k * rows * out, t + (k + 1) * rows * out), rows, k == 0);
      loss = k == 0 ? part : loss + part;
    }
    for (int l = 0; l < layers_; ++l) {
      for (size_t i = 0; i < parameters[l].size(); ++i) {
        const T step = gradients_[l][i] * static_cast<T>(-a_.learning_rate);
        parameters[l][i] += step;
      }
    }
    return loss;
  }

  std::vector<std::vector<T>> parameters;  // by layer: weights [out, in], then the bias

 private:
  int width(int l) const { return static_cast<int>(a_.widths[l]); }

  T Microbatch(std::vector<T> x, const std::vector<T>& t, int rows, bool first) {
    std::vector<std::vector<T>> values = {std::move(x)};
    for (int l = 0; l < layers_; ++l) {
      const int in = width(l), out = width(l + 1);
      const T* const bias = parameters[l].data() + out * in;
      std::vector<T> y;
      for (int r = 0; r < rows; ++r) y.insert(y.end(), bias, bias + out);
      Product(values[l].data(), false, parameters[l].data(), true, y.data(), rows, out, in, true);
      for (T& v : y) v = l + 1 < layers_ ? Activate(a_.activation, v) : v;
      values.push_back(std::move(y));
    }
    std::vector<T> delta = values.back();
    for (size_t i = 0; i < delta.size(); ++i) delta[i] = delta[i] - t[i];
    const double all = static_cast<double>(rows) * static_cast<double>(a_.microbatches);
    T loss = 0;
    Product(delta.data(), false, delta.data(), false, &loss, 1, 1, static_cast<int>(delta.size()), false);
    loss = loss * static_cast<T>(0.5 / all);
    for (T& v : delta) v = v * static_cast<T>(1 / all);
    for (int l = layers_ - 1; l >= 0; --l) {
      const int in = width(l), out = width(l + 1);
      T* const g = gradients_[l].data();
      Product(delta.data(), true, values[l].data(), false, g, out, in, rows, !first);
      for (int c = 0; c < out; ++c) {
        double sum = 0;
        for (int r = 0; r < rows; ++r) sum += delta[r * out + c];
        g[out * in + c] = first ? static_cast<T>(sum) : g[out * in + c] + static_cast<T>(sum);
      }
      if (l == 0) break;
      std::vector<T> before(static_cast<size_t>(rows * in));
      Product(delta.data(), false, parameters[l].data(), false, before.data(), rows, in, out, false);
      for (size_t i = 0; i < before.size(); ++i) before[i] = Slope(a_.activation, values[l][i], before[i]);
      delta = std::move(before);
    }
    return loss;
  }

  const Arguments& a_;
  const int layers_;
  std::vector<std::vector<T>> gradients_;
};

weft::Tensor Read(const std::string& path) {
  auto t = weft::ReadNpy(path);
  if (!t.ok()) Fail(path + ": " + std::string(t.status().message()));
  return *t;
}

std::string File(const std::string& dir, const std::string& name, int64_t step) {
  char number[32];
  std::snprintf(number, sizeof(number), "/%06d.npy", static_cast<int>(step));
  return dir + "/" + name + number;
}

void Write(const std::string& path, const std::vector<float>& values) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  const weft::Tensor t(weft::v1::F32, {static_cast<int64_t>(values.size())}, const_cast<float*>(values.data()), nullptr);
  if (const auto s = weft::WriteNpy(path, t); !s.ok()) Fail(path + ": " + std::string(s.message()));
}

// Of the layers that stage `s` of `stages` has.
template <typename T>
std::vector<T> OfStage(const Network<T>& n, int64_t s, int64_t stages) {
  const int64_t layers = static_cast<int64_t>(n.parameters.size());
  std::vector<T> all;
  for (int64_t l = s * layers / stages; l < (s + 1) * layers / stages; ++l)
    all.insert(all.end(), n.parameters[l].begin(), n.parameters[l].end());
  return all;
}

// The largest distance of the file's values.
double Distance(const std::string& path, const std::vector<double>& want) {
  const weft::Tensor t = Read(path);
  if (t.elements() != static_cast<int64_t>(want.size())) Fail(path + " has " + std::to_string(t.elements()) + " elements");
  double worst = 0;
  for (int64_t i = 0; i < t.elements(); ++i) {
    const double d = std::fabs(weft::ElementAsDouble(t, i) - want[i]);
    worst = d <= worst ? worst : d;  // a NaN is never small
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  openblas_set_num_threads(1);
  const Arguments a = Parse(argc, argv);
  const weft::Tensor x = Read(a.x), t = Read(a.t);
  if (x.dims().size() != 3 || t.dims().size() != 3 || x.dims()[2] != a.widths.front() || t.dims()[2] != a.widths.back())
    Fail("data does not fit --widths");
  const int64_t steps = x.dims()[0], rows = x.dims()[1];
  Network<float> f(a);
  Network<double> d(a);
  double worst_loss = 0, worst_weights = 0;
  for (int64_t k = 0; k < steps; ++k) {
    const float* const xs = x.as<float>() + k * rows * x.dims()[2];
    const float* const ts = t.as<float>() + k * rows * t.dims()[2];
    if (a.check.empty()) {
      Write(File(a.output, "loss", k), {f.Step(xs, ts, static_cast<int>(rows))});
      for (int64_t s = 0; s < a.stages; ++s) Write(File(a.output, "weights" + std::to_string(s), k), OfStage(f, s, a.stages));
      continue;
    }
    worst_loss = std::max(worst_loss, Distance(File(a.check, "loss", k), {d.Step(xs, ts, static_cast<int>(rows))}));
    for (int64_t s = 0; s < a.stages; ++s) {
      worst_weights = std::max(worst_weights, Distance(File(a.check, "weights" + std::to_string(s), k), OfStage(d, s, a.stages)));
    }
  }
  if (a.check.empty()) return 0;
  std::printf("largest distance: losses %.3g, weights %.3g; allowed %.3g\n", worst_loss, worst_weights, a.within);
  return worst_loss <= a.within && worst_weights <= a.within ? 0 : 1;
}
