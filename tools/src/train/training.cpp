// One run of `rondo train` on this machine: what is asked for, which cores its ranks get, its
// folder, and the job that starts them. `rondo compare` makes many of them.
//
// Launcher and rank 0 both make the folder, because there may be no launcher of ours. It is removed
// again if the run is refused before metrics.jsonl has its first event.

#include "train/training.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <system_error>
#include <utility>

#include "failure.hpp"
#include "files.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

// An empty metrics.jsonl is what a refused run may have left.
bool has_metrics(const fs::path& folder) {
  std::error_code error;
  const auto bytes = fs::file_size(folder / "metrics.jsonl", error);
  return !error && bytes > 0;
}

// Rank 0 makes metrics.jsonl before it looks at data and memory. Only when nothing was wrong it
// begins it with this event; one that was refused later has at most the last.
bool has_begun(const fs::path& folder) {
  std::ifstream file(folder / "metrics.jsonl");
  std::string line;
  return std::getline(file, line) && line.starts_with(R"({"event":"start")");
}

// The first part of `path` that is not there; empty when all of it is.
fs::path first_missing(const fs::path& path) {
  fs::path whole;
  for (const fs::path& part : path) {
    whole /= part;
    std::error_code error;
    if (!fs::exists(whole, error)) return whole;
  }
  return {};
}

// A config.toml with the same text is of the same run: the launcher has written it.
void refuse_files_of_another_run(const fs::path& folder, const std::string& config) {
  if (has_metrics(folder)) {
    throw UsageError(
        fmt::format("{} already holds a run's metrics.jsonl; choose another folder, or remove it",
                    folder.string()));
  }
  if (!fs::exists(folder / "config.toml")) return;
  if (read_file(folder / "config.toml") != config) {
    throw UsageError(fmt::format(
        "{} already holds another config.toml, which would be overwritten; choose another folder",
        folder.string()));
  }
}

void write_config(const fs::path& folder, const std::string& config) {
  replace_file(folder / "config.toml", config, "choose another folder with --out");
}

// Two runs may begin in the same second.
fs::path new_run_folder(const train::Experiment& experiment) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const std::string name = fmt::format("{:%Y%m%d-%H%M%S}-{}-{}", fmt::localtime(now),
                                       experiment.model.name, experiment.data.name);
  fs::path folder = fs::path("runs") / name;
  for (int copy = 2; fs::exists(folder); ++copy) {
    folder = fs::path("runs") / fmt::format("{}-{}", name, copy);
  }
  return folder;
}

}  // namespace

fs::path run_folder_for(const fs::path& folder, const train::Experiment& experiment) {
  return folder.empty() ? new_run_folder(experiment) : folder;
}

RunFolder::RunFolder(fs::path folder, const train::Experiment& experiment)
    : path_(std::move(folder)) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // "run/"
  const std::string config = to_toml(experiment);
  refuse_files_of_another_run(path_, config);
  made_ = first_missing(path_);
  try {
    make(config);
  } catch (...) {
    remove();
    throw;
  }
}

RunFolder::~RunFolder() {
  if (!has_begun(path_)) remove();
}

void RunFolder::make(const std::string& config) {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error || !fs::is_directory(path_, error)) {
    throw UsageError(fmt::format("cannot make the run folder {}: {}; choose another with --out",
                                 path_.string(),
                                 error ? error.message() : "there is a file of that name"));
  }
  wrote_config_ = !fs::exists(path_ / "config.toml");
  write_config(path_, config);
}

// Folders go only as long as nothing else is in them, such as a flight record.
void RunFolder::remove() noexcept {
  std::error_code error;
  if (wrote_config_) fs::remove(path_ / "config.toml", error);
  fs::remove(path_ / "metrics.jsonl", error);
  if (made_.empty()) return;
  for (fs::path folder = path_; fs::remove(folder, error) && folder != made_;) {
    folder = folder.parent_path();
  }
}

void rewrite_config(const fs::path& folder, const train::Experiment& experiment) {
  write_config(folder, to_toml(experiment));
}

// Options about links and memory become keys, so that config.toml repeats the run without them.
std::vector<std::string> all_settings(const TrainRequest& request) {
  std::vector<std::string> settings = request.settings;
  const FabricRequest& fabric = request.launch.fabric;
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
  return request.launch.placement.threads > 0 ? request.launch.placement.threads
                                              : static_cast<int>(experiment.train.threads);
}

// Threads come from the command line, else from [train]; the placement decides when neither says.
Training plan_training(const TrainRequest& request, train::Experiment experiment,
                       const Machine& machine) {
  PlacementRequest places = request.launch.placement;
  places.threads = threads_asked_for(request, experiment);
  Training training{std::move(experiment), place(machine, places), request.launch.fabric};
  training.experiment.train.threads = training.placement.threads;
  const auto nodes = static_cast<int>(training.experiment.transport.fake_nodes);
  if (nodes > 0) training.fabric.fake_nodes = nodes;
  return training;
}

// The ranks get the resolved folder and threads; settings go to them as they were given.
Job training_job(const TrainRequest& request, const Training& training, const RunFolder& folder) {
  std::vector<std::string> arguments = {"train",    request.config.string(),
                                        "--out",    folder.path().string(),
                                        "--format", name_of(text_or_json, request.format)};
  for (const std::string& setting : all_settings(request)) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  arguments.insert(arguments.end(), {"--threads", std::to_string(training.placement.threads)});
  if (request.launch.placement.oversubscribe) arguments.emplace_back("--oversubscribe");
  if (request.profile) arguments.emplace_back("--profile");
  if (!request.profile_steps.empty()) {
    arguments.insert(arguments.end(), {"--profile-steps", request.profile_steps});
  }
  const auto records =
      request.launch.flight_record.empty() ? folder.path() : request.launch.flight_record;
  arguments.insert(arguments.end(), {"--flight-record", records.string()});
  return {.command = own_command(arguments),
          .placement = training.placement,
          .fabric = training.fabric,
          .flight_record = records};
}

}  // namespace rondo::tools
