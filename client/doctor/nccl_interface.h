#pragma once

#include <string>
#include <vector>

#include "client/doctor/host_facts.h"

namespace weft {

struct InterfaceChoice {
  std::vector<std::string> names;  // that NCCL would use; empty: none fits
  std::string why;                 // "NCCL_SOCKET_IFNAME=lo", "the first that is neither loopback nor docker's"
};

// Which interfaces NCCL takes for its sockets: those that NCCL_SOCKET_IFNAME (`wanted`, empty: unset) names (prefixes, or with '=' whole
// names, after '^' those to leave out); without it, one named ib*, else one that is neither loopback nor a container's or a virtual
// machine's bridge, else such a bridge, else loopback. Only those that are up and have an address count.
InterfaceChoice NcclInterface(const std::vector<NetInterface>& interfaces, const std::string& wanted);

}  // namespace weft
