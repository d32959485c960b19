#include "train/run_folder.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>

#include "exit_status.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

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

void refuse_files_of_another_run(const fs::path& folder, const std::string& config) {
  if (has_metrics(folder)) {
    throw UsageError(
        fmt::format("{} already holds a run's metrics.jsonl; choose another folder, or remove it",
                    folder.string()));
  }
  std::ifstream file(folder / "config.toml");
  if (!file) return;
  const std::string found{std::istreambuf_iterator<char>(file), {}};
  if (found != config) {
    throw UsageError(fmt::format(
        "{} already holds another config.toml, which would be overwritten; choose another folder",
        folder.string()));
  }
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) {
    throw UsageError(fmt::format("cannot write {}: {}; choose another folder with --out",
                                 path.string(),
                                 std::error_code(errno, std::generic_category()).message()));
  }
}

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
  write(path_ / "config.toml", config);
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
  write(folder / "config.toml", to_toml(experiment));
}

}  // namespace rondo::tools
