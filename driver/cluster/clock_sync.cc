#include "driver/cluster/clock_sync.h"

#include <utility>

namespace weft {

void ClockSync::Joined(const std::string& worker, const std::string& incarnation) {
  MutexLock lock(&mu_);
  Peer& peer = peers_[worker];
  peer = Peer();
  peer.incarnation = incarnation;
  Ping(worker, &peer);
}

void ClockSync::Lost(const std::string& worker) {
  MutexLock lock(&mu_);
  // The samples stay: traces that were fetched before may still be asked about.
  const auto it = peers_.find(worker);
  if (it != peers_.end()) it->second.request = -1;
}

void ClockSync::Ping(const std::string& worker, Peer* peer) {
  peer->request = next_request_++;
  peer->sent = clock_->Now();
  v1::DriverMessage message;
  message.mutable_clock_ping()->set_request(peer->request);
  if (!registry_->Send(worker, peer->incarnation, std::move(message))) peer->request = -1;
}

void ClockSync::Reply(const std::string& worker, int64_t request, Nanos worker_ns, Nanos now) {
  MutexLock lock(&mu_);
  const auto it = peers_.find(worker);
  if (it == peers_.end() || it->second.request != request || request <= 0) return;
  Peer& peer = it->second;
  Sample sample;
  sample.round_trip = now - peer.sent;
  // Unsigned on purpose: a worker may claim any time.
  sample.offset = static_cast<Nanos>(static_cast<uint64_t>(peer.sent + sample.round_trip / 2) - static_cast<uint64_t>(worker_ns));
  peer.samples.push_back(sample);
  if (peer.samples.size() > kKept) peer.samples.pop_front();
  peer.request = 0;
  peer.next = now + kInterval;
  if (peer.samples.size() < kKept) Ping(worker, &peer);
}

ClockSync::Offset ClockSync::OffsetOf(const std::string& worker) const {
  MutexLock lock(&mu_);
  Offset best;
  const auto it = peers_.find(worker);
  if (it == peers_.end()) return best;
  for (const Sample& s : it->second.samples) {
    if (best.known && s.round_trip / 2 >= best.error) continue;
    best.known = true;
    best.offset = s.offset;
    best.error = s.round_trip / 2;
  }
  return best;
}

void ClockSync::Tick() {
  MutexLock lock(&mu_);
  const Nanos now = clock_->Now();
  for (auto& [worker, peer] : peers_) {
    if (peer.request == 0 && now >= peer.next) Ping(worker, &peer);
  }
}

}  // namespace weft
