#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <rondo/train/experiment.hpp>

#include "command.hpp"

namespace rondo::tools {

/// A user's description of a model that has been trained.
struct TrainedRequest {
  std::filesystem::path source = {};       ///< a run directory, or a configuration
  std::filesystem::path weights = {};      ///< empty: those of the run, or model.weights
  std::string checkpoint = {};             ///< of the run, as train::find_checkpoint() takes it
  std::vector<std::string> settings = {};  ///< "section.key=value", after the file
};

/// A model that has been trained: what it is, and the file or checkpoint with what it has learned.
struct Trained {
  train::Experiment experiment = {};
  std::filesystem::path weights = {};
};

/// Adds the positional `run`, --weights, --checkpoint and --set.
void add_trained_options(Command& command, TrainedRequest& request);

/// Finds configuration and weights. Throws UsageError that says what is missing, or what
/// train::read_experiment() throws.
[[nodiscard]] Trained find_trained(const TrainedRequest& request);

/// Says on stderr what is left out of the names in the file of weights, if anything is.
void tell_of_weights(const Trained& trained);

}  // namespace rondo::tools
