#include "driver/cluster/registry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/plan/plan.h"

namespace weft {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool NaturalLess(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (IsDigit(a[i]) && IsDigit(b[j])) {
      size_t ie = i, je = j;
      while (i < a.size() && a[i] == '0') ++i;
      while (j < b.size() && b[j] == '0') ++j;
      ie = i;
      je = j;
      while (ie < a.size() && IsDigit(a[ie])) ++ie;
      while (je < b.size() && IsDigit(b[je])) ++je;
      if (ie - i != je - j) return ie - i < je - j;
      const int c = a.compare(i, ie - i, b, j, je - j);
      if (c != 0) return c < 0;
      i = ie;
      j = je;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  if ((i < a.size()) != (j < b.size())) return j < b.size();
  return a < b;  // equal but for leading zeros
}

const char* WorkerStateName(WorkerState state) {
  switch (state) {
    case WorkerState::kAlive: return "alive";
    case WorkerState::kUnresponsive: return "unresponsive";
    case WorkerState::kLost: return "lost";
  }
  return "unknown";
}

absl::StatusOr<std::string> WorkerRegistry::Register(const v1::WorkerMessage& first, std::shared_ptr<WorkerLink> link) {
  if (first.what_case() != v1::WorkerMessage::kRegister) {
    return absl::InvalidArgumentError("a worker's first message must be Register");
  }
  const v1::Register& reg = first.register_();
  if (first.incarnation().empty() || first.incarnation().size() > 64) {
    return absl::InvalidArgumentError("Register without an incarnation of 1 to 64 characters");
  }
  if (!reg.name().empty()) WEFT_RETURN_IF_ERROR(CheckName("worker", reg.name()));
  if (reg.plan_version() != kPlanVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", reg.name(), " reads plans of version ", reg.plan_version(), ", this driver writes version ",
                     kPlanVersion, ": install the same release of weft on both"));
  }
  MutexLock lock(&mu_);
  std::string name = reg.name();
  if (name.empty()) {
    for (int i = 0; name.empty(); ++i) {
      const std::string candidate = absl::StrCat("w", i);
      const auto it = workers_.find(candidate);
      if (it == workers_.end() || it->second.lost) name = candidate;
    }
  }
  const auto it = workers_.find(name);
  if (it != workers_.end() && !it->second.lost) {
    const Record& live = it->second;
    return absl::AlreadyExistsError(
        absl::StrCat("a live worker has the name ", name, " (pid ", live.registration.pid(), ", host ",
                     live.registration.host_id(), "): start this one with another --name, or stop that one first"));
  }
  int live = 0;
  for (const auto& [other, record] : workers_) live += record.lost ? 0 : 1;
  if (live >= kMaxWorkers) return absl::ResourceExhaustedError(absl::StrCat("there are ", live, " workers, the most a driver takes"));
  ForgetOldestLost();
  Record& record = workers_[name];
  record = Record();
  record.incarnation = first.incarnation();
  record.registration = reg;
  record.registration.set_name(name);
  record.last_heartbeat = clock_->Now();
  record.link = std::move(link);

  v1::DriverMessage welcome;
  welcome.set_driver_incarnation(options_.driver_incarnation);
  welcome.mutable_welcome()->set_name(name);
  welcome.mutable_welcome()->set_driver_host_id(options_.host_id);
  welcome.mutable_welcome()->set_driver_shm_address(options_.shm_address);
  welcome.mutable_welcome()->set_heartbeat_interval_s(options_.heartbeat_interval_s);
  record.link->Send(std::move(welcome));
  return name;
}

void WorkerRegistry::ForgetOldestLost() {
  auto oldest = workers_.end();
  int lost = 0;
  for (auto it = workers_.begin(); it != workers_.end(); ++it) {
    if (!it->second.lost) continue;
    ++lost;
    if (oldest == workers_.end() || it->second.lost_at < oldest->second.lost_at) oldest = it;
  }
  if (lost > kMaxWorkers) workers_.erase(oldest);
}

bool WorkerRegistry::Lose(const std::string& name, const std::string& incarnation) {
  MutexLock lock(&mu_);
  const auto it = workers_.find(name);
  if (it == workers_.end() || it->second.lost || it->second.incarnation != incarnation) return false;
  it->second.lost = true;
  it->second.lost_at = clock_->Now();
  it->second.link.reset();
  return true;
}

bool WorkerRegistry::Accept(const std::string& name, const std::string& incarnation) {
  MutexLock lock(&mu_);
  const auto it = workers_.find(name);
  if (it != workers_.end() && !it->second.lost && it->second.incarnation == incarnation) return true;
  ++dropped_;
  return false;
}

void WorkerRegistry::Heartbeat(const std::string& name, int64_t progress) {
  MutexLock lock(&mu_);
  const auto it = workers_.find(name);
  if (it == workers_.end()) return;
  it->second.last_heartbeat = clock_->Now();
  it->second.progress = progress;
}

void WorkerRegistry::CountDropped() {
  MutexLock lock(&mu_);
  ++dropped_;
}

int64_t WorkerRegistry::dropped() const {
  MutexLock lock(&mu_);
  return dropped_;
}

bool WorkerRegistry::Send(const std::string& name, const std::string& incarnation, v1::DriverMessage message) {
  message.set_driver_incarnation(options_.driver_incarnation);
  MutexLock lock(&mu_);
  const auto it = workers_.find(name);
  if (it == workers_.end() || it->second.lost) return false;
  if (!incarnation.empty() && it->second.incarnation != incarnation) return false;
  it->second.link->Send(std::move(message));
  return true;
}

void WorkerRegistry::CloseAll(const absl::Status& why) {
  MutexLock lock(&mu_);
  for (auto& [name, record] : workers_) {
    if (!record.lost) record.link->Close(why);
  }
}

WorkerSnapshot WorkerRegistry::SnapshotOf(const std::string& name, const Record& record) const {
  WorkerSnapshot s;
  s.name = name;
  s.incarnation = record.incarnation;
  s.registration = record.registration;
  s.heartbeat_age = std::max<Nanos>(0, clock_->Now() - record.last_heartbeat);
  s.progress = record.progress;
  if (record.lost) {
    s.state = WorkerState::kLost;
  } else if (ToSeconds(s.heartbeat_age) > options_.unresponsive_after_s) {
    s.state = WorkerState::kUnresponsive;
  }
  return s;
}

std::vector<WorkerSnapshot> WorkerRegistry::List() const {
  std::vector<WorkerSnapshot> all;
  {
    MutexLock lock(&mu_);
    for (const auto& [name, record] : workers_) all.push_back(SnapshotOf(name, record));
  }
  std::sort(all.begin(), all.end(),
            [](const WorkerSnapshot& a, const WorkerSnapshot& b) { return NaturalLess(a.name, b.name); });
  return all;
}

absl::StatusOr<WorkerSnapshot> WorkerRegistry::Find(const std::string& name) const {
  MutexLock lock(&mu_);
  const auto it = workers_.find(name);
  if (it == workers_.end()) return absl::NotFoundError(absl::StrCat("there is no worker ", name));
  return SnapshotOf(name, it->second);
}

int64_t WorkerRegistry::ProgressOf(const std::string& name) const {
  MutexLock lock(&mu_);
  const auto it = workers_.find(name);
  return it == workers_.end() ? 0 : it->second.progress;
}

std::string WorkerRegistry::Problem(const std::string& name) const {
  const absl::StatusOr<WorkerSnapshot> s = Find(name);
  if (!s.ok()) return "unknown";
  switch (s->state) {
    case WorkerState::kAlive: return "";
    case WorkerState::kUnresponsive: return absl::StrFormat("unresponsive for %.1f s", ToSeconds(s->heartbeat_age));
    case WorkerState::kLost: return "lost: its control stream closed";
  }
  return "";
}

}  // namespace weft
