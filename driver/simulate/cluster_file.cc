#include "driver/simulate/cluster_file.h"

#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "driver/graph/error_list.h"
#include "driver/graph/parse.h"
#include "driver/simulate/cost_checks.h"

namespace weft {
namespace {

constexpr char kClientName[] = "client";

class Reader {
 public:
  Reader(const std::string& name, const v1::ClusterFile& file) : name_(name), file_(file) {}

  absl::StatusOr<Cluster> Run() {
    Workers();
    for (int i = 0; i < file_.link_size(); ++i) Link(absl::StrCat(name_, ": link[", i, "]"), file_.link(i));
    if (file_.has_ipc_crossover_bytes()) cluster_.ipc_crossover_bytes = file_.ipc_crossover_bytes();
    cluster_.client_host_id = file_.client_host();
    if (cluster_.client_host_id.empty() && !cluster_.workers.empty()) cluster_.client_host_id = cluster_.workers[0].host_id;
    WEFT_RETURN_IF_ERROR(problems_.ToStatus());
    return std::move(cluster_);
  }

 private:
  void Workers() {
    if (file_.worker_size() == 0) problems_.Add(absl::StrCat(name_, ": worker: there is none; at least one is needed"));
    for (int i = 0; i < file_.worker_size(); ++i) {
      const v1::ClusterFile::Worker& w = file_.worker(i);
      const std::string at = absl::StrCat(name_, ": worker[", i, "]");
      if (!IsName(w.name())) problems_.Add(absl::StrCat(at, ".name: ", Quote(w.name()), " is no name: ", kNameRule));
      if (w.name() == kClientName) problems_.Add(absl::StrCat(at, ".name: \"client\" stands for the client in links; choose another"));
      if (!names_.insert(w.name()).second) problems_.Add(absl::StrCat(at, ".name: there are two workers named ", Quote(w.name())));
      const std::string device = w.device().empty() ? "cpu" : w.device();
      if (device != "cpu" && device != "cuda") problems_.Add(absl::StrCat(at, ".device: ", Quote(device), " is neither \"cpu\" nor \"cuda\""));
      const std::string host = w.host().empty() ? "local" : w.host();
      hosts_.insert(host);
      cluster_.workers.push_back({w.name(), host, device, w.memory_bytes()});
    }
    if (!file_.client_host().empty()) hosts_.insert(file_.client_host());
  }

  void Known(const std::string& at, const std::string& name, const std::set<std::string>& all, const char* what) {
    if (!name.empty() && all.count(name) == 0) problems_.Add(absl::StrCat(at, ": no worker ", what, " ", Quote(name)));
  }

  void Link(const std::string& at, const v1::ClusterFile::Link& l) {
    if (l.from() != kClientName) Known(at + ".from", l.from(), names_, "is named");
    if (l.to() != kClientName) Known(at + ".to", l.to(), names_, "is named");
    Known(at + ".from_host", l.from_host(), hosts_, "is on host");
    Known(at + ".to_host", l.to_host(), hosts_, "is on host");
    CheckSeconds(at + ".latency_s", l.latency_s(), &problems_);
    CheckSeconds(at + ".first_s", l.first_s(), &problems_);
    if (l.bandwidth() != 0) CheckBandwidth(at + ".bandwidth", l.bandwidth(), "0 is unlimited", &problems_);
    if (!v1::Transport_IsValid(l.transport()) || l.transport() == v1::LOCAL) {
      problems_.Add(absl::StrCat(at, ".transport: ", v1::Transport_IsValid(l.transport()) ? "a LOCAL edge is no transfer" : "no such transport"));
    }
    cluster_.links.push_back({l.from(), l.to(), l.from_host(), l.to_host(), l.transport(), l.one_way(), l.latency_s(), l.bandwidth(), l.first_s()});
  }

  const std::string& name_;
  const v1::ClusterFile& file_;
  ErrorList problems_;
  std::set<std::string> names_, hosts_;
  Cluster cluster_;
};

std::string End(const Plan& plan, int32_t worker) { return worker == kClient ? kClientName : plan.workers[worker].name; }

// The client's host is not in a plan: a link that names one fits only workers.
std::string HostOf(const Plan& plan, int32_t worker) { return worker == kClient ? std::string() : plan.workers[worker].host_id; }

bool Fits(const std::string& from, const std::string& from_host, const Plan& plan, int32_t worker) {
  return (from.empty() || from == End(plan, worker)) && (from_host.empty() || from_host == HostOf(plan, worker));
}

}  // namespace

absl::StatusOr<Cluster> ParseCluster(const std::string& name, const std::string& text) {
  v1::ClusterFile file;
  WEFT_RETURN_IF_ERROR(ParseMessage(name, text, "cluster", &file));
  return Reader(name, file).Run();
}

absl::StatusOr<Cluster> ReadClusterFile(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFileBytes(path, "cluster"));
  return ParseCluster(path, text);
}

const ClusterLink* FindLink(const std::vector<ClusterLink>& links, const Plan& plan, const PlanEdge& e) {
  for (const ClusterLink& l : links) {
    if (l.transport != v1::TRANSPORT_UNSPECIFIED && l.transport != e.transport) continue;
    if (Fits(l.from, l.from_host, plan, e.src_worker) && Fits(l.to, l.to_host, plan, e.dst_worker)) return &l;
    if (!l.one_way && Fits(l.from, l.from_host, plan, e.dst_worker) && Fits(l.to, l.to_host, plan, e.src_worker)) return &l;
  }
  return nullptr;
}

absl::Status CheckCluster(const Cluster& cluster, const Plan& plan) {
  std::string text;
  const auto bad = [&](const auto&... parts) { absl::StrAppend(&text, text.empty() ? "" : "\n", parts...); };
  std::map<std::string, const ClusterWorker*> by_name;
  for (const ClusterWorker& w : cluster.workers) by_name[w.name] = &w;
  std::map<std::string, std::string> hosts, plan_hosts;  // of the plan: of the cluster, and back
  for (size_t i = 0; i < plan.workers.size(); ++i) {
    const PlanWorker& w = plan.workers[i];
    const auto it = by_name.find(w.name);
    if (it == by_name.end()) {
      bad("worker ", w.name, " of the plan is not in the cluster");
      continue;
    }
    const ClusterWorker& c = *it->second;
    if (c.device != w.device) bad("worker ", w.name, " is planned for ", w.device, ", in the cluster it has ", c.device);
    if (hosts.emplace(w.host_id, c.host_id).first->second != c.host_id || plan_hosts.emplace(c.host_id, w.host_id).first->second != w.host_id) {
      bad("worker ", w.name, " shares its host with other workers in the plan than in the cluster");
    }
    const uint64_t peak = i < plan.peak_bytes.size() ? plan.peak_bytes[i] : 0;
    if (c.memory_bytes > 0 && peak > c.memory_bytes) {
      bad("worker ", w.name, ": the plan needs ", peak, " bytes, in the cluster it has ", c.memory_bytes);
    }
  }
  if (text.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("plan of graph \"", plan.graph, "\" does not fit the cluster:\n", text));
}

}  // namespace weft
