#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/comm/kv_store.h"
#include "weft/v1/worker_service.grpc.pb.h"

namespace weft {

// The driver as the place where the ranks of one attempt's communicators find each other.
class DriverStore : public KeyValueStore {
 public:
  DriverStore(std::shared_ptr<v1::WorkerService::Stub> stub, std::string graph, std::string attempt, std::string token)
      : stub_(std::move(stub)), graph_(std::move(graph)), attempt_(std::move(attempt)), token_(std::move(token)) {}

  absl::Status Set(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::vector<std::string>> Get(const std::vector<std::string>& keys, Nanos timeout) override;

 private:
  const std::shared_ptr<v1::WorkerService::Stub> stub_;
  const std::string graph_;
  const std::string attempt_;
  const std::string token_;
};

}  // namespace weft
