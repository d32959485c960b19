// Which checkpoint a run goes on from, and what it says of how far the run had come.
//
// Rank 0 lists the checkpoints that `resume` may mean, the newest first. All ranks look through one
// after another together: a damaged one is skipped with a note, one of another training is an
// error, because it would not be the same run. Each step is collective and ends alike on all ranks,
// so that no rank goes on from another checkpoint than the others.
//
// Ranks that are as many and on the same grid as those of the checkpoint read each its own state.
// Others get the figures of the epoch as sums and means over the ranks of then.

#include "trainer/resumed_checkpoint.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/world.hpp>

#include "checkpoint/resume.hpp"
#include "checkpoint/storage.hpp"
#include "trainer/agreement.hpp"
#include "trainer/run_log.hpp"
#include "trainer/trained_state.hpp"

namespace rondo::train {
namespace {

// The ranks share the work of looking through the files: all read the manifest, and the files are
// dealt out among them.
void look_through(transport::World& world, ResumedCheckpoint& checkpoint) {
  agree_on(world, [&] {
    checkpoint.manifest = read_manifest(checkpoint.path);
    const std::vector<CheckpointFile>& files = checkpoint.manifest.files;
    const auto ranks = static_cast<std::size_t>(world.size());
    for (auto i = static_cast<std::size_t>(world.rank()); i < files.size(); i += ranks) {
      static_cast<void>(read_checked(checkpoint.path, files[i]));
    }
  });
}

// Facts beyond the configuration: a program may bring its own model or data, and files may have
// changed. Which samples a step has, and how many steps an epoch, follow from their number.
void expect_same_model_and_data(const Manifest& manifest, const TrainedState& run) {
  expect_same_layers(manifest, run.model);
  constexpr const char* remedy =
      "give it the data of that run, or begin a new run in another folder";
  const std::int64_t samples = run.dataset->training.shape.n;
  if (samples != manifest.training_samples) {
    throw ConfigError(
        fmt::format("data: the training set has {} samples, and had {} when the run began; {}",
                    samples, manifest.training_samples, remedy));
  }
  if (run.dataset->mean != manifest.mean || run.dataset->stddev != manifest.stddev) {
    throw ConfigError(fmt::format(
        "data: images are normalised with another mean or deviation than when the run began; {}",
        remedy));
  }
  for (const auto& [name, mine, before] :
       {std::tuple("training", run.digests.training, manifest.training_data),
        std::tuple("test", run.digests.test, manifest.test_data)}) {
    if (mine == before) continue;
    throw ConfigError(
        fmt::format("data: the {} images or their labels are others than when the run began; {}",
                    name, remedy));
  }
}

// A run that ended before the step that it goes on from would tell of an end that it never had.
void expect_end_behind(const ResumedCheckpoint& checkpoint, std::int64_t total_steps) {
  const std::int64_t step = checkpoint.manifest.step;
  if (step <= total_steps) return;
  throw ConfigError(fmt::format(
      "train.epochs, train.max_steps: the run ends after step {}, and {} is of step {}; let it "
      "train for longer, or go on from an earlier checkpoint",
      total_steps, checkpoint.path.string(), step));
}

// Returns what is wrong, alike on all ranks.
std::string try_checkpoint(const TrainedState& run, ResumedCheckpoint& checkpoint) {
  try {
    look_through(run.world, checkpoint);
  } catch (const DataError& error) {
    return error.what();
  }
  agree_on(run.world, [&] {
    expect_same_training(experiment_of(checkpoint.manifest), run.experiment);
    expect_same_model_and_data(checkpoint.manifest, run);
    expect_end_behind(checkpoint, run.total_steps);
    checkpoint.exact = checkpoint.manifest.ranks == run.world.size() &&
                       grid_of(checkpoint.manifest, run.model) == run.grid.choice();
  });
  return {};
}

}  // namespace

std::vector<std::byte> ResumedCheckpoint::read(int rank, Part part) const {
  return read_checked(path, manifest.file_of(rank, part));
}

// By its name, where that says so, for it or the checkpoint may be a link to where there is more
// room.
std::filesystem::path ResumedCheckpoint::folder() const {
  std::error_code error;
  const auto named = std::filesystem::absolute(path, error).parent_path();
  if (named.filename() == checkpoints_in({})) return named;
  return std::filesystem::weakly_canonical(path, error).parent_path();
}

std::optional<ResumedCheckpoint> find_checkpoint(const TrainedState& run, const RunLog& log) {
  transport::World& world = run.world;
  const std::filesystem::path& folder = run.options.run_folder;
  // Each with a zero behind it, which no name has: what is wanted, and what that may mean.
  std::string names = run.options.resume.string() + '\0';
  if (world.rank() == 0 && !run.options.resume.empty()) {
    for (const auto& path : resume_candidates(folder, run.options.resume)) {
      names += path.string() + '\0';
    }
  }
  names = text_of_first_rank(world, names);
  const std::string wanted = names.substr(0, names.find('\0'));
  if (wanted.empty()) return std::nullopt;
  names.erase(0, wanted.size() + 1);
  const bool there_is_one = !names.empty();
  // The error at the end says what is wrong with the last one.
  const bool there_are_several = std::ranges::count(names, '\0') > 1;
  std::string last_problem = "there is none";
  for (std::size_t end = 0; !names.empty(); names.erase(0, end + 1)) {
    end = names.find('\0');
    ResumedCheckpoint checkpoint{.path = names.substr(0, end)};
    last_problem = try_checkpoint(run, checkpoint);
    if (last_problem.empty()) {
      std::error_code error;
      checkpoint.in_run_folder =
          std::filesystem::equivalent(checkpoint.folder(), checkpoints_in(folder), error);
      return checkpoint;
    }
    if (!there_are_several) continue;
    log.note("skipped " + checkpoint.path.filename().string() + ": " + last_problem);
  }
  agree_on(world, [&] {
    if (wanted != "auto") throw DataError(wanted + ": no checkpoint can be used: " + last_problem);
    // A run that began anew would replace them; perhaps a disk of one host is missing.
    if (there_is_one) {
      throw DataError(
          fmt::format("{}: no checkpoint can be used: {}; to begin the run anew, remove {}",
                      folder.string(), last_problem, checkpoints_in(folder).string()));
    }
    if (world.rank() != 0 || !has_completed(folder)) return;
    throw ConfigError(
        fmt::format("{} holds a run that has completed, and no checkpoint to go on from; choose "
                    "another folder, or remove it",
                    folder.string()));
  });
  log.note("no checkpoint to go on from in " + folder.string() + ": the run begins");
  return std::nullopt;
}

// Rank 0 reads what all ranks of that run have kept.
RunState state_for_other_ranks(transport::World& world, const ResumedCheckpoint& checkpoint) {
  std::string all;
  agree_on(world, [&] {
    if (world.rank() != 0) return;
    std::vector<RunState> ranks;
    for (int rank = 0; rank < checkpoint.manifest.ranks; ++rank) {
      ranks.push_back(read_run_state(checkpoint.read(rank, Part::progress)));
    }
    const std::vector<std::byte> bytes = to_bytes(together(ranks));
    all.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  all = text_of_first_rank(world, all);
  const RunState state = read_run_state(std::as_bytes(std::span(all)));
  return world.rank() == 0 ? state : without_sums(state);
}

}  // namespace rondo::train
