// Streams and events of FakeCuda.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/device/cuda/fake/fake_cuda_parts.h"

namespace weft {

std::shared_ptr<FakeCuda::FStream> FakeCuda::FindStream(CudaStreamHandle s) {
  const auto it = streams_.find(s);
  return it == streams_.end() ? nullptr : it->second;
}

std::shared_ptr<FakeCuda::FEvent> FakeCuda::FindEvent(CudaEventHandle e) {
  const auto it = events_.find(e);
  return it == events_.end() ? nullptr : it->second;
}

void FakeCuda::RunStream(FStream* s) {
  while (true) {
    FStream::Op op;
    {
      MutexLock lock(&mu_);
      while (!ended() && s->queue.empty() && !s->destroyed) s->work.Wait(&mu_);
      if (ended() || s->queue.empty()) {
        s->finished = true;
        progress_.NotifyAll();
        return;
      }
      op = std::move(s->queue.front());
      s->queue.pop_front();
      s->running = op.what;
    }
    op.run();
    op.run = nullptr;  // what it holds goes before the stream counts as idle
    MutexLock lock(&mu_);
    s->running = nullptr;
    ++s->done;
    progress_.NotifyAll();
  }
}

void FakeCuda::ReapStreams() {
  std::vector<std::shared_ptr<FStream>> finished;
  {
    MutexLock lock(&mu_);
    const auto gone = std::stable_partition(threads_.begin(), threads_.end(), [](const auto& s) { return !s->finished; });
    finished.assign(gone, threads_.end());
    threads_.erase(gone, threads_.end());
  }
  for (const auto& s : finished) s->thread.join();
}

int FakeCuda::Push(FStream* s, Closure work, const char* what) {
  if (s->capture == nullptr) {
    s->queue.push_back({std::move(work), what});
    ++s->issued;
    s->work.NotifyAll();
    return kCudaSuccess;
  }
  if (s->capture->spoilt) return kCudaCaptureInvalidated;
  std::vector<Graph::Node>& nodes = s->capture->graph->nodes;
  nodes.push_back({std::move(work), what, s->branch, s->tails});
  s->tails = {static_cast<int>(nodes.size()) - 1};
  return kCudaSuccess;
}

std::shared_ptr<FakeCuda::Mark> FakeCuda::PushMark(FStream* s) {
  auto mark = std::make_shared<Mark>();
  if (s->capture != nullptr) {
    mark->capture = s->capture;
    mark->nodes = s->tails;
    return mark;
  }
  Push(s,
       [this, mark] {
         MutexLock lock(&mu_);
         mark->passed = true;
         mark->at = std::chrono::steady_clock::now();
         progress_.NotifyAll();
       },
       "an event's record");
  return mark;
}

void FakeCuda::AwaitMark(const std::shared_ptr<Mark>& mark) {
  MutexLock lock(&mu_);
  while (!mark->passed && !ended()) progress_.Wait(&mu_);
}

int FakeCuda::PushWait(FStream* s, const std::shared_ptr<Mark>& mark) {
  if (s->capture != nullptr || mark->capture != nullptr) return Join(s, mark);
  if (mark->passed) return kCudaSuccess;
  return Push(s, [this, mark] { AwaitMark(mark); }, "a wait for an event");
}

int FakeCuda::Enqueue(CudaStreamHandle s, std::function<void()> work, const char* what) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("Enqueue");
  if (code != kCudaSuccess) return code;
  const auto stream = FindStream(s);
  return stream == nullptr ? kCudaInvalidHandle : Push(stream.get(), std::move(work), what);
}

std::shared_ptr<FakeCuda::Order> FakeCuda::NewOrder() { return std::make_shared<Order>(); }

int FakeCuda::EnqueueInOrder(CudaStreamHandle s, std::function<void()> work, const char* what, const std::shared_ptr<Order>& order) {
  MutexLock lock(&mu_);
  int code = EnterLocked("Enqueue");
  if (code != kCudaSuccess) return code;
  const auto stream = FindStream(s);
  if (stream == nullptr) return kCudaInvalidHandle;
  // What went before in another capture, or outside of this one, is ordered by the launches.
  if (order->last != nullptr && order->last_stream != s && order->last->capture == stream->capture) {
    code = PushWait(stream.get(), order->last);
    if (code != kCudaSuccess) return code;
  }
  code = Push(stream.get(), std::move(work), what);
  if (code != kCudaSuccess) return code;
  order->last = PushMark(stream.get());
  order->last_stream = s;
  return kCudaSuccess;
}

int FakeCuda::AwaitIdle(const std::function<bool(const FStream&)>& which, const char* method) {
  const auto until = std::chrono::steady_clock::now() + options_.hang_limit;
  int broken = kCudaSuccess;
  {
    MutexLock lock(&mu_);
    const bool holds = std::strcmp(method, "StreamSynchronize") != 0;
    freeing_ += holds;
    std::vector<std::pair<std::shared_ptr<FStream>, int64_t>> targets;
    for (const auto& s : threads_) {
      if (which(*s)) targets.emplace_back(s, s->issued);
    }
    for (const auto& [s, target] : targets) {
      while (s->done < target && !ended()) {
        const auto left = until - std::chrono::steady_clock::now();
        if (left <= std::chrono::nanoseconds(0)) {
          std::fprintf(stderr, "fake CUDA: %s has waited for longer than the hang limit:\n%s", method, StateLocked().c_str());
          broken = kCudaLaunchTimeout;
          break;
        }
        progress_.WaitFor(&mu_, left);
      }
      if (broken != kCudaSuccess) break;
    }
    freeing_ -= holds;
    progress_.NotifyAll();
    if (broken == kCudaSuccess) return broken_;
  }
  BreakDevice(broken);
  return broken;
}

int FakeCuda::LoadCode() {
  {
    MutexLock lock(&mu_);
    const int code = EnterLocked("LoadCode");
    if (code != kCudaSuccess) return code;
  }
  return AwaitIdle([](const FStream&) { return true; }, "LoadCode");
}

int FakeCuda::StreamPriorityRange(int* least, int* greatest) {
  const int code = Enter("StreamPriorityRange");
  if (code != kCudaSuccess) return code;
  *least = 0;
  *greatest = -5;
  return kCudaSuccess;
}

int FakeCuda::StreamCreate(int priority, CudaStreamHandle* out) {
  ReapStreams();
  MutexLock lock(&mu_);
  const int code = EnterLocked("StreamCreate");
  if (code != kCudaSuccess) return code;
  if (options_.device_count == 0) return kCudaNoDevice;
  if (out == nullptr) return kCudaInvalidValue;
  const auto s = std::make_shared<FStream>();
  s->handle = NextFakeHandle();
  s->device = current_device();
  s->thread = std::thread([this, raw = s.get()] { RunStream(raw); });
  threads_.push_back(s);
  streams_[s->handle] = s;
  *out = s->handle;
  return kCudaSuccess;
}

int FakeCuda::StreamDestroy(CudaStreamHandle s) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("StreamDestroy");
  if (code != kCudaSuccess) return code;
  const auto stream = FindStream(s);
  if (stream == nullptr) return kCudaInvalidHandle;
  if (stream->capture != nullptr) {
    stream->capture->spoilt = true;
    return kCudaCaptureUnsupported;
  }
  stream->destroyed = true;
  stream->work.NotifyAll();
  streams_.erase(s);
  return kCudaSuccess;
}

int FakeCuda::StreamQuery(CudaStreamHandle s) {
  MutexLock lock(&mu_);
  int code = EnterLocked("StreamQuery");
  if (code != kCudaSuccess) return code;
  const auto stream = FindStream(s);
  if (stream == nullptr) return kCudaInvalidHandle;
  if (stream->capture != nullptr) {
    stream->capture->spoilt = true;
    return kCudaCaptureUnsupported;
  }
  code = RefuseInCapture();
  if (code != kCudaSuccess) return code;
  return stream->done == stream->issued ? kCudaSuccess : kCudaNotReady;
}

int FakeCuda::StreamSynchronize(CudaStreamHandle s) {
  std::shared_ptr<FStream> stream;
  {
    MutexLock lock(&mu_);
    int code = EnterLocked("StreamSynchronize");
    if (code != kCudaSuccess) return code;
    stream = FindStream(s);
    if (stream == nullptr) return kCudaInvalidHandle;
    if (stream->capture != nullptr) {
      stream->capture->spoilt = true;
      return kCudaCaptureUnsupported;
    }
    code = RefuseInCapture();
    if (code != kCudaSuccess) return code;
  }
  return AwaitIdle([&](const FStream& other) { return &other == stream.get(); }, "StreamSynchronize");
}

int FakeCuda::EventCreate(bool timing, CudaEventHandle* out) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("EventCreate");
  if (code != kCudaSuccess) return code;
  if (options_.device_count == 0) return kCudaNoDevice;
  if (out == nullptr) return kCudaInvalidValue;
  *out = NextFakeHandle();
  events_[*out] = std::make_shared<FEvent>(FEvent{timing, nullptr});
  return kCudaSuccess;
}

int FakeCuda::EventDestroy(CudaEventHandle e) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("EventDestroy");
  if (code != kCudaSuccess) return code;
  return events_.erase(e) == 0 ? kCudaInvalidHandle : kCudaSuccess;
}

int FakeCuda::EventRecord(CudaEventHandle e, CudaStreamHandle s) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("EventRecord");
  if (code != kCudaSuccess) return code;
  const auto event = FindEvent(e);
  const auto stream = FindStream(s);
  if (event == nullptr || stream == nullptr) return kCudaInvalidHandle;
  if (stream->capture != nullptr && stream->capture->spoilt) return kCudaCaptureInvalidated;
  event->mark = PushMark(stream.get());
  return kCudaSuccess;
}

int FakeCuda::EventQuery(CudaEventHandle e) {
  MutexLock lock(&mu_);
  int code = EnterLocked("EventQuery");
  if (code != kCudaSuccess) return code;
  const auto event = FindEvent(e);
  if (event == nullptr) return kCudaInvalidHandle;
  if (event->mark != nullptr && event->mark->capture != nullptr) {
    event->mark->capture->spoilt = true;
    return kCudaCapturedEvent;
  }
  code = RefuseInCapture();
  if (code != kCudaSuccess) return code;
  return event->mark == nullptr || event->mark->passed ? kCudaSuccess : kCudaNotReady;
}

int FakeCuda::StreamWaitEvent(CudaStreamHandle s, CudaEventHandle e) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("StreamWaitEvent");
  if (code != kCudaSuccess) return code;
  const auto event = FindEvent(e);
  const auto stream = FindStream(s);
  if (event == nullptr || stream == nullptr) return kCudaInvalidHandle;
  if (event->mark == nullptr && stream->capture == nullptr) return kCudaSuccess;
  if (event->mark == nullptr) {
    stream->capture->spoilt = true;
    return kCudaCaptureIsolation;
  }
  return PushWait(stream.get(), event->mark);
}

int FakeCuda::EventElapsed(CudaEventHandle start, CudaEventHandle end, float* ms) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("EventElapsed");
  if (code != kCudaSuccess) return code;
  const auto a = FindEvent(start), b = FindEvent(end);
  if (ms == nullptr) return kCudaInvalidValue;
  if (a == nullptr || b == nullptr || !a->timing || !b->timing || a->mark == nullptr || b->mark == nullptr) return kCudaInvalidHandle;
  if (a->mark->capture != nullptr || b->mark->capture != nullptr) return kCudaCapturedEvent;
  if (!a->mark->passed || !b->mark->passed) return kCudaNotReady;
  *ms = std::chrono::duration<float, std::milli>(b->mark->at - a->mark->at).count();
  return kCudaSuccess;
}

}  // namespace weft
