#include "client/doctor/nccl_interface.h"

#include <algorithm>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

using Match = std::function<bool(const NetInterface&)>;

std::vector<std::string> All(const std::vector<NetInterface>& interfaces, const Match& match) {
  std::vector<std::string> names;
  for (const NetInterface& i : interfaces) {
    if (i.up && !i.addresses.empty() && match(i)) names.push_back(i.name);
  }
  return names;
}

bool IsBridge(const NetInterface& i) { return absl::StartsWith(i.name, "docker") || absl::StartsWith(i.name, "virbr"); }

Match Named(std::string wanted) {
  const bool leave_out = absl::StartsWith(wanted, "^");
  if (leave_out) wanted.erase(0, 1);
  const bool whole = absl::StartsWith(wanted, "=");
  if (whole) wanted.erase(0, 1);
  const std::vector<std::string> list = absl::StrSplit(wanted, ',', absl::SkipEmpty());
  return [leave_out, whole, list](const NetInterface& i) {
    const bool in =
        std::any_of(list.begin(), list.end(), [&](const std::string& n) { return whole ? i.name == n : absl::StartsWith(i.name, n); });
    return in != leave_out;
  };
}

}  // namespace

InterfaceChoice NcclInterface(const std::vector<NetInterface>& interfaces, const std::string& wanted) {
  if (!wanted.empty()) return {All(interfaces, Named(wanted)), absl::StrCat("NCCL_SOCKET_IFNAME=", wanted)};
  const std::pair<Match, const char*> rules[] = {
      {[](const NetInterface& i) { return absl::StartsWith(i.name, "ib"); }, "the first named ib*"},
      {[](const NetInterface& i) { return !i.loopback && !IsBridge(i); }, "the first that is neither loopback nor a bridge of containers"},
      {IsBridge, "there is none but bridges of containers"},
      {[](const NetInterface& i) { return i.loopback; }, "there is none but loopback"},
  };
  for (const auto& [match, why] : rules) {
    const std::vector<std::string> names = All(interfaces, match);
    if (!names.empty()) return {{names.front()}, why};
  }
  return {{}, "no interface is up and has an address"};
}

}  // namespace weft
