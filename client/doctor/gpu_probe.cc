#include "client/doctor/gpu_probe.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/parse.h"

namespace weft {
namespace {

using Json = nlohmann::json;

// Contexts and device code are made in the first of these; a GPU that was asleep takes seconds.
constexpr Nanos kTakePatience = 60 * kNanosPerSecond;
constexpr Nanos kPatience = 30 * kNanosPerSecond;
constexpr uint64_t kTrialBytes = 1 << 20;

// A probe and what became of it. After a hang or a crash it is not asked again, and every answer is what happened then.
class Asked {
 public:
  explicit Asked(absl::StatusOr<std::unique_ptr<Probe>> probe) : dead_(probe.status()) {
    if (probe.ok()) probe_ = *std::move(probe);
  }

  void Send(const Json& request) {
    what_ = request.at("do");
    if (dead_.ok()) dead_ = probe_->Send(request.dump());
  }

  // The answer; `problem` is set when there is none, or when it has an error.
  Json Receive(Nanos patience, std::string* problem) {
    Json reply = Json::object();
    if (dead_.ok()) {
      const absl::StatusOr<std::string> text = probe_->Receive(Clock::Real()->Now() + patience);
      if (!text.ok()) {
        dead_ = absl::Status(text.status().code(), absl::StrCat(what_, ": ", std::string(text.status().message())));
        if (absl::IsDeadlineExceeded(dead_)) absl::StrAppend(&hint_, " within ", FormatSeconds(ToSeconds(patience)));
        probe_.reset();
      } else {
        reply = Json::parse(*text, nullptr, false);
        if (!reply.is_object()) reply = {{"error", "the answer is no JSON object"}};
      }
    }
    *problem = dead_.ok() ? reply.value("error", "") : absl::StrCat(std::string(dead_.message()), hint_);
    return reply;
  }

  Json Ask(const Json& request, Nanos patience, std::string* problem) {
    Send(request);
    return Receive(patience, problem);
  }

  bool dead() const { return !dead_.ok(); }

 private:
  std::unique_ptr<Probe> probe_;
  absl::Status dead_;
  std::string what_;
  std::string hint_;
};

void ReadFacts(const Json& reply, GpuFacts* f) {
  f->driver = reply.value("driver", 0);
  f->runtime = reply.value("runtime", 0);
  f->nccl = reply.value("nccl", 0);
  f->nccl_problem = reply.value("nccl_problem", "");
  for (const Json& g : reply.value("gpus", Json::array())) {
    GpuInfo info;
    info.ordinal = static_cast<int>(f->gpus.size());
    info.name = g.value("name", "");
    info.pci = g.value("pci", "");
    info.sm_count = g.value("sm_count", 0);
    info.major = g.value("major", 0);
    info.minor = g.value("minor", 0);
    info.total_bytes = g.value("bytes", uint64_t{0});
    f->gpus.push_back(info);
  }
  f->peers = reply.value("peers", std::vector<std::vector<int>>{});
}

void TryEach(std::vector<Asked>* probes, const TrialSizes& trial, GpuFacts* f) {
  // One after another: they share the host's memory and buses.
  for (size_t i = 0; i < f->gpus.size(); ++i) {
    GpuInfo& g = f->gpus[i];
    if (!g.problem.empty()) continue;
    const Json paced = (*probes)[i].Ask({{"do", "stream_memory"}}, kPatience, &g.stream_memory_problem);
    g.stream_memory_s = paced.value("seconds", 0.0);
    const Json copied = (*probes)[i].Ask({{"do", "host_copy"}, {"bytes", trial.copy_bytes}}, kPatience, &g.host_copy_problem);
    g.to_device = copied.value("to_device", 0.0);
    g.from_device = copied.value("from_device", 0.0);
  }
}

bool CanReach(const GpuFacts& f, int a, int b) {
  return a == b || (a < static_cast<int>(f.peers.size()) && b < static_cast<int>(f.peers[a].size()) && f.peers[a][b] != 0);
}

// `gpu_of[p]` is the GPU of probe p.
void TryIpc(std::vector<Asked>* probes, const std::vector<int>& gpu_of, GpuFacts* f) {
  for (size_t from = 0; from < probes->size(); ++from) {
    if (!f->gpus[gpu_of[from]].problem.empty()) continue;
    std::string problem;
    const uint64_t seed = 100 + from;
    const Json exposed = (*probes)[from].Ask({{"do", "expose"}, {"bytes", kTrialBytes}, {"seed", seed}}, kPatience, &problem);
    for (size_t to = 0; to < probes->size(); ++to) {
      if (to == from || !f->gpus[gpu_of[to]].problem.empty() || !CanReach(*f, gpu_of[to], gpu_of[from])) continue;
      IpcTrial trial{gpu_of[from], gpu_of[to], problem};
      if (problem.empty()) {
        (*probes)[to].Ask({{"do", "read"}, {"handle", exposed.value("handle", "")}, {"bytes", kTrialBytes}, {"seed", seed}}, kPatience,
                          &trial.problem);
      }
      f->ipc.push_back(trial);
    }
    if (probes->size() == 2 && f->gpus.size() == 1) break;  // the same GPU the other way round shows nothing new
  }
}

void TimeTransfers(std::vector<Asked>* probes, const TrialSizes& trial, GpuFacts* f) {
  TransferTimes* const t = &f->times;
  if (f->gpus.size() < 2) {
    t->problem = "it takes two GPUs (between two processes on one GPU, NCCL goes through sockets)";
    return;
  }
  if (!f->nccl_problem.empty()) {
    t->problem = "there is no NCCL to compare with";
    return;
  }
  const auto good = [f](int from, int to) {
    for (const IpcTrial& t : f->ipc) {
      if (t.from == from && t.to == to) return t.problem.empty();
    }
    return false;
  };
  const int n = static_cast<int>(f->gpus.size());
  int from = 0, to = 0;
  for (int a = 0; a < n && from == to; ++a) {
    for (int b = 0; b < n && from == to; ++b) {
      if (a != b && good(a, b)) {
        from = a;
        to = b;
      }
    }
  }
  if (from == to) {
    t->problem = "no two GPUs can open each other's memory";
    return;
  }
  t->from = from;
  t->to = to;
  std::vector<uint64_t> sizes;
  for (uint64_t s = trial.smallest; s <= trial.largest; s *= 2) sizes.push_back(s);
  Asked& sender = (*probes)[from];
  Asked& receiver = (*probes)[to];
  std::string send_problem, receive_problem;
  const Json out = sender.Ask({{"do", "expose"}, {"bytes", trial.largest}, {"seed", 1}}, kPatience, &send_problem);
  const Json in = receiver.Ask({{"do", "expose"}, {"bytes", trial.largest}, {"seed", 2}}, kPatience, &receive_problem);
  // Both at once; the receiver's times count.
  const auto both = [&](const Json& send, const Json& receive, std::vector<double>* seconds) {
    if (!send_problem.empty() || !receive_problem.empty()) return;
    sender.Send(send);
    receiver.Send(receive);
    const Json times = receiver.Receive(kPatience, &receive_problem);
    sender.Receive(kPatience, &send_problem);
    *seconds = times.value("seconds", std::vector<double>{});
    if (receive_problem.empty() && seconds->size() != sizes.size()) receive_problem = "times are missing in the answer";
  };
  both({{"do", "ipc_send"}, {"flags", in.value("flags", "")}, {"sizes", sizes}, {"rounds", trial.rounds}},
       {{"do", "ipc_receive"},
        {"handle", out.value("handle", "")},
        {"flags", out.value("flags", "")},
        {"sizes", sizes},
        {"rounds", trial.rounds}},
       &t->ipc_s);
  std::string id_problem;
  const Json id = sender.Ask({{"do", "nccl_id"}}, kPatience, &id_problem);
  if (send_problem.empty()) send_problem = id_problem;
  const auto rank = [&](int r) {
    return Json{{"do", "nccl"}, {"id", id.value("id", "")}, {"rank", r}, {"sizes", sizes}, {"rounds", trial.rounds}};
  };
  both(rank(0), rank(1), &t->nccl_s);
  if (!receive_problem.empty() || !send_problem.empty()) {
    t->problem = receive_problem.empty() ? send_problem : receive_problem;
    return;
  }
  t->sizes = std::move(sizes);
}

}  // namespace

GpuFacts LookAtGpus(const StartProbe& start, const TrialSizes& sizes) {
  GpuFacts f;
  std::vector<Asked> probes;
  probes.emplace_back(start());
  try {
    ReadFacts(probes[0].Ask({{"do", "facts"}}, kTakePatience, &f.problem), &f);
    f.died = probes[0].dead();
    if (!f.problem.empty()) return f;
    std::vector<int> gpu_of;
    for (const GpuInfo& g : f.gpus) gpu_of.push_back(g.ordinal);
    if (f.gpus.size() == 1) gpu_of.push_back(0);
    while (probes.size() < gpu_of.size()) probes.emplace_back(start());
    // All at once: each makes its context.
    for (size_t p = 0; p < probes.size(); ++p) probes[p].Send({{"do", "take"}, {"gpu", gpu_of[p]}});
    for (size_t p = 0; p < probes.size(); ++p) {
      std::string problem;
      const Json taken = probes[p].Receive(kTakePatience, &problem);
      GpuInfo& g = f.gpus[gpu_of[p]];
      if (p < f.gpus.size()) {
        g.problem = problem;
        g.free_bytes = taken.value("free", uint64_t{0});
        g.kernels_problem = taken.value("kernels_problem", "");
      } else if (g.problem.empty() && !problem.empty()) {
        g.problem = absl::StrCat("a second process cannot use it: ", problem);
      }
    }
    TryEach(&probes, sizes, &f);
    TryIpc(&probes, gpu_of, &f);
    TimeTransfers(&probes, sizes, &f);
  } catch (const Json::exception& e) {
    f.problem = absl::StrCat("a probe's answer cannot be read: ", e.what());
  }
  return f;
}

}  // namespace weft
