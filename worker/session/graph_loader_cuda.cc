// What bootstrap does on a GPU worker beside the rest: planned memory in one allocation, shared memory page-locked, edges over CUDA IPC, and
// host channels staged for the device.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/ipc/ipc_mapping.h"
#include "common/channel/ipc/ipc_recv_port.h"
#include "common/channel/ipc/ipc_send_port.h"
#include "common/channel/shm/recv_port.h"
#include "common/channel/shm/send_port.h"
#include "common/channel/staged/staged_recv_port.h"
#include "common/channel/staged/staged_send_port.h"
#include "common/session/shm_spec.h"
#include "worker/run/captured_places.h"
#include "worker/run/device_errors.h"
#include "worker/session/driver_store.h"
#include "worker/session/graph_loader.h"
#include "worker/session/links.h"

namespace weft {

absl::Status GraphLoader::TakeArena() {
  if (env_->cuda == nullptr) return absl::OkStatus();
  // The probe's bytes are at the end whether or not anyone opens the memory.
  const size_t bytes = Arena::BytesFor(part_) + kIpcProbeBytes;
  absl::StatusOr<std::shared_ptr<void>> memory = env_->cuda->Allocate(bytes);
  if (!memory.ok()) {
    uint64_t free = 0, total = 0;
    (void)env_->cuda->api()->MemInfo(&free, &total);
    return absl::Status(memory.status().code(),
                        absl::StrCat("planned memory of graph ", part_.graph, " on ", WorkerName(part_, me_), ": ",
                                     std::string(memory.status().message()), "; ", free, " of ", total,
                                     " are free: set options.memory_limit_bytes, lower prefetch_depth or max_in_flight, or use more workers"));
  }
  held_ = env_->deferred->Hold(*std::move(memory));
  arena_ = Arena::Over(std::shared_ptr<void>(held_, held_->memory.get()), bytes - kIpcProbeBytes);
  return absl::OkStatus();
}

absl::Status GraphLoader::RegisterSegments() {
  if (env_->cuda == nullptr) return absl::OkStatus();
  for (const auto& segments : {to_, from_}) {
    for (const auto& [peer, segment] : segments) {
      // Unlocked before it is unmapped.
      absl::StatusOr<std::shared_ptr<void>> lock = env_->cuda->RegisterHost(segment->memory(), segment->memory_bytes(), segment);
      if (!lock.ok()) {
        return absl::Status(lock.status().code(), absl::StrCat("memory shared with ", WorkerName(part_, peer), ": ",
                                                               std::string(lock.status().message())));
      }
      links_->Keep(*std::move(lock));
    }
  }
  return absl::OkStatus();
}

absl::Status GraphLoader::MakeIpcPorts(LoadedGraph* loaded, Nanos deadline) {
  std::set<int32_t> readers, writers;
  for (const PlanEdge& e : part_.edges) {
    if (e.transport != v1::IPC) continue;
    if (env_->cuda == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(EdgeName(part_, e), ": transport IPC needs a GPU worker, and ", WorkerName(part_, me_),
                                                        " runs on ", env_->device->kind()));
    }
    (e.src_worker == me_ ? readers : writers).insert(e.src_worker == me_ ? e.dst_worker : e.src_worker);
  }
  if (readers.empty() && writers.empty()) return absl::OkStatus();
  DriverStore store(stub_, part_.graph, attempt_, env_->token);
  const auto key = [](const std::string& worker) { return absl::StrCat("ipc/", worker); };
  if (!readers.empty()) {
    // Before the reader looks, which it does once it has the offer.
    if (IsCaptured(part_, me_)) {
      WEFT_RETURN_IF_ERROR(
          PresetPlaces(part_, [this](const PlanEdge& e, uint64_t message) { return to_.at(e.dst_worker)->SlotMemory(e.id, message); }));
    }
    WEFT_ASSIGN_OR_RETURN(const IpcOffer offer, IpcMapping::Offer(env_->cuda, held_->memory.get(), arena_->bytes() + kIpcProbeBytes));
    WEFT_RETURN_IF_ERROR(store.Set(key(WorkerName(part_, me_)), offer.ToString()));
  }
  std::map<int32_t, std::shared_ptr<IpcMapping>> mappings;
  for (const int32_t writer : writers) {
    const std::string name = WorkerName(part_, writer);
    WEFT_RETURN_IF_ERROR(CheckOpen(deadline, absl::StrCat("no time is left to open GPU memory of ", name)));
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> offers, store.Get({key(name)}, deadline - env_->clock->Now()));
    WEFT_ASSIGN_OR_RETURN(const IpcOffer offer, IpcOffer::FromString(offers[0]));
    WEFT_ASSIGN_OR_RETURN(mappings[writer], IpcMapping::Open(env_->cuda, offer, name));
  }
  std::set<int32_t> told;
  for (const PlanEdge& e : part_.edges) {
    if (e.transport != v1::IPC) continue;
    const ShmEdgeSpec spec = ShmSpecOf(part_, e);
    const bool sends = e.src_worker == me_;
    const int32_t peer = sends ? e.dst_worker : e.src_worker;
    const std::shared_ptr<ShmSegment>& segment = (sends ? to_ : from_).at(peer);
    // The first edge of a pair also says whether the reader has the writer's memory open.
    uint32_t* opened = nullptr;
    if (told.insert(sends ? peer : -1 - peer).second) {
      WEFT_ASSIGN_OR_RETURN(void* const slot, segment->SlotMemory(e.id, 0));
      opened = &static_cast<IpcAnnouncement*>(slot)->opened_by;
    }
    if (sends) {
      WEFT_ASSIGN_OR_RETURN(std::unique_ptr<SendPort> header, ShmSendPort::Create(segment, e.id, env_->clock));
      loaded->senders[e.id] =
          std::make_unique<IpcSendPort>(std::move(header), spec, env_->cuda, arena_->memory(), arena_->bytes());
      if (opened != nullptr) held_->opened.push_back({segment, opened});
      continue;
    }
    if (opened != nullptr) {
      std::atomic_ref<uint32_t>(*opened).store(static_cast<uint32_t>(getpid()), std::memory_order_release);
      mappings.at(peer)->OnClosed([segment, opened] { std::atomic_ref<uint32_t>(*opened).store(0, std::memory_order_release); });
    }
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<RecvPort> header, ShmRecvPort::Create(segment, AnnouncementEdge(spec), env_->clock));
    auto port = std::make_unique<IpcRecvPort>(std::move(header), spec, env_->cuda, mappings.at(peer));
    links_->AddOther([release = port->Releaser()](const absl::Status&) { release(); }, nullptr);
    loaded->receivers[e.id] = std::move(port);
  }
  return absl::OkStatus();
}

absl::Status GraphLoader::StagePorts(LoadedGraph* loaded) {
  if (env_->cuda == nullptr) return absl::OkStatus();
  DeviceErrorFn error_of;
  if (UsesStatusWords(part_)) {
    error_of = [errors = std::make_shared<const DeviceErrors>(part_)](uint64_t word) { return errors->ErrorOf(word); };
  }
  std::map<int32_t, std::shared_ptr<StagedOrder>> orders;
  const auto order_to = [&](int32_t peer) {
    std::shared_ptr<StagedOrder>& order = orders[peer];
    if (order == nullptr) order = std::make_shared<StagedOrder>();
    return order;
  };
  for (const PlanEdge& e : part_.edges) {
    if (e.transport != v1::SHM && e.transport != v1::GLOO && e.transport != v1::REMOTE) continue;
    const ShmEdgeSpec spec = ShmSpecOf(part_, e);
    if (e.src_worker == me_) {
      std::unique_ptr<SendPort>& port = loaded->senders[e.id];
      WEFT_ASSIGN_OR_RETURN(port, StagedSendPort::Create(std::move(port), spec, env_->cuda, error_of,
                                                         e.transport == v1::GLOO ? order_to(e.dst_worker) : nullptr));
    } else {
      std::unique_ptr<RecvPort>& port = loaded->receivers[e.id];
      WEFT_ASSIGN_OR_RETURN(port, StagedRecvPort::Create(std::move(port), spec, env_->cuda, e.transport == v1::SHM && e.bytes > 0));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
