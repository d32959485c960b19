// Which checkpoint a run goes on from, and what can be taken from it.
//
// Where the ranks hold the same as then, each reads its own parts, and the run goes on as if it had
// never stopped. On another grid the model is put together from the parts, as an average over the
// replicas that the checkpoint has.

#include "checkpoint/resume.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/grid.hpp>
#include <rondo/train/parameters.hpp>

#include "checkpoint/storage.hpp"
#include "config/grid_choice.hpp"
#include "config/key.hpp"
#include "data/dataset_type.hpp"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;

// What may differ between a run and the one that it goes on from. A `.` at the end: all of a
// section.
constexpr auto free_keys = std::to_array<std::string_view>(
    {"checkpoint.", "grid.", "inject.", "transport.", "data.path", "model.weights", "train.epochs",
     "train.log_every", "train.max_steps", "train.memory_limit", "train.threads", "update.replay"});

// Everything else that the configuration says would make another training of it: it must be as it
// was.
bool is_free(const std::string& key) {
  return std::ranges::any_of(free_keys, [&](std::string_view free) {
    return free.ends_with('.') ? key.starts_with(free) : key == free;
  });
}

// The first floats of a part that fits its checksum. A part may have more of them than the model
// has parameters, but not fewer.
std::vector<float> floats_of(const fs::path& checkpoint, const CheckpointFile& file,
                             std::size_t least) {
  const std::vector<std::byte> bytes = read_checked(checkpoint, file);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (values.size() * sizeof(float) != bytes.size() || values.size() < least) {
    fail_on_file(checkpoint / file.name, "is of another model", "resume from another checkpoint");
  }
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// In double, so that an average over many replicas is rounded once.
void add(std::span<const float> values, double factor, std::vector<double>& sums) {
  sums.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) sums[i] += factor * values[i];
}

}  // namespace

std::vector<fs::path> resume_candidates(const fs::path& run_folder, const fs::path& resume) {
  // The newest first. Whoever calls tries them in turn, until one can be read.
  if (resume == "auto") return list_checkpoints(run_folder);
  if (fs::is_directory(checkpoints_in(resume))) return list_checkpoints(resume);
  return {resume};
}

Manifest read_manifest(const fs::path& checkpoint) {
  const std::string text = read_manifest_text(checkpoint);
  try {
    return parse_manifest(text);
  } catch (const std::invalid_argument& error) {
    // A damaged manifest is a matter of the disk, not of the caller's arguments.
    throw DataError(fmt::format("{}: {}; resume from another checkpoint, or begin anew",
                                checkpoint.string(), error.what()));
  }
}

void expect_same_training(const Manifest& manifest, const Experiment& now) {
  // Both sides are whole configurations, with all defaults, so that a default that has changed
  // between two versions of the program is noticed, too.
  const Experiment then = parse_experiment(manifest.config, "the checkpoint's configuration");
  for (const Key& key : all_keys()) {
    const Value before = key.get(then);
    const Value after = key.get(now);
    if (before == after || is_free(key.full_name())) continue;
    refuse_key(key.full_name(),
               "it is {}, and was {} when the checkpoint was written; resume with the "
               "configuration of that run, or begin a new run in another folder",
               to_toml_value(after), to_toml_value(before));
  }
}

bool has_same_grid(const Manifest& manifest, const Experiment& now, int ranks) {
  Experiment::Grid then = parse_experiment(manifest.config, "the checkpoint's configuration").grid;
  then.plan = now.grid.plan;  // who has chosen does not matter
  return manifest.ranks == ranks && then == now.grid;
}

ModelWeights weights_of_checkpoint(const fs::path& checkpoint, const Manifest& manifest,
                                   const Model& model) {
  const Experiment then = parse_experiment(manifest.config, "the checkpoint's configuration");
  const GridChoice choice = choose_grid(model, then.grid, manifest.ranks, then.train.global_batch);
  const ParameterLayout whole = layout_of(model);
  std::vector<double> parameters(whole.parameter_count);
  std::vector<double> statistics(whole.statistic_count);
  // The average of equal replicas, as under synchronous updates, is each of them. Where they step
  // by themselves it is a model that none of them has, as their next average would be.
  for (int replica = 0; replica < choice.grid.pc; ++replica) {
    ModelWeights weights;
    // The positions of a replica hold slices that together are the whole model.
    for (int position = 0; position < choice.grid.pr; ++position) {
      const ParameterLayout part = layout_of(model, choice.splits, choice.grid.pr, position);
      const int rank = choice.grid.rank_at(replica, position);
      const auto own =
          floats_of(checkpoint, manifest.file_of(rank, Part::parameters), part.parameter_count);
      const auto measured =
          floats_of(checkpoint, manifest.file_of(rank, Part::statistics), part.statistic_count);
      add_part(part, own, std::span(measured).first(part.statistic_count), whole, weights);
    }
    add(weights.parameters, 1.0 / choice.grid.pc, parameters);
    add(weights.statistics, 1.0 / choice.grid.pc, statistics);
  }
  const auto rounded = [](double value) { return static_cast<float>(value); };
  ModelWeights mean;
  std::ranges::transform(parameters, std::back_inserter(mean.parameters), rounded);
  std::ranges::transform(statistics, std::back_inserter(mean.statistics), rounded);
  return mean;
}

}  // namespace rondo::train
