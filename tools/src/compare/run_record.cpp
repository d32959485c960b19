#include "compare/run_record.hpp"

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

namespace rondo::tools {
namespace {

using Json = nlohmann::json;

std::optional<double> number(const Json& event, const char* name) {
  const auto found = event.find(name);
  if (found == event.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::int64_t count(const Json& event, const char* name) {
  const auto found = event.find(name);
  return found != event.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

std::string text(const Json& event, const char* name) {
  const auto found = event.find(name);
  return found != event.end() && found->is_string() ? found->get<std::string>() : std::string();
}

EpochRecord epoch_of(const Json& event) {
  return {// JSON has no NaN: it is written as null.
          .accuracy = number(event, "accuracy").value_or(std::numeric_limits<double>::quiet_NaN()),
          .seconds = number(event, "seconds").value_or(0.0),
          .global_reductions = number(event, "global_reductions").value_or(0.0),
          .local_reductions = number(event, "local_reductions").value_or(0.0),
          .bytes_sent = number(event, "bytes_sent").value_or(0.0),
          .global_bytes = number(event, "global_bytes"),
          .local_bytes = number(event, "local_bytes")};
}

void add(const Json& event, RunRecord& record) {
  const std::string kind = text(event, "event");
  if (kind == "start") {
    record.start = {.config = text(event, "config"),
                    .ranks = count(event, "ranks"),
                    .threads = count(event, "threads"),
                    .nodes = count(event, "nodes"),
                    .route = text(event, "route")};
  } else if (kind == "epoch") {
    record.epochs.push_back(epoch_of(event));
  } else if (kind == "end") {
    record.end_reason = text(event, "reason");
  }
}

}  // namespace

bool RunRecord::completed() const {
  const bool ended = end_reason == "completed" || end_reason == "max_steps";
  return ended && start.has_value() && !epochs.empty();
}

RunRecord read_run_record(const std::filesystem::path& metrics) {
  RunRecord record;
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) {
    const Json event = Json::parse(line, nullptr, false);
    if (event.is_object()) add(event, record);
  }
  return record;
}

}  // namespace rondo::tools
