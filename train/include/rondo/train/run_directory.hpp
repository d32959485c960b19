#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <rondo/train/experiment.hpp>
#include <rondo/train/export.hpp>

namespace rondo::train {

/// While it lives, no other process locks the directory, and no other lock of this one. The kernel
/// gives a lock back when its process ends, however it does. Where the file system knows no locks,
/// or there is no such directory, it does nothing.
class RONDO_TRAIN_API DirectoryLock {
 public:
  DirectoryLock() noexcept = default;
  /// Tries once; is_in_use() says with which result.
  explicit DirectoryLock(const std::filesystem::path& directory) noexcept;
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  DirectoryLock(DirectoryLock&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), is_in_use_(other.is_in_use_) {}
  ~DirectoryLock();

  /// Waits for at most `limit` for a run that is just ending, or until `needless` says true: less
  /// than until a stall is reported by ranks that wait for this one. Throws ConfigError when the
  /// other one goes on.
  [[nodiscard]] static DirectoryLock wait(const std::filesystem::path& directory,
                                          std::chrono::milliseconds limit = std::chrono::seconds(8),
                                          const std::function<bool()>& needless = {});

  /// Has somebody else locked it?
  [[nodiscard]] bool is_in_use() const noexcept { return is_in_use_; }

 private:
  int descriptor_ = -1;
  bool is_in_use_ = false;
};

/// The directory of one run, from before it begins until it has ended. A run has begun once
/// record() was called; one that was refused before leaves nothing behind, so that it can be tried
/// again with the same directory.
class RONDO_TRAIN_API RunDirectory {
 public:
  /// Makes `path`, unless it exists, and writes the resolved configuration into its config.toml.
  /// Throws ConfigError when that cannot be done, or when another run's files are in it. Doing it
  /// twice for the same run, as a launcher and rank 0 do, is no error. A run that goes on there, as
  /// TrainerOptions::resume says, keeps its config.toml until the new one is known to fit.
  RunDirectory(std::filesystem::path path, const Experiment& experiment,
               const std::filesystem::path& resume = {});
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  /// Unless the run has begun, removes what was made here, and its metrics.jsonl. Leaves the
  /// directory alone while another run writes there, and where config.toml has been replaced or
  /// removed.
  ~RunDirectory();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// For a run that is to be resumed: is it there whole, with the steps that are asked for now, and
  /// has it left no checkpoint?
  [[nodiscard]] bool is_complete() const noexcept { return is_complete_; }

  /// Writes config.toml of a run that begins or goes on anew: `experiment` says what was left open,
  /// as by grid.plan = "auto", and each RunDirectory of this run leaves its files from now on.
  /// Throws DataError, and ConfigError where config.toml cannot be written at all.
  static void record(const std::filesystem::path& path, const Experiment& experiment);

 private:
  /// Which file of the machine config.toml is: writing it anew makes another one.
  using FileIdentity = std::pair<dev_t, ino_t>;
  void make(const Experiment& experiment, bool resumes);
  void remove() noexcept;

  std::filesystem::path path_;
  std::filesystem::path made_;  // the topmost directory that was not there; empty when all were
  std::optional<FileIdentity> config_;  // config.toml until the run begins
  bool wrote_config_ = false;
  bool had_metrics_ = true;  // before this run; false only once that is known
  bool is_complete_ = false;
};

}  // namespace rondo::train
