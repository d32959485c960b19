#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>

#include "checkpoint/manifest.hpp"
#include "weights/model_weights.hpp"

namespace rondo::train {

// The checkpoints that `resume` may mean, in the order in which they are to be tried: "auto" and a
// run's folder are its checkpoints, the newest first; anything else is one checkpoint.
[[nodiscard]] std::vector<std::filesystem::path> resume_candidates(
    const std::filesystem::path& run_folder, const std::filesystem::path& resume);

// The manifest of a checkpoint. Throws DataError that names the file when it cannot be used.
[[nodiscard]] Manifest read_manifest(const std::filesystem::path& checkpoint);

// Throws ConfigError that names the key when `now` trains something else than the checkpoint's
// configuration: it may run longer, on another grid or other ranks, or log and store differently.
void expect_same_training(const Manifest& manifest, const Experiment& now);

// The grid of the run that `resume` names, as its newest checkpoint of as many ranks has it;
// nothing if there is none. Throws nothing for checkpoints that cannot be read: others are tried.
[[nodiscard]] std::optional<Experiment::Grid> grid_of_earlier_run(
    const std::filesystem::path& run_folder, const std::filesystem::path& resume, int ranks);

// Is what every rank holds the same as then?
[[nodiscard]] bool has_same_grid(const Manifest& manifest, const Experiment& now, int ranks);

// The whole model of a checkpoint, averaged over its replicas: parameters, and the statistics of
// batch norm. For the model that its configuration names. Throws DataError.
[[nodiscard]] ModelWeights weights_of_checkpoint(const std::filesystem::path& checkpoint,
                                                 const Manifest& manifest, const Model& model);

}  // namespace rondo::train
