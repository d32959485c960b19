#include "train/training_job.hpp"

#include <fmt/format.h>

#include <utility>

#include "launch/self.hpp"

namespace rondo::tools {

std::vector<std::string> all_settings(const TrainRequest& request) {
  std::vector<std::string> settings = request.settings;
  const FabricRequest& fabric = request.fabric;
  const auto set = [&](const char* key, const auto& value, const char* quote) {
    if (value) settings.push_back(fmt::format("transport.{}={}{}{}", key, quote, *value, quote));
  };
  set("fake_nodes", fabric.fake_nodes, "");
  set("fabric", fabric.fabric, "'");
  set("interface", fabric.interface, "'");
  set("latency_us", fabric.latency_us, "");
  set("bandwidth_gbs", fabric.bandwidth_gbs, "");
  if (request.memory_limit) {
    settings.push_back(fmt::format("train.memory_limit={}", *request.memory_limit));
  }
  return settings;
}

int threads_asked_for(const TrainRequest& request, const train::Experiment& experiment) {
  return request.request.threads > 0 ? request.request.threads
                                     : static_cast<int>(experiment.train.threads);
}

Training plan_training(const TrainRequest& request, train::Experiment experiment,
                       const Machine& machine) {
  PlacementRequest places = request.request;
  places.threads = threads_asked_for(request, experiment);
  Training training{std::move(experiment), place(machine, places), request.fabric};
  training.experiment.train.threads = training.placement.threads;
  const auto nodes = static_cast<int>(training.experiment.transport.fake_nodes);
  if (nodes > 0) training.fabric.fake_nodes = nodes;
  return training;
}

Job training_job(const TrainRequest& request, const Training& training, const RunFolder& folder) {
  const std::string out = folder.path().string();
  std::vector<std::string> command = {own_path(), "train",    request.config.string(), "--out",
                                      out,        "--format", request.format};
  for (const std::string& setting : all_settings(request)) {
    command.insert(command.end(), {"--set", setting});
  }
  command.insert(command.end(), {"--threads", std::to_string(training.placement.threads)});
  if (request.request.oversubscribe) command.emplace_back("--oversubscribe");
  const auto records = request.flight_record.empty() ? folder.path() : request.flight_record;
  command.insert(command.end(), {"--flight-record", records.string()});
  return {.command = std::move(command),
          .placement = training.placement,
          .fabric = training.fabric,
          .flight_record = records};
}

}  // namespace rondo::tools
