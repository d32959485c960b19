#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>

#include "checkpoint/manifest.hpp"
#include "config/grid_choice.hpp"
#include "weights/model_weights.hpp"

namespace rondo::train {

// The checkpoints that `resume` may mean, in the order in which they are to be tried: "auto" and a
// run's folder are its checkpoints, the newest first; anything else is one checkpoint.
[[nodiscard]] std::vector<std::filesystem::path> resume_candidates(
    const std::filesystem::path& run_folder, const std::filesystem::path& resume);

// The configuration of the run.
[[nodiscard]] Experiment experiment_of(const Manifest& manifest);

// The grid of the run that `resume` names, as its newest checkpoint of as many ranks has it from
// which `now` can go on; nothing if there is none. Throws nothing for checkpoints that cannot be
// read: others are tried.
[[nodiscard]] std::optional<Experiment::Grid> grid_of_earlier_run(
    const std::filesystem::path& run_folder, const std::filesystem::path& resume, int ranks,
    const Experiment& now);

// checksum_of() a model's description_of(), for Manifest::layers.
[[nodiscard]] std::string checksum_of_layers(const Model& model);

// Throws ConfigError unless `model` has the layers of the run that the checkpoint is of.
void expect_same_layers(const Manifest& manifest, const Model& model);

// How the ranks had split `model`, which is the checkpoint's.
[[nodiscard]] GridChoice grid_of(const Manifest& manifest, const Model& model);

// One rank's part of the model that was evaluated, where that is not what the rank holds: under
// schemes that bring something pending into a copy. Empty: what it holds.
struct EvaluatedPart {
  std::span<const float> parameters = {};
  std::span<const float> statistics = {};
};
[[nodiscard]] std::vector<std::byte> to_bytes(const EvaluatedPart& part);

// Copies what a file of a checkpoint has of an EvaluatedPart; the rest stays. Says whether it has
// parameters. Throws DataError unless the sizes are those that are given.
bool read_evaluated(const std::filesystem::path& checkpoint, const CheckpointFile& file,
                    std::span<float> parameters, std::span<float> statistics);

// The whole model of a checkpoint, parameters and the statistics of batch norm: what was evaluated,
// or, where nothing was, the average over its replicas. For the model that its configuration names.
// Throws DataError.
[[nodiscard]] ModelWeights weights_of_checkpoint(const std::filesystem::path& checkpoint,
                                                 const Manifest& manifest, const Model& model);

}  // namespace rondo::train
