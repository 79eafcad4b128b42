#include "common/base/log.h"

#include "absl/strings/str_cat.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace weft {

absl::Status SetUpLogging(const std::string& process, const std::string& level) {
  const spdlog::level::level_enum l = spdlog::level::from_str(level == "warn" ? "warning" : level);
  if (l == spdlog::level::off && level != "off") {
    return absl::InvalidArgumentError(
        absl::StrCat("log level \"", level, "\" is not one of trace, debug, info, warn, error, off"));
  }
  auto logger = std::make_shared<spdlog::logger>(process, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %n %v");
  logger->set_level(l);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
  return absl::OkStatus();
}

}  // namespace weft
