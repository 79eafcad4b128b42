// Edges and collectives between GPUs. Every worker joins its communicators in one order (links by (source, destination), then groups by id), so
// that each finds all of its ranks there; the graph's own thread does it, which is no other's and may wait.

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/channel/nccl/announcement.h"
#include "common/channel/nccl/gloo_mailbox.h"
#include "common/channel/nccl/nccl_link.h"
#include "common/channel/shm/recv_port.h"
#include "common/channel/shm/send_port.h"
#include "common/comm/nccl/nccl_communicator.h"
#include "common/session/edge_trial.h"
#include "common/session/shm_spec.h"
#include "common/tensor/combine.h"
#include "worker/session/driver_store.h"
#include "worker/session/graph_loader.h"
#include "worker/session/links.h"

namespace weft {
namespace {

// The driver is asked in rounds, so that a cancel is seen.
constexpr Nanos kStoreRound = 500'000'000;

}  // namespace

// What all links and collectives of the graph share.
struct GraphLoader::NcclParts {
  std::shared_ptr<NcclQueue> queue = std::make_shared<NcclQueue>();
  std::shared_ptr<NcclScratch> scratch;
};

absl::Status GraphLoader::TakeBudget() {
  if (env_->cuda == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<void> share,
                        env_->Budget()->Reserve(part_.graph, WorkerName(part_, me_), DeviceBudget::Of(part_, env_->nccl_max_ctas)));
  // A graph that has failed launches nothing more, though it is there until it is removed.
  links_->AddOther([share = std::move(share)](const absl::Status&) mutable { share.reset(); }, nullptr);
  return absl::OkStatus();
}

bool GraphLoader::SameHost(const PlanEdge& e) const {
  return part_.workers[e.src_worker].host_id == part_.workers[e.dst_worker].host_id;
}

absl::Status GraphLoader::NeedNccl(const std::string& what) {
  if (env_->cuda == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": transport NCCL needs a GPU worker, and ", WorkerName(part_, me_), " runs on ", env_->device->kind()));
  }
  if (env_->cuda->nccl() == nullptr) {
    const char* const problem = env_->cuda->nccl_problem();
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": there is no NCCL on ", WorkerName(part_, me_), ": ", problem == nullptr ? "no reason is known" : problem));
  }
  if (nccl_ != nullptr) return absl::OkStatus();
  env_->cuda->BindThread();
  auto parts = std::make_shared<NcclParts>();
  absl::StatusOr<std::shared_ptr<NcclScratch>> scratch = NcclScratch::Create(env_->cuda);
  if (!scratch.ok()) return absl::Status(scratch.status().code(), absl::StrCat(what, ": ", std::string(scratch.status().message())));
  parts->scratch = *std::move(scratch);
  nccl_ = std::move(parts);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<NcclComm>> GraphLoader::JoinNccl(const std::string& label, const std::vector<int32_t>& workers, Nanos deadline) {
  WEFT_RETURN_IF_ERROR(NeedNccl(label));
  NcclComm::Options o;
  o.api = env_->cuda->nccl();
  o.device = env_->cuda;
  o.clock = env_->clock;
  o.label = label;
  for (const int32_t w : workers) o.workers.push_back(WorkerName(part_, w));
  const auto self = std::find(workers.begin(), workers.end(), me_);
  if (self == workers.end()) return absl::InvalidArgumentError(absl::StrCat(label, " is not of ", WorkerName(part_, me_)));
  o.rank = static_cast<int>(self - workers.begin());
  o.max_ctas = env_->nccl_max_ctas;
  o.close_at_rest = true;
  o.doorbell = env_->doorbell;
  o.on_hung = [lost = env_->on_device_lost](const absl::Status& s) {
    SPDLOG_ERROR("{}", std::string(s.message()));
    if (lost) lost(s);
  };
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<NcclComm> comm, NcclComm::Create(std::move(o)));
  links_->AddOther([comm](const absl::Status& cause) { comm->Abort(cause); }, [comm] { return comm->Health(); });

  DriverStore store(stub_, part_.graph, attempt_, env_->token);
  const std::string key = absl::StrCat("nccl/", label);
  NcclId id;
  if (comm->rank() == 0) {
    WEFT_RETURN_IF_ERROR(CheckOpen(deadline, absl::StrCat("no time is left to join ", label)));
    const int code = env_->cuda->nccl()->GetUniqueId(&id);
    if (code != kNcclSuccess) {
      return absl::InternalError(absl::StrCat(label, ": making its id: NCCL says ", env_->cuda->nccl()->ErrorText(code)));
    }
    WEFT_RETURN_IF_ERROR(store.Set(key, std::string(id.bytes, sizeof id.bytes)));
  } else {
    absl::StatusOr<std::vector<std::string>> got(absl::DeadlineExceededError(""));
    while (!got.ok()) {
      WEFT_RETURN_IF_ERROR(CheckOpen(deadline, absl::StrCat(label, ": ", WorkerName(part_, workers[0]), " did not begin it in time")));
      got = store.Get({key}, std::min(kStoreRound, std::max<Nanos>(1, deadline - env_->clock->Now())));
      if (!got.ok() && !absl::IsDeadlineExceeded(got.status())) return got.status();
    }
    if (got->at(0).size() != sizeof id.bytes) {
      return absl::DataLossError(absl::StrCat(label, ": its id has ", got->at(0).size(), " bytes; run the same release on all workers"));
    }
    std::memcpy(id.bytes, got->at(0).data(), sizeof id.bytes);
  }
  WEFT_RETURN_IF_ERROR(comm->Join(id, deadline));
  return comm;
}

// A link's order is that of one lane at each end.
absl::Status GraphLoader::CheckOneLane(const std::vector<const PlanEdge*>& edges) const {
  const PlanOp* first = nullptr;
  for (const PlanOp& op : part_.ops) {
    if (op.worker != me_ || std::none_of(edges.begin(), edges.end(), [&](const PlanEdge* e) { return e->id == op.edge; })) continue;
    if (first == nullptr) first = &op;
    if (op.lane != first->lane || op.lane_index != first->lane_index) {
      return absl::InvalidArgumentError(absl::StrCat(OpName(part_, *first), " and ", OpName(part_, op), " are on two lanes of ", WorkerName(part_, me_),
                                                     "; all NCCL edges from one worker to another share one: compile the graph again"));
    }
  }
  return absl::OkStatus();
}

void GraphLoader::Started() {
  if (nccl_ != nullptr) env_->AddQueue(nccl_->queue);
}

absl::Status GraphLoader::MakeNcclPorts(LoadedGraph* loaded, Nanos deadline) {
  std::map<std::pair<int32_t, int32_t>, std::vector<const PlanEdge*>> pairs;
  for (const PlanEdge& e : part_.edges) {
    if (e.transport != v1::NCCL) continue;
    WEFT_RETURN_IF_ERROR(NeedNccl(EdgeName(part_, e)));
    if (e.src_worker == kClient || e.dst_worker == kClient) {
      return absl::InvalidArgumentError(absl::StrCat(EdgeName(part_, e), ": NCCL does not reach the client"));
    }
    pairs[{e.src_worker, e.dst_worker}].push_back(&e);
  }
  std::set<int32_t> alone;  // edges whose receives are to overlap nothing
  for (const PlanOp& op : part_.ops) {
    if (op.kind == v1::RECV && std::any_of(op.waits.begin(), op.waits.end(), [](const PlanWait& w) { return w.reason == v1::PlanWait::NO_OVERLAP; })) {
      alone.insert(op.edge);
    }
  }
  for (const auto& [pair, edges] : pairs) {
    const auto [src, dst] = pair;
    WEFT_RETURN_IF_ERROR(CheckOneLane(edges));
    const std::string label = absl::StrCat("link ", WorkerName(part_, src), " -> ", WorkerName(part_, dst));
    std::shared_ptr<GlooMailbox> mailbox;
    if (!SameHost(*edges[0])) {
      WEFT_ASSIGN_OR_RETURN(std::shared_ptr<GlooMesh> mesh, Mesh(absl::StrCat("announcements of ", label), {src, dst}, deadline));
      std::vector<int32_t> ids;
      for (const PlanEdge* e : edges) ids.push_back(e->id);
      mailbox = std::make_shared<GlooMailbox>(std::move(mesh), HashAsNumber(part_.hash), ids, env_->doorbell);
      links_->Keep(mailbox);
    }
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<NcclComm> comm, JoinNccl(label, {src, dst}, deadline));
    NcclLink::Options o;
    o.comm = std::move(comm);
    o.queue = nccl_->queue;
    o.scratch = nccl_->scratch;
    o.device = env_->cuda;
    o.plan_hash = HashAsNumber(part_.hash);
    o.send_when_taken = env_->shares_gpu;
    o.receive_alone = env_->shares_gpu;
    o.at_once = env_->loads_at_calls;
    o.replay = !env_->shares_gpu && SameHost(*edges[0]);
    WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<NcclLink> link, NcclLink::Create(std::move(o)));
    for (const PlanEdge* e : edges) {
      const ShmEdgeSpec spec = ShmSpecOf(part_, *e);
      const ShmEdgeSpec header = NcclHeaderSpec(spec);
      if (src == me_) {
        std::unique_ptr<SendPort> port;
        if (mailbox != nullptr) {
          WEFT_ASSIGN_OR_RETURN(port, mailbox->NewSendPort(header));
        } else {
          WEFT_ASSIGN_OR_RETURN(port, ShmSendPort::Create(to_.at(dst), e->id, env_->clock));
        }
        WEFT_ASSIGN_OR_RETURN(loaded->senders[e->id], NcclLink::NewSendPort(link, spec, std::move(port)));
      } else {
        std::unique_ptr<RecvPort> port;
        if (mailbox != nullptr) {
          WEFT_ASSIGN_OR_RETURN(port, mailbox->NewRecvPort(header));
        } else {
          WEFT_ASSIGN_OR_RETURN(port, ShmRecvPort::Create(from_.at(src), header, env_->clock));
        }
        WEFT_ASSIGN_OR_RETURN(loaded->receivers[e->id], NcclLink::NewRecvPort(link, spec, std::move(port), env_->under_mps && alone.count(e->id) == 0));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status GraphLoader::MakeNcclGroup(const PlanGroup& g, LoadedGraph* loaded, Nanos deadline) {
  const std::string label = absl::StrCat("collective ", g.name);
  WEFT_RETURN_IF_ERROR(NeedNccl(label));
  NcclCommunicator::Options o;
  // First, since it says which rank is missing.
  WEFT_ASSIGN_OR_RETURN(o.mesh, Mesh(label, g.members, deadline));
  WEFT_ASSIGN_OR_RETURN(o.comm, JoinNccl(label, g.members, deadline));
  o.queue = nccl_->queue;
  o.scratch = nccl_->scratch;
  o.group.id = g.id;
  o.group.name = g.name;
  o.group.plan_hash = HashAsNumber(part_.hash);
  for (const int32_t w : g.members) o.group.workers.push_back(WorkerName(part_, w));
  o.device = env_->cuda;
  o.doorbell = env_->doorbell;
  WEFT_ASSIGN_OR_RETURN(loaded->groups[g.id], NcclCommunicator::Create(std::move(o)));
  return absl::OkStatus();
}

namespace {

// What each rank gives in a group's trial, and what rank `rank` must get: the group's own operation on a few numbers.
std::vector<int32_t> TrialInput(const PlanGroup& g, size_t n, int rank) {
  std::vector<int32_t> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = g.id * 31 + rank * 7 + static_cast<int32_t>(i);
  return v;
}

std::vector<int32_t> TrialResult(const PlanGroup& g, size_t n, int rank) {
  const size_t size = g.members.size();
  std::vector<std::vector<int32_t>> all;
  std::vector<const void*> inputs;
  for (size_t r = 0; r < size; ++r) all.push_back(TrialInput(g, n, static_cast<int>(r)));
  for (const auto& v : all) inputs.push_back(v.data());
  switch (g.op) {
    case v1::BROADCAST:
      return all[g.root_rank];
    case v1::ALL_GATHER: {
      std::vector<int32_t> out;
      for (const auto& v : all) out.insert(out.end(), v.begin(), v.end());
      return out;
    }
    default: {
      std::vector<int32_t> out(n);
      (void)Combine(v1::I32, g.reduce, inputs, out.data(), static_cast<int64_t>(n));  // I32 combines in every way
      if (g.op != v1::REDUCE_SCATTER) return out;
      return std::vector<int32_t>(out.begin() + static_cast<int64_t>(n / size) * rank, out.begin() + static_cast<int64_t>(n / size) * (rank + 1));
    }
  }
}

}  // namespace

// NCCL connects the ranks at the first collective: here, and not in execution 0. A small one of the group's own operation, checked.
absl::Status GraphLoader::TryGroup(const PlanGroup& g, LoadedGraph* loaded, Stream* stream, Nanos deadline) {
  constexpr size_t kHalf = NcclScratch::kTrialBytes / 2;  // one for what is given, one for what comes
  static_assert(kMaxGroupRanks * sizeof(int32_t) <= kHalf);
  Communicator* const group = loaded->groups.at(g.id).get();
  const size_t given = g.op == v1::ALL_GATHER ? 1 : g.members.size();
  const std::vector<int32_t> in = TrialInput(g, given, group->rank()), expected = TrialResult(g, given, group->rank());
  const NcclScratch& scratch = *nccl_->scratch;
  char* const there = static_cast<char*>(scratch.trial());
  char* const here = static_cast<char*>(scratch.pattern());
  const auto failed = [&](const absl::Status& s) {
    return absl::Status(s.code(), absl::StrCat("trial of collective ", g.name, ": ", std::string(s.message())));
  };
  const auto copy = [&](void* to, const void* from, size_t bytes) {
    const absl::Status s = env_->cuda->Check(env_->cuda->api()->MemcpyAsync(to, from, bytes, stream->native()), "copying");
    return s.ok() ? s : failed(s);
  };
  std::memcpy(here, in.data(), given * sizeof(int32_t));
  WEFT_RETURN_IF_ERROR(copy(there, here, given * sizeof(int32_t)));
  CollectiveCall call;
  call.op = g.op;
  call.reduce = g.reduce;
  call.root_rank = g.root_rank;
  call.execution = kTrialExecution;
  Value value, out;
  value.tensor = Tensor(v1::I32, {static_cast<int64_t>(given)}, there, nullptr);
  const Tensor buffer(v1::I32, {static_cast<int64_t>(kHalf / sizeof(int32_t))}, there + kHalf, nullptr);
  absl::StatusOr<EventRef> event = group->Run(call, value, buffer, &out, stream);
  if (!event.ok()) return failed(event.status());
  const auto wait = [&](const EventRef& e) -> absl::Status {
    while (!IsReady(e)) {
      const uint32_t seen = env_->doorbell->Snapshot();
      if (IsReady(e)) break;
      const absl::Status open = CheckOpen(deadline, absl::StrCat("trial of collective ", g.name, " did not come to its end; it waits for its other members"));
      if (!open.ok()) {
        loaded->groups.erase(g.id);  // which fills `out` no more
        return open;
      }
      env_->doorbell->Wait(seen, env_->clock->Now() + 1'000'000, 0);
    }
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(wait(*event));
  if (out.error != nullptr) return failed(absl::Status(out.error->code, out.error->message));
  const size_t bytes = expected.size() * sizeof(int32_t);
  if (out.tensor.bytes() != bytes) return failed(absl::DataLossError(absl::StrCat(out.tensor.ToString(), " came")));
  WEFT_RETURN_IF_ERROR(copy(here + kHalf, there + kHalf, bytes));
  absl::StatusOr<EventRef> copied = env_->cuda->Record(stream->native());
  if (!copied.ok()) return failed(copied.status());
  WEFT_RETURN_IF_ERROR(wait(*copied));
  if (std::memcmp(here + kHalf, expected.data(), bytes) != 0) {
    return failed(absl::DataLossError("it brought wrong numbers; check the GPUs' links with NCCL's own tests"));
  }
  return absl::OkStatus();
}

absl::Status GraphLoader::TryGroups(LoadedGraph* loaded, Nanos deadline) {
  std::shared_ptr<Stream> stream;
  for (const PlanGroup& g : part_.groups) {
    if (g.transport != v1::NCCL) continue;
    if (stream == nullptr) {
      WEFT_ASSIGN_OR_RETURN(stream, env_->device->NewStream(v1::LANE_COLLECTIVE));
    }
    const absl::Status s = TryGroup(g, loaded, stream.get(), deadline);
    if (s.ok()) continue;
    loaded->groups.clear();  // before the stream, which their ops may still use
    links_->Keep(stream);    // NCCL's thread may yet put there what it has been told
    return s;
  }
  return absl::OkStatus();
}

}  // namespace weft
