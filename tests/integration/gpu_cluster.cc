#include "tests/integration/gpu_cluster.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/ipc/announcement.h"
#include "common/channel/ipc/ipc_mapping.h"
#include "common/channel/ipc/ipc_recv_port.h"
#include "common/channel/ipc/ipc_send_port.h"
#include "common/channel/nccl/announcement.h"
#include "common/channel/shm/hub.h"
#include "common/channel/shm/recv_port.h"
#include "common/channel/shm/send_port.h"
#include "common/channel/staged/staged_recv_port.h"
#include "common/channel/staged/staged_send_port.h"
#include "common/comm/nccl/nccl_communicator.h"
#include "common/device/fake/fake_device.h"
#include "common/session/edge_trial.h"
#include "common/session/shm_spec.h"
#include "worker/run/captured_places.h"
#include "worker/run/device_errors.h"

namespace weft {
namespace {

constexpr Nanos kPatience = 20 * kNanosPerSecond;

bool Until(const std::function<bool()>& holds) {
  const Nanos limit = Clock::Real()->Now() + kPatience;
  while (!holds()) {
    if (Clock::Real()->Now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

GpuCluster::GpuCluster(const Plan& plan, Options options) : plan_(plan), options_(std::move(options)) {}

GpuCluster::~GpuCluster() {
  for (auto& [id, place] : places_) {
    if (place.run != nullptr) place.run->Fail(absl::CancelledError("the test is over"));
  }
  for (auto& [id, place] : places_) {
    if (place.run == nullptr || Until([&run = place.run] { return run->Quiescent(); })) continue;
    place.fakes->cuda.BreakDevice(kCudaLaunchTimeout);  // a test has failed
  }
  for (auto& [id, place] : places_) {
    place.run = nullptr;
    place.loaded = LoadedGraph();
    place.links.clear();
    for (const auto& comm : place.comms) comm->Abort(absl::CancelledError("the test is over"));
  }
  for (auto& [id, place] : places_) place.comms.clear();
  inputs_.clear();
  outputs_.clear();
  for (auto& [id, place] : places_) {
    place.locks.clear();
    place.memory = nullptr;
  }
}

std::string GpuCluster::Key(int32_t writer, int32_t reader) const {
  return absl::StrCat(WorkerName(plan_, writer), " to ", WorkerName(plan_, reader));
}

absl::Status GpuCluster::MakePlace(int32_t id) {
  Place& place = places_[id];
  WEFT_ASSIGN_OR_RETURN(place.doorbell, Doorbell::Create());
  WEFT_ASSIGN_OR_RETURN(place.hub, ShmHub::Create(place.doorbell.get()));
  std::map<int32_t, std::vector<ShmEdgeSpec>> out;
  for (const PlanEdge& e : plan_.edges) {
    if (e.src_worker != id) continue;
    if (e.transport == v1::SHM) out[e.dst_worker].push_back(ShmSpecOf(plan_, e));
    if (e.transport == v1::IPC) out[e.dst_worker].push_back(AnnouncementEdge(ShmSpecOf(plan_, e)));
    if (e.transport == v1::NCCL) out[e.dst_worker].push_back(NcclHeaderSpec(ShmSpecOf(plan_, e)));
  }
  for (auto& [peer, edges] : out) {
    WEFT_ASSIGN_OR_RETURN(place.to[peer], place.hub->Export(Key(id, peer), std::move(edges), HashAsNumber(plan_.hash)));
  }
  if (id == kClient) return absl::OkStatus();
  const Plan& part = parts_[id] = PartOf(plan_, id);
  if (plan_.workers[id].device == "cuda") {
    place.fakes = std::make_unique<FakePlugin>(options_.fakes);
    place.kernels = std::make_unique<FakeKernels>(&place.fakes->cuda);
    WEFT_ASSIGN_OR_RETURN(place.cuda, CudaDevice::Create(place.fakes->plugin(place.kernels.get()), Clock::Real(), 0));
    const size_t bytes = Arena::BytesFor(part);
    WEFT_ASSIGN_OR_RETURN(place.memory, place.cuda->Allocate(bytes + kIpcProbeBytes));
    place.loaded.arena = Arena::Over(place.memory, bytes);
    place.queue = std::make_shared<NcclQueue>();
    WEFT_ASSIGN_OR_RETURN(place.scratch, NcclScratch::Create(place.cuda.get()));
  } else {
    FakeDevice::Options o;
    o.seed = static_cast<uint64_t>(id) + 1;
    place.cpu = std::make_unique<FakeDevice>(&clock_, o);
  }
  for (const PlanActor& a : part.actors) {
    if (a.worker != id) continue;
    WEFT_ASSIGN_OR_RETURN(place.loaded.actors[a.id], ActorRegistry::Std(place.device()->kind()).Make(a.cls, a.config, place.device()));
  }
  if (place.cuda != nullptr) {
    WEFT_RETURN_IF_ERROR(
        PresetPlaces(part, [&](const PlanEdge& e, uint64_t message) { return place.to.at(e.dst_worker)->SlotMemory(e.id, message); }));
  }
  return absl::OkStatus();
}

absl::Status GpuCluster::Connect() {
  for (auto& [id, place] : places_) {
    for (auto& [peer, segment] : place.to) {
      Place& reader = places_.at(peer);
      WEFT_ASSIGN_OR_RETURN(reader.from[id], reader.hub->Import(place.hub->address(), Key(id, peer), Clock::Real()->Now() + kPatience));
    }
  }
  for (auto& [id, place] : places_) {
    if (place.cuda == nullptr) continue;
    for (const auto& segments : {place.to, place.from}) {
      for (const auto& [peer, segment] : segments) {
        WEFT_ASSIGN_OR_RETURN(std::shared_ptr<void> lock, place.cuda->RegisterHost(segment->memory(), segment->memory_bytes()));
        place.locks.push_back(std::move(lock));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<int32_t, std::shared_ptr<NcclComm>>> GpuCluster::Join(const std::string& label,
                                                                              const std::vector<int32_t>& workers) {
  NcclId id;
  if (places_.at(workers[0]).fakes->nccl.GetUniqueId(&id) != kNcclSuccess) return absl::InternalError("no NCCL id");
  std::map<int32_t, std::shared_ptr<NcclComm>> comms;
  std::vector<std::thread> threads;
  std::vector<absl::Status> joined(workers.size());
  for (size_t r = 0; r < workers.size(); ++r) {
    Place& place = places_.at(workers[r]);
    NcclComm::Options o;
    o.api = &place.fakes->nccl;
    o.device = place.cuda.get();
    o.clock = Clock::Real();
    o.label = label;
    for (const int32_t w : workers) o.workers.push_back(WorkerName(plan_, w));
    o.rank = static_cast<int>(r);
    WEFT_ASSIGN_OR_RETURN(comms[workers[r]], NcclComm::Create(std::move(o)));
    place.comms.push_back(comms[workers[r]]);
  }
  for (size_t r = 0; r < workers.size(); ++r) {
    threads.emplace_back([&, r] { joined[r] = comms[workers[r]]->Join(id, Clock::Real()->Now() + kPatience); });
  }
  for (std::thread& t : threads) t.join();
  for (const absl::Status& s : joined) WEFT_RETURN_IF_ERROR(s);
  return comms;
}

absl::Status GpuCluster::MakeLinks() {
  for (const PlanEdge& e : plan_.edges) {
    const auto pair = std::make_pair(e.src_worker, e.dst_worker);
    if (e.transport != v1::NCCL || places_.at(e.src_worker).links.count(pair) > 0) continue;
    WEFT_ASSIGN_OR_RETURN(const auto comms, Join(absl::StrCat("link ", Key(e.src_worker, e.dst_worker)), {e.src_worker, e.dst_worker}));
    for (const auto& [w, comm] : comms) {
      Place& place = places_.at(w);
      NcclLink::Options o;
      o.comm = comm;
      o.queue = place.queue;
      o.scratch = place.scratch;
      o.device = place.cuda.get();
      o.plan_hash = HashAsNumber(plan_.hash);
      const bool shares = w < options_.share_gpu_below;
      o.send_when_taken = o.receive_alone = shares;
      o.replay = !shares && pair.first % 2 == 0;  // some of each
      WEFT_ASSIGN_OR_RETURN(place.links[pair], NcclLink::Create(std::move(o)));
    }
  }
  return absl::OkStatus();
}

absl::Status GpuCluster::MakeGroups() {
  if (plan_.groups.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<GlooDevice> device, GlooDevice::Create("127.0.0.1"));
  for (const PlanGroup& g : plan_.groups) {
    if (g.transport != v1::NCCL) return absl::UnimplementedError(absl::StrCat("collective ", g.name, " is not NCCL's"));
    WEFT_ASSIGN_OR_RETURN(const auto comms, Join(absl::StrCat("collective ", g.name), g.members));
    GroupInfo info;
    info.id = g.id;
    info.name = g.name;
    info.plan_hash = HashAsNumber(plan_.hash);
    for (const int32_t w : g.members) info.workers.push_back(WorkerName(plan_, w));
    std::vector<std::shared_ptr<GlooMesh>> meshes;
    for (size_t r = 0; r < g.members.size(); ++r) {
      GlooMesh::Options o;
      o.rank = static_cast<int>(r);
      o.store = &store_;
      o.prefix = g.name;
      o.label = g.name;
      o.workers = info.workers;
      o.doorbell = places_.at(g.members[r]).doorbell.get();
      WEFT_ASSIGN_OR_RETURN(std::shared_ptr<GlooMesh> mesh, GlooMesh::Create(device, std::move(o)));
      meshes.push_back(std::move(mesh));
    }
    std::vector<absl::Status> connected(meshes.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < meshes.size(); ++r) threads.emplace_back([&, r] { connected[r] = meshes[r]->Connect(kPatience); });
    for (std::thread& t : threads) t.join();
    for (const absl::Status& s : connected) WEFT_RETURN_IF_ERROR(s);
    for (size_t r = 0; r < meshes.size(); ++r) {
      Place& place = places_.at(g.members[r]);
      place.meshes.push_back(meshes[r]);
      NcclCommunicator::Options o;
      o.comm = comms.at(g.members[r]);
      o.mesh = meshes[r];
      o.queue = place.queue;
      o.scratch = place.scratch;
      o.group = info;
      o.device = place.cuda.get();
      o.doorbell = place.doorbell.get();
      WEFT_ASSIGN_OR_RETURN(place.loaded.groups[g.id], NcclCommunicator::Create(std::move(o)));
    }
  }
  return absl::OkStatus();
}

absl::Status GpuCluster::MakePorts(int32_t id) {
  Place& place = places_.at(id);
  DeviceErrorFn error_of;
  if (id != kClient && UsesStatusWords(plan_)) {
    error_of = [errors = std::make_shared<const DeviceErrors>(parts_.at(id))](uint64_t word) { return errors->ErrorOf(word); };
  }
  std::map<int32_t, std::shared_ptr<IpcMapping>> mappings;
  for (const PlanEdge& e : plan_.edges) {
    const ShmEdgeSpec spec = ShmSpecOf(plan_, e);
    const bool ipc = e.transport == v1::IPC, nccl = e.transport == v1::NCCL;
    if (e.transport != v1::SHM && !ipc && !nccl) {
      return absl::UnimplementedError(absl::StrCat(EdgeName(plan_, e), " is of no transport that is made here"));
    }
    if (e.src_worker == id) {
      std::unique_ptr<SendPort> port;
      WEFT_ASSIGN_OR_RETURN(port, ShmSendPort::Create(place.to.at(e.dst_worker), e.id, Clock::Real()));
      if (nccl) {
        WEFT_ASSIGN_OR_RETURN(port, NcclLink::NewSendPort(place.links.at({e.src_worker, e.dst_worker}), spec, std::move(port)));
      } else if (ipc) {
        port = std::make_unique<IpcSendPort>(std::move(port), spec, place.cuda.get(), place.memory, place.loaded.arena->bytes());
      } else if (place.cuda != nullptr) {
        WEFT_ASSIGN_OR_RETURN(port, StagedSendPort::Create(std::move(port), spec, place.cuda.get(), error_of));
      }
      if (id == kClient) {
        inputs_.push_back({&e, std::move(port)});
      } else {
        place.loaded.senders[e.id] = std::move(port);
      }
    }
    if (e.dst_worker == id) {
      std::unique_ptr<RecvPort> port;
      const ShmEdgeSpec messages = ipc ? AnnouncementEdge(spec) : nccl ? NcclHeaderSpec(spec) : spec;
      WEFT_ASSIGN_OR_RETURN(port, ShmRecvPort::Create(place.from.at(e.src_worker), messages, Clock::Real()));
      if (nccl) {
        WEFT_ASSIGN_OR_RETURN(port, NcclLink::NewRecvPort(place.links.at({e.src_worker, e.dst_worker}), spec, std::move(port)));
      } else if (ipc) {
        std::shared_ptr<IpcMapping>& mapping = mappings[e.src_worker];
        if (mapping == nullptr) {
          Place& writer = places_.at(e.src_worker);
          WEFT_ASSIGN_OR_RETURN(const IpcOffer offer, IpcMapping::Offer(writer.cuda.get(), writer.memory.get(),
                                                                        writer.loaded.arena->bytes() + kIpcProbeBytes));
          WEFT_ASSIGN_OR_RETURN(mapping, IpcMapping::Open(place.cuda.get(), offer, spec.src_worker));
        }
        auto receiver = std::make_unique<IpcRecvPort>(std::move(port), spec, place.cuda.get(), mapping);
        place.releasers.push_back(receiver->Releaser());
        port = std::move(receiver);
      } else if (place.cuda != nullptr) {
        WEFT_ASSIGN_OR_RETURN(port, StagedRecvPort::Create(std::move(port), spec, place.cuda.get(), e.bytes > 0));
      }
      if (id == kClient) {
        outputs_.push_back({&e, std::move(port)});
      } else {
        place.loaded.receivers[e.id] = std::move(port);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status GpuCluster::TryEdges() {
  std::map<int32_t, std::unique_ptr<Stream>> streams;
  for (auto& [id, place] : places_) {
    if (id == kClient) continue;
    WEFT_ASSIGN_OR_RETURN(streams[id], place.device()->NewStream(v1::LANE_SEND));
  }
  for (const PlanEdge& e : plan_.edges) {
    SendPort* sender = nullptr;
    RecvPort* receiver = nullptr;
    for (Input& i : inputs_) sender = i.edge == &e ? i.port.get() : sender;
    for (Output& o : outputs_) receiver = o.edge == &e ? o.port.get() : receiver;
    if (sender == nullptr) sender = places_.at(e.src_worker).loaded.senders.at(e.id).get();
    if (receiver == nullptr) receiver = places_.at(e.dst_worker).loaded.receivers.at(e.id).get();
    WEFT_ASSIGN_OR_RETURN(const EventRef sent, sender->Send(kTrialExecution, TrialValue(e.id), streams[e.src_worker].get()));
    const auto there = [&] {
      (void)IsReady(sent);  // asking is what moves it on
      return receiver->Poll(kTrialExecution) == PortState::kReady;
    };
    if (!Until(there)) return absl::InternalError("no trial came");
    Value value;
    WEFT_ASSIGN_OR_RETURN(const EventRef came, receiver->Recv(kTrialExecution, Tensor(), &value, streams[e.dst_worker].get()));
    const auto over = [&] {
      const bool first = IsReady(came), second = IsReady(sent);
      return first && second;
    };
    if (!Until(over)) return absl::InternalError("a trial does not end");
    receiver->Release(kTrialExecution);
    WEFT_RETURN_IF_ERROR(CheckTrialValue(value, e.id, EdgeName(plan_, e)));
  }
  return absl::OkStatus();
}

absl::Status GpuCluster::Start() {
  std::set<int32_t> used = {kClient};
  for (const PlanOp& op : plan_.ops) used.insert(op.worker);
  for (const int32_t id : used) WEFT_RETURN_IF_ERROR(MakePlace(id));
  WEFT_RETURN_IF_ERROR(Connect());
  WEFT_RETURN_IF_ERROR(MakeLinks());
  for (const int32_t id : used) WEFT_RETURN_IF_ERROR(MakePorts(id));
  WEFT_RETURN_IF_ERROR(TryEdges());
  WEFT_RETURN_IF_ERROR(MakeGroups());
  if (options_.before_load) options_.before_load(this);
  // At the same time, as separate workers do: collectives are tried while they load.
  std::map<int32_t, absl::Status> loaded;
  for (const int32_t id : used) loaded[id] = absl::OkStatus();
  std::vector<std::thread> threads;
  for (const int32_t id : used) {
    if (id != kClient) threads.emplace_back([this, id, out = &loaded[id]] { *out = Load(id); });
  }
  for (std::thread& t : threads) t.join();
  for (const auto& [id, s] : loaded) WEFT_RETURN_IF_ERROR(s);
  return absl::OkStatus();
}

absl::Status GpuCluster::Load(int32_t id) {
  Place& place = places_.at(id);
  place.device()->BindThread();
  place.loaded.plan = parts_.at(id);
  place.loaded.admitted = [this] { return admitted_; };
  place.loaded.close_links = [this, id](const absl::Status& why) { CloseLinks(id, why); };
  place.loaded.link_health = [&place]() -> absl::Status {
    for (const auto& segments : {place.to, place.from}) {
      for (const auto& [peer, segment] : segments) {
        if (segment->is_closed()) return segment->closed();
      }
    }
    for (const auto& comm : place.comms) {
      absl::Status health = comm->Health();
      if (!health.ok()) return health;
    }
    for (const auto& mesh : place.meshes) WEFT_RETURN_IF_ERROR(mesh->Health());
    return absl::OkStatus();
  };
  GraphRun::Options o;
  o.clock = Clock::Real();
  o.device = place.device();
  o.trace_capacity = options_.trace_capacity;
  WEFT_ASSIGN_OR_RETURN(place.run, GraphRun::Create(std::move(place.loaded), o));
  return absl::OkStatus();
}

void GpuCluster::CloseLinks(int worker, const absl::Status& why) {
  Place& place = places_.at(worker);
  if (place.closed_with.ok()) place.closed_with = why;
  for (const auto& segments : {place.to, place.from}) {
    for (const auto& [peer, segment] : segments) segment->Close(why);
  }
  for (const auto& release : place.releasers) release();
  for (const auto& comm : place.comms) comm->Abort(why);
  for (const auto& mesh : place.meshes) mesh->Abort(why);
}

absl::Status GpuCluster::Replan(const Plan& next) {
  for (auto& [id, place] : places_) {
    if (place.run != nullptr) WEFT_RETURN_IF_ERROR(place.run->Replan(PartOf(next, id), admitted_ + 1));
  }
  return absl::OkStatus();
}

bool GpuCluster::StepWorkers() {
  bool moved = false;
  for (auto& [id, place] : places_) {
    if (place.run != nullptr) moved |= place.run->Step();
  }
  return moved;
}

absl::Status GpuCluster::SendInputs(int64_t execution, const std::function<Value(const std::string&, int64_t)>& input) {
  for (Input& i : inputs_) {
    if (i.port->Poll(execution) != PortState::kReady) return absl::ResourceExhaustedError("no credit for an input");
  }
  for (Input& i : inputs_) {
    WEFT_RETURN_IF_ERROR(i.port->Send(execution, input(i.edge->src, execution), nullptr).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> GpuCluster::TakeOutputs(std::vector<InProcessResult>* results) {
  bool moved = false;
  for (Output& o : outputs_) {
    if (o.next > admitted_ || o.port->Poll(o.next) != PortState::kReady) continue;
    Value value;
    WEFT_ASSIGN_OR_RETURN(const EventRef event, o.port->Recv(o.next, Tensor(), &value, nullptr));
    InProcessValue v;
    if (value.error != nullptr) {
      v.error = value.error->ToString();
    } else {
      WEFT_ASSIGN_OR_RETURN(v.tensor, Tensor::OnHost(value.tensor.dtype(), value.tensor.dims()));
      std::memcpy(v.tensor.data(), value.tensor.data(), v.tensor.bytes());
    }
    (*results)[static_cast<size_t>(o.next - first_)][o.edge->dst] = std::move(v);
    o.port->Release(o.next);
    ++o.next;
    moved = true;
  }
  return moved;
}

absl::StatusOr<std::vector<InProcessResult>> GpuCluster::Run(int64_t executions, int in_flight,
                                                             const std::function<Value(const std::string&, int64_t)>& input) {
  first_ = admitted_ + 1;
  const int64_t end = first_ + executions;
  std::vector<InProcessResult> results(static_cast<size_t>(executions));
  const auto completed = [&] {
    int64_t n = end;
    for (const Output& o : outputs_) n = std::min(n, o.next);
    for (auto& [id, place] : places_) {
      if (place.run != nullptr) n = std::min(n, place.run->completed());
    }
    return n;
  };
  Nanos moved_at = Clock::Real()->Now();
  while (completed() < end) {
    bool moved = false;
    while (admitted_ + 1 < end && admitted_ + 1 - completed() < in_flight) {
      const absl::Status sent = SendInputs(admitted_ + 1, input);
      if (absl::IsResourceExhausted(sent)) break;
      WEFT_RETURN_IF_ERROR(sent);
      ++admitted_;
      moved = true;
    }
    moved |= StepWorkers();
    WEFT_ASSIGN_OR_RETURN(const bool took, TakeOutputs(&results));
    moved |= took;
    for (auto& [id, place] : places_) {
      if (place.run != nullptr && !place.run->failure().ok()) return place.run->failure();
    }
    const Nanos now = Clock::Real()->Now();
    if (moved) {
      moved_at = now;
    } else if (now - moved_at > kPatience) {
      return absl::InternalError(absl::StrCat("nothing moves: admitted ", admitted_ + 1, ", completed ", completed(), Views()));
    } else {
      std::this_thread::yield();
    }
  }
  return results;
}

std::string GpuCluster::Views() const {
  std::string text;
  for (const auto& [id, place] : places_) {
    if (place.run == nullptr) continue;
    const v1::WorkerView v = place.run->Inspect();
    for (const v1::LaneView& l : v.lane()) {
      absl::StrAppend(&text, "\n  ", v.worker(), " ", LaneName(l.lane(), l.index()), ": ", l.state(), " ", l.op(), " execution ",
                      l.execution(), ", waits for ", l.waits_for());
    }
    if (place.fakes != nullptr) absl::StrAppend(&text, "\n", place.fakes->cuda.State());
  }
  return text;
}

}  // namespace weft
