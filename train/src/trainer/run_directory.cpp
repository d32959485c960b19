// The directory of a run: who may write there, and what becomes of it when a run is refused.
//
// Launcher and rank 0 both make it, because there may be no launcher of ours. It is removed again
// if the run is refused before it begins. When it does begin, rank 0 writes config.toml anew:
// metrics.jsonl may be emptied or removed while the run trains, and cannot tell. The trainer of
// rank 0 locks the directory before the first line of its log.

#include <rondo/train/run_directory.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include <rondo/train/output_file.hpp>
#include <rondo/train/trainer.hpp>

#include "trainer/damaged_log.hpp"
#include "weights/durable_file.hpp"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;

constexpr auto lock_interval = std::chrono::milliseconds(10);

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Rank 0 makes metrics.jsonl before it looks at data and memory, and begins it with this event when
// nothing was wrong.
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
    if (!is_there(whole)) return whole;
  }
  return {};
}

// An empty metrics.jsonl is what a refused run may have left. A config.toml with the same text is
// of the same run: the launcher has written it.
void refuse_files_of_another_run(const fs::path& folder, const std::string& config) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(folder / "metrics.jsonl", error);
  if (!error && bytes > 0) {
    throw ConfigError(
        fmt::format("{} already holds a run's metrics.jsonl; choose another folder, or remove it",
                    folder.string()));
  }
  if (!is_there(folder / "config.toml") || contents_of(folder / "config.toml") == config) return;
  throw ConfigError(fmt::format(
      "{} already holds another config.toml, which would be overwritten; choose another folder",
      folder.string()));
}

// A file may lie elsewhere than it did. Where the earlier one is gone, its name has to do. A run
// that begins from the first step becomes another one by these files, too.
void expect_same_file(const char* key, const fs::path& before, const fs::path& now) {
  const bool both = !before.empty() && !now.empty();
  if (before == now) return;
  if (both && !is_there(before) && before.filename() == now.filename()) return;
  if (both && is_there(before) && is_there(now) && contents_of(before) == contents_of(now)) return;
  throw ConfigError(fmt::format("{}: it is \"{}\", and was \"{}\" when the run began", key,
                                now.string(), before.string()));
}

// A run without checkpoints begins again, and what is there is overwritten, unless it has done all.
// Returns whether it has.
bool is_complete_without_checkpoints(const fs::path& folder, const Experiment& experiment) {
  if (has_checkpoint(folder)) return false;
  std::string difference;
  try {
    const Experiment then = read_recorded(folder / "config.toml");
    expect_same_training(then, experiment);
    expect_same_file("model.weights", then.model.weights, experiment.model.weights);
    expect_same_file("update.replay", then.update.replay, experiment.update.replay);
    const bool as_long = then.train.epochs == experiment.train.epochs &&
                         then.train.max_steps == experiment.train.max_steps;
    return as_long && has_completed(folder);
  } catch (const ConfigError& error) {
    difference = error.what();
  }
  throw ConfigError(
      fmt::format("{} holds a run of another config.toml, and no checkpoint to go on from; choose "
                  "another folder, or remove it: {}",
                  folder.string(), difference));
}

}  // namespace

DirectoryLock::DirectoryLock(const fs::path& directory) noexcept
    : descriptor_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      is_in_use_(descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 &&
                 errno == EWOULDBLOCK) {}

DirectoryLock::~DirectoryLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

DirectoryLock DirectoryLock::wait(const fs::path& directory, std::chrono::milliseconds limit,
                                  const std::function<bool()>& needless) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    if (needless && needless()) return {};
    DirectoryLock lock(directory);
    if (!lock.is_in_use()) return lock;
    if (std::chrono::steady_clock::now() >= end) {
      throw ConfigError(
          directory.string() +
          ": another run is writing there; wait for its end, or choose another folder");
    }
    std::this_thread::sleep_for(lock_interval);
  }
}

RunDirectory::RunDirectory(fs::path path, const Experiment& experiment, const fs::path& resume)
    : path_(std::move(path)) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // "run/"
  const bool resumes = !resume.empty();
  // Nothing is written yet: the trainer first looks whether a checkpoint fits.
  if (resumes && has_begun(path_)) {
    is_complete_ = is_complete_without_checkpoints(path_, experiment);
    return;
  }
  // So that no empty directories stay of a path that did not exist.
  made_ = first_missing(path_);
  try {
    make(experiment, resumes);
  } catch (...) {
    remove();
    throw;
  }
}

RunDirectory::~RunDirectory() {
  if (config_ && identity_of(path_ / "config.toml") == config_) remove();
}

void RunDirectory::make(const Experiment& experiment, bool resumes) {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error || !fs::is_directory(path_, error)) {
    throw ConfigError(fmt::format("cannot make the run folder {}: {}; choose another",
                                  path_.string(),
                                  error ? error.message() : "there is a file of that name"));
  }
  had_metrics_ = is_there(path_ / "metrics.jsonl");
  const auto has_config = [&] { return is_there(path_ / "config.toml"); };
  // One of two runs that begin at the same moment finds the configuration of the other, which takes
  // milliseconds to write.
  const DirectoryLock locked = DirectoryLock::wait(path_, std::chrono::seconds(8), has_config);
  // A run goes on only from a checkpoint; files of anything else stay as they are.
  if (!resumes || !has_checkpoint(path_)) refuse_files_of_another_run(path_, to_toml(experiment));
  // A config.toml that is there is the same, or that of the run which goes on: rank 0 writes it
  // anew once a checkpoint fits.
  wrote_config_ = !has_config();
  if (wrote_config_) record(path_, experiment);
  config_ = identity_of(path_ / "config.toml");
}

// Directories go only as long as nothing else is in them, such as a flight record. rmdir() also
// leaves a symbolic link that names nothing.
void RunDirectory::remove() noexcept {
  const DirectoryLock locked(path_);
  if (locked.is_in_use()) return;
  std::error_code error;
  if (wrote_config_) fs::remove(path_ / "config.toml", error);
  if (!had_metrics_) fs::remove(path_ / "metrics.jsonl", error);
  if (made_.empty()) return;
  for (fs::path empty = path_; ::rmdir(empty.c_str()) == 0 && empty != made_;) {
    empty = empty.parent_path();
  }
}

void RunDirectory::record(const fs::path& path, const Experiment& experiment) {
  const fs::path file = path / "config.toml";
  if (const std::string problem = problem_of_output(file); !problem.empty()) {
    throw ConfigError(problem);
  }
  const std::string config = to_toml(experiment);
  OutputFile output(file, "make room, or choose another folder");
  output.write(std::as_bytes(std::span(config)));
  output.finish();
}

}  // namespace rondo::train
