#include "train/run_folder.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "exit_status.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

void refuse_files_of_another_run(const fs::path& folder, const std::string& config) {
  if (fs::exists(folder / "metrics.jsonl")) {
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

}  // namespace

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

void prepare_run_folder(const fs::path& folder, const train::Experiment& experiment) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder, error)) {
    throw UsageError(fmt::format("cannot make the run folder {}: {}; choose another with --out",
                                 folder.string(),
                                 error ? error.message() : "there is a file of that name"));
  }
  const std::string config = to_toml(experiment);
  refuse_files_of_another_run(folder, config);
  write(folder / "config.toml", config);
}

void rewrite_config(const fs::path& folder, const train::Experiment& experiment) {
  write(folder / "config.toml", to_toml(experiment));
}

}  // namespace rondo::tools
