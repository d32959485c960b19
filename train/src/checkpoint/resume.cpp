// Which checkpoint a run goes on from, or a model is taken from, and what can be taken from it.
//
// Where the ranks hold the same as then, each reads its own parts, and the run goes on as if it had
// never stopped. On another grid the model is put together from the parts, as an average over the
// replicas that the checkpoint has.

#include "checkpoint/resume.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <rondo/sync/scheme_base.hpp>
#include <rondo/train/dataset.hpp>
#include <rondo/train/grid.hpp>
#include <rondo/train/parameters.hpp>
#include <rondo/train/weights.hpp>

#include "checkpoint/storage.hpp"
#include "config/combinations.hpp"
#include "config/grid_choice.hpp"
#include "data/dataset_type.hpp"
#include "executor/lowering.hpp"
#include "executor/shared_statistics.hpp"
#include "weights/checksum.hpp"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;

// The floats of a part that fits its checksum.
std::vector<float> floats_of(const fs::path& checkpoint, const CheckpointFile& file,
                             std::size_t count) {
  const std::vector<std::byte> bytes = read_checked(checkpoint, file);
  if (bytes.size() != count * sizeof(float)) {
    fail_on_file(checkpoint / file.name, "is of another model", "use another checkpoint");
  }
  std::vector<float> values(count);
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// A file of as many replicas as hold the same.
struct SharedFile {
  const CheckpointFile* file = nullptr;
  int replicas = 0;
};

// The files of one position in all replicas, each once, in the order of their first replicas.
std::vector<SharedFile> files_at(const Manifest& manifest, Part part, const ProcessGrid& grid,
                                 int position) {
  std::vector<SharedFile> files;
  std::map<std::string_view, std::size_t> known;  // by name, where it is among them
  for (int replica = 0; replica < grid.pc; ++replica) {
    const CheckpointFile& file = manifest.file_of(grid.rank_at(replica, position), part);
    const auto [entry, is_new] = known.try_emplace(file.name, files.size());
    if (is_new) files.push_back({.file = &file});
    ++files[entry->second].replicas;
  }
  return files;
}

// The average of what the ranks at one position of their replicas hold: in double, so that an
// average over many replicas is rounded once. Equal replicas, as under synchronous updates, equal
// their average. Where replicas step by themselves the average is a model that none of them has, as
// their next average would be.
std::vector<float> mean_of(const fs::path& checkpoint, const Manifest& manifest, Part part,
                           const ProcessGrid& grid, int position, std::size_t count) {
  std::vector<double> sums(count);
  for (const SharedFile& shared : files_at(manifest, part, grid, position)) {
    const std::vector<float> values = floats_of(checkpoint, *shared.file, count);
    std::ranges::transform(sums, values, sums.begin(),
                           [&](double sum, double value) { return sum + shared.replicas * value; });
  }
  std::vector<float> mean(count);
  std::ranges::transform(sums, mean.begin(),
                         [&](double sum) { return static_cast<float>(sum / grid.pc); });
  return mean;
}

}  // namespace

std::vector<fs::path> resume_candidates(const fs::path& run_folder, const fs::path& resume) {
  // The newest first. Whoever calls tries them in turn, until one can be read.
  if (resume == "auto") return list_checkpoints(run_folder);
  std::error_code ignored;
  if (fs::is_directory(checkpoints_in(resume), ignored)) return list_checkpoints(resume);
  return {resume.has_filename() ? resume : resume.parent_path()};  // "step-4/"
}

fs::path find_checkpoint(const fs::path& run_folder, const std::string& which) {
  const std::vector<fs::path> checkpoints = list_checkpoints(run_folder);
  fs::path found;
  if (which == "newest" && !checkpoints.empty()) found = checkpoints.front();
  if (which == "best") found = best_of(checkpoints);
  for (const fs::path& checkpoint : checkpoints) {
    if (checkpoint.filename() == "step-" + which) found = checkpoint;
  }
  std::error_code ignored;
  if (found.empty() && fs::is_directory(which, ignored)) found = which;
  if (!found.empty()) return found;
  const auto names = checkpoints | std::views::transform([](const fs::path& checkpoint) {
                       return checkpoint.filename().string();
                     });
  fail_on_file(
      run_folder,
      fmt::format("has no checkpoint \"{}\" ({})", which,
                  checkpoints.empty() ? "none at all" : fmt::format("{}", fmt::join(names, ", "))),
      "give newest, best, the number of a step, or the path of a checkpoint");
}

Experiment experiment_of(const Manifest& manifest) {
  return parse_recorded(manifest.config, "the checkpoint's configuration");
}

std::optional<Experiment::Grid> grid_of_earlier_run(const fs::path& run_folder,
                                                    const fs::path& resume, int ranks,
                                                    const Experiment& now) {
  for (const fs::path& checkpoint : resume_candidates(run_folder, resume)) {
    try {
      const Manifest manifest = read_manifest(checkpoint);
      const Experiment then = experiment_of(manifest);
      expect_same_training(then, now);
      if (manifest.ranks == ranks) return then.grid;
    } catch (const std::runtime_error&) {
      continue;  // find_checkpoint() says what is wrong with it
    }
  }
  return std::nullopt;
}

std::string checksum_of_layers(const Model& model) {
  const std::string text = description_of(model);
  return checksum_of(std::as_bytes(std::span(text)));
}

void expect_same_layers(const Manifest& manifest, const Model& model) {
  if (checksum_of_layers(model) == manifest.layers) return;
  throw ConfigError("the model " + model.name +
                    ": its layers are others than those of the run; give the model of that run, or "
                    "begin a new run in another folder");
}

GridChoice grid_of(const Manifest& manifest, const Model& model) {
  const Experiment then = experiment_of(manifest);
  return choose_grid(model, then.grid, manifest.ranks, then.train.global_batch,
                     then.train.precision);
}

namespace {

constexpr std::string_view evaluated_name = "evaluated";
constexpr std::uint32_t evaluated_version = 1;

// Nothing, or as many floats as `values` has.
bool copy_floats(sync::ByteReader& reader, std::span<float> values) {
  const std::span<const std::byte> bytes = reader.get_bytes();
  if (bytes.empty()) return false;
  if (bytes.size() != values.size_bytes()) {
    throw std::invalid_argument("it has other sizes");
  }
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return true;
}

}  // namespace

std::vector<std::byte> to_bytes(const EvaluatedPart& part) {
  sync::ByteWriter writer(evaluated_name, evaluated_version);
  writer.put_array(std::as_bytes(part.parameters));
  writer.put_array(std::as_bytes(part.statistics));
  return writer.take();
}

bool read_evaluated(const fs::path& checkpoint, const CheckpointFile& file,
                    std::span<float> parameters, std::span<float> statistics) {
  const std::vector<std::byte> bytes = read_checked(checkpoint, file);
  try {
    sync::ByteReader reader(bytes, evaluated_name, evaluated_version);
    const bool has_parameters = copy_floats(reader, parameters);
    copy_floats(reader, statistics);
    reader.expect_end();
    return has_parameters;
  } catch (const std::invalid_argument&) {
    fail_on_file(checkpoint / file.name, "is of another model", "use another checkpoint");
  }
}

namespace {

// Replicas that hold what was evaluated have no parameters in their part.
bool read_evaluated_at(int position, const fs::path& checkpoint, const Manifest& manifest,
                       const ProcessGrid& grid, std::span<float> parameters,
                       std::span<float> statistics) {
  return std::ranges::any_of(
      files_at(manifest, Part::evaluated, grid, position), [&](const SharedFile& shared) {
        return read_evaluated(checkpoint, *shared.file, parameters, statistics);
      });
}

}  // namespace

// A checkpoint that was evaluated has that model. Others are averaged in an evaluation's order:
// first over the replicas, then what the ranks of a replica have measured each by itself.
ModelWeights weights_of_checkpoint(const fs::path& checkpoint, const Manifest& manifest,
                                   const Model& model) {
  const GridChoice choice = grid_of(manifest, model);
  const ParameterLayout whole = layout_of(model);
  std::vector<ParameterLayout> parts;
  std::vector<SharedStatistics> shared;
  std::vector<std::vector<float>> statistics;
  const Lowering lowering = lower(model, choice.splits, choice.grid.pr, 1);
  for (int position = 0; position < choice.grid.pr; ++position) {
    parts.push_back(layout_of(model, lowering, position));
    shared.emplace_back(model, choice, parts.back(), position);
    statistics.push_back(mean_of(checkpoint, manifest, Part::statistics, choice.grid, position,
                                 parts.back().statistic_count + shared.back().size()));
  }
  SharedStatistics::average(shared, statistics);
  ModelWeights weights;
  for (int position = 0; position < choice.grid.pr; ++position) {
    const auto index = static_cast<std::size_t>(position);
    std::vector<float> parameters(parts[index].parameter_count);
    if (!read_evaluated_at(position, checkpoint, manifest, choice.grid, parameters,
                           statistics[index])) {
      parameters =
          mean_of(checkpoint, manifest, Part::parameters, choice.grid, position, parameters.size());
    }
    add_part(parts[index], parameters,
             std::span(statistics[index]).first(parts[index].statistic_count), whole, weights);
  }
  return weights;
}

}  // namespace rondo::train
