#pragma once

#include <filesystem>
#include <string>

#include <rondo/train/experiment.hpp>

namespace rondo::tools {

/// `folder`, or if that is empty a folder under runs/ that does not exist yet, named after the time
/// and the experiment.
[[nodiscard]] std::filesystem::path run_folder_for(const std::filesystem::path& folder,
                                                   const train::Experiment& experiment);

/// The folder of one run, from before it begins until it has ended. A run has begun when its
/// metrics.jsonl says so; one that was refused before leaves nothing behind, so that it can be
/// tried again with the same folder.
class RunFolder {
 public:
  /// Makes `folder`, unless it exists, and writes the resolved configuration into its config.toml.
  /// Throws UsageError when that cannot be done, or when another run's files are in it. Doing it
  /// twice for the same run, as the launcher and rank 0 do, is no error.
  RunFolder(std::filesystem::path folder, const train::Experiment& experiment);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  /// Unless the run has begun, removes what was made here, and its metrics.jsonl.
  ~RunFolder();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void make(const std::string& config);
  void remove() noexcept;

  std::filesystem::path path_;
  std::filesystem::path made_;  // the topmost folder that was not there; empty when all were
  bool wrote_config_ = false;
};

/// Writes config.toml of a run anew: `experiment` says what was left open, as by grid.plan =
/// "auto". Throws UsageError when it cannot be written.
void rewrite_config(const std::filesystem::path& folder, const train::Experiment& experiment);

}  // namespace rondo::tools
