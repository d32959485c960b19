#pragma once

// Lines of metrics.jsonl, as a trainer would write them.

#include <nlohmann/json.hpp>
#include <string>

#include "train/training_job.hpp"

namespace rondo::tools::test {

inline const char* const small_experiment = R"([data]
name = "synthetic"
[model]
name = "lenet5"
[train]
epochs = 2
)";

/// `training` on one node.
inline std::string start_line(const Training& training) {
  const nlohmann::json event = {{"event", "start"},
                                {"config", train::to_toml(training.experiment)},
                                {"ranks", training.placement.ranks()},
                                {"threads", training.placement.threads},
                                {"nodes", 1}};
  return event.dump() + '\n';
}

/// An epoch of 8 global and 2 local reductions, and 1024 bytes.
inline std::string epoch_line(double accuracy, double seconds) {
  const nlohmann::json event = {{"event", "epoch"},       {"accuracy", accuracy},
                                {"seconds", seconds},     {"global_reductions", 8},
                                {"local_reductions", 2},  {"bytes_sent", 1024},
                                {"evaluation_seconds", 9}};
  return event.dump() + '\n';
}

inline std::string end_line(const std::string& reason) {
  return nlohmann::json{{"event", "end"}, {"reason", reason}}.dump() + '\n';
}

}  // namespace rondo::tools::test
