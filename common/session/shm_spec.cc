#include "common/session/shm_spec.h"

namespace weft {

ShmEdgeSpec ShmSpecOf(const Plan& plan, const PlanEdge& edge) {
  ShmEdgeSpec s;
  s.edge = edge.id;
  s.slots = edge.slots;
  s.bytes = edge.bytes;
  s.spec = edge.spec;
  s.name = EdgeName(plan, edge);
  s.src_worker = WorkerName(plan, edge.src_worker);
  s.dst_worker = WorkerName(plan, edge.dst_worker);
  s.rendezvous = edge.rendezvous;
  s.latency_s = edge.emulated ? edge.emulate_latency_s : 0;
  s.bandwidth = edge.emulated ? edge.emulate_bandwidth : 0;
  return s;
}

}  // namespace weft
