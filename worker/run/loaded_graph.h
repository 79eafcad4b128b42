#pragma once

#include <functional>
#include <map>
#include <memory>

#include "common/channel/port.h"
#include "common/comm/communicator.h"
#include "common/plan/plan.h"
#include "worker/actor/actor.h"
#include "worker/run/arena.h"

namespace weft {

// Everything that a worker's part of a plan needs to run: made by bootstrap, owned by GraphRun.
struct LoadedGraph {
  Plan plan;  // the part of this worker
  std::map<int32_t, std::unique_ptr<Actor>> actors;       // by PlanActor::id
  std::map<int32_t, std::unique_ptr<SendPort>> senders;   // by PlanEdge::id
  std::map<int32_t, std::unique_ptr<RecvPort>> receivers; // by PlanEdge::id
  std::map<int32_t, std::unique_ptr<Communicator>> groups;// by PlanGroup::id
  // Planned device memory, where one allocation holds it all; nullptr: each buffer is allocated by itself.
  std::shared_ptr<Arena> arena;
  // Highest admitted execution, -1 before the first. Called by the loop's thread at every step.
  std::function<int64_t()> admitted;
  // Closes all links with a cause, so that peers stop too. Called once, on the loop's thread, when the graph fails or is removed.
  std::function<void(const absl::Status&)> close_links;
  // First failure of a link that no port shows, such as a peer that died while no edge was in use. OK while all is well.
  std::function<absl::Status()> link_health;
  // Whether something that a peer has been told of is yet to be put on the device, by any graph of the worker, or another graph is in its bootstrap: no
  // call may wait for the device then. May be empty.
  std::function<bool()> owes;
  // Keeps what the links' communicators may still use until they have ended. May be empty.
  std::function<void(std::shared_ptr<void>)> keep;
};

}  // namespace weft
