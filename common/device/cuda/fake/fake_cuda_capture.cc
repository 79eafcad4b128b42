// Captures and graphs of FakeCuda.

#include <algorithm>
#include <utility>

#include "common/device/cuda/fake/fake_cuda_parts.h"

namespace weft {

int FakeCuda::RefuseInCapture() {
  int code = kCudaSuccess;
  for (const auto& c : captures_) {
    if (c->thread != std::this_thread::get_id()) continue;
    c->spoilt = true;
    code = kCudaCaptureUnsupported;
  }
  return code;
}

int FakeCuda::Join(FStream* s, const std::shared_ptr<Mark>& mark) {
  Capture* const from = mark->capture.get();
  if (from == nullptr) {
    s->capture->spoilt = true;
    return kCudaCaptureIsolation;
  }
  if (!from->active) {
    if (s->capture != nullptr) s->capture->spoilt = true;
    return kCudaCapturedEvent;
  }
  if (s->capture != nullptr && s->capture.get() != from) {
    s->capture->spoilt = from->spoilt = true;
    return kCudaCaptureMerge;
  }
  if (from->spoilt) return kCudaCaptureInvalidated;
  if (s->capture == nullptr) {
    s->capture = mark->capture;
    s->branch = static_cast<int>(from->streams.size());
    s->tails.clear();
    from->streams.push_back(FindStream(s->handle));
  }
  for (const int node : mark->nodes) {
    if (std::find(s->tails.begin(), s->tails.end(), node) == s->tails.end()) s->tails.push_back(node);
  }
  return kCudaSuccess;
}

void FakeCuda::LeaveCapture(Capture* capture) {
  capture->active = false;
  for (const auto& s : capture->streams) {
    s->capture = nullptr;
    s->tails.clear();
  }
  capture->streams.clear();
  capture->origin = nullptr;
  captures_.erase(std::find_if(captures_.begin(), captures_.end(), [&](const auto& c) { return c.get() == capture; }));
}

int FakeCuda::BeginCapture(CudaStreamHandle s) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("BeginCapture");
  if (code != kCudaSuccess) return code;
  const auto stream = FindStream(s);
  if (stream == nullptr) return kCudaInvalidHandle;
  if (stream->capture != nullptr) return kCudaIllegalState;
  const auto capture = std::make_shared<Capture>();
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->streams = {stream};
  capture->graph->owner = memory_.get();
  stream->capture = capture;
  stream->branch = 0;
  captures_.push_back(capture);
  return kCudaSuccess;
}

int FakeCuda::EndCapture(CudaStreamHandle s, CudaGraphHandle* out) {
  std::shared_ptr<Graph> captured;  // what its nodes hold goes outside of the lock
  MutexLock lock(&mu_);
  const int code = EnterLocked("EndCapture");
  if (code != kCudaSuccess) return code;
  const auto stream = FindStream(s);
  if (stream == nullptr) return kCudaInvalidHandle;
  if (out == nullptr) return kCudaInvalidValue;
  *out = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return kCudaIllegalState;
  if (capture->thread != std::this_thread::get_id()) {
    // As seen on a GPU, this ends the capture all the same.
    LeaveCapture(capture.get());
    captured = std::move(capture->graph);
    return kCudaCaptureWrongThread;
  }
  if (capture->origin != stream) {
    capture->spoilt = true;
    return kCudaCaptureUnmatched;
  }
  // Everything that the origin's end comes after; nodes depend on earlier ones only.
  Graph& graph = *capture->graph;
  std::vector<bool> before(graph.nodes.size(), false);
  for (const int node : stream->tails) before[node] = true;
  for (int i = static_cast<int>(graph.nodes.size()) - 1; i >= 0; --i) {
    if (!before[i]) continue;
    for (const int node : graph.nodes[i].after) before[node] = true;
  }
  const bool joined = std::all_of(before.begin(), before.end(), [](bool b) { return b; });
  const bool spoilt = capture->spoilt;
  graph.branches = static_cast<int>(capture->streams.size());
  LeaveCapture(capture.get());
  captured = std::move(capture->graph);  // events of the capture must not keep its nodes
  if (spoilt) return kCudaCaptureInvalidated;
  if (!joined) return kCudaCaptureUnjoined;
  *out = NextFakeHandle();
  graphs_[*out] = captured;
  return kCudaSuccess;
}

int FakeCuda::GraphInstantiate(CudaGraphHandle graph, CudaGraphExecHandle* out) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("GraphInstantiate");
  if (code != kCudaSuccess) return code;
  const auto it = graphs_.find(graph);
  if (it == graphs_.end() || out == nullptr) return kCudaInvalidValue;
  *out = NextFakeHandle();
  execs_[*out] = std::make_shared<Exec>(Exec{it->second, nullptr});
  return kCudaSuccess;
}

int FakeCuda::GraphUpload(CudaGraphExecHandle exec, CudaStreamHandle s) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("GraphUpload");
  if (code != kCudaSuccess) return code;
  if (execs_.find(exec) == execs_.end()) return kCudaInvalidValue;
  const auto stream = FindStream(s);
  if (stream == nullptr) return kCudaInvalidHandle;
  if (stream->capture == nullptr) return kCudaSuccess;
  stream->capture->spoilt = true;
  return kCudaCaptureUnsupported;
}

int FakeCuda::GraphLaunch(CudaGraphExecHandle exec, CudaStreamHandle s) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("GraphLaunch");
  if (code != kCudaSuccess) return code;
  const auto it = execs_.find(exec);
  if (it == execs_.end()) return kCudaInvalidValue;
  const auto stream = FindStream(s);
  if (stream == nullptr) return kCudaInvalidHandle;
  const auto run = [this, graph = it->second->graph] { RunGraph(*graph); };
  if (stream->capture != nullptr) return Push(stream.get(), run, "a graph in a graph");
  if (it->second->last != nullptr) PushWait(stream.get(), it->second->last);
  Push(stream.get(), run, "a graph");
  it->second->last = PushMark(stream.get());
  return kCudaSuccess;
}

void FakeCuda::RunGraph(const Graph& graph) {
  if (!options_.parallel_graphs) {
    for (const Graph::Node& node : graph.nodes) {
      if (ended()) return;
      node.run();
    }
    return;
  }
  std::vector<bool> done(graph.nodes.size(), false);  // guarded by mu_
  const auto run_branch = [&](int branch) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Graph::Node& node = graph.nodes[i];
      if (node.branch != branch) continue;
      {
        MutexLock lock(&mu_);
        const auto ready = [&] { return std::all_of(node.after.begin(), node.after.end(), [&](int n) { return done[n]; }); };
        while (!ended() && !ready()) progress_.Wait(&mu_);
      }
      if (ended()) return;
      node.run();
      MutexLock lock(&mu_);
      done[i] = true;
      progress_.NotifyAll();
    }
  };
  std::vector<std::thread> others;
  for (int b = 1; b < graph.branches; ++b) others.emplace_back([&run_branch, b] { run_branch(b); });
  run_branch(0);
  for (std::thread& t : others) t.join();
}

int FakeCuda::GraphDestroy(CudaGraphHandle graph) {
  std::shared_ptr<Graph> gone;  // what its nodes hold goes outside of the lock
  MutexLock lock(&mu_);
  const int code = EnterLocked("GraphDestroy");
  if (code != kCudaSuccess) return code;
  const auto it = graphs_.find(graph);
  if (it == graphs_.end()) return kCudaInvalidValue;
  gone = std::move(it->second);
  graphs_.erase(it);
  return kCudaSuccess;
}

int FakeCuda::GraphExecDestroy(CudaGraphExecHandle exec) {
  std::shared_ptr<Exec> gone;
  MutexLock lock(&mu_);
  const int code = EnterLocked("GraphExecDestroy");
  if (code != kCudaSuccess) return code;
  const auto it = execs_.find(exec);
  if (it == execs_.end()) return kCudaInvalidValue;
  gone = std::move(it->second);
  execs_.erase(it);
  return kCudaSuccess;
}

}  // namespace weft
