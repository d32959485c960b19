// Which model a command is about: `rondo export`, `eval` and `predict` take a run directory, with
// the model that it ended with or one of its checkpoints, or a configuration together with a file
// of weights. Here alone stands what a run directory calls them.

#include "train/trained.hpp"
#include "files.hpp"

#include <fmt/format.h>

#include <system_error>

#include <rondo/train/weights.hpp>

#include "failure.hpp"
#include "say.hpp"
#include "table.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

// False when the path cannot be examined, too; opening it later reports the reason.
bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The config.toml of a run has every key, so that the defaults of this version do not matter.
fs::path config_of(const fs::path& source) {
  if (source.extension() == ".safetensors" && !is_folder(source)) {
    throw UsageError(
        fmt::format("{} is a file of weights; name a run or a configuration of its model, and the "
                    "file with --weights",
                    source.string()));
  }
  if (!is_folder(source)) return source;
  if (is_there(source / "config.toml")) return source / "config.toml";
  throw UsageError(fmt::format(
      "{} holds no config.toml; give the directory of a run of rondo train", source.string()));
}

// The library knows how checkpoints are named, and which of them are whole.
fs::path checkpoint_of(const TrainedRequest& request) {
  if (!request.weights.empty()) {
    throw UsageError("--weights and --checkpoint name two models; give one of them");
  }
  return train::find_checkpoint(request.source, request.checkpoint);
}

fs::path weights_of(const TrainedRequest& request, const train::Experiment& experiment) {
  // In this order: what the command line says, what the run has left, what the configuration begins
  // with.
  if (!request.checkpoint.empty()) return checkpoint_of(request);
  if (!request.weights.empty()) return request.weights;
  if (!is_folder(request.source)) {
    if (!experiment.model.weights.empty()) return experiment.model.weights;
    throw UsageError(fmt::format("{} names no file of weights; give one with --weights",
                                 request.source.string()));
  }
  if (is_there(request.source / "model.safetensors")) return request.source / "model.safetensors";
  throw UsageError(fmt::format(
      "{} holds no model.safetensors, which a run writes when it ends; give --checkpoint newest if "
      "it has checkpoints, or a file with --weights",
      request.source.string()));
}

}  // namespace

// The same options for all commands that take a trained model.
void add_trained_options(Command& command, TrainedRequest& request) {
  command.option("run RUN|CONFIG.toml", request.source, "A run directory, or a configuration")
      .required();
  command.option("--weights FILE", request.weights,
                 "A safetensors file (default: model.safetensors of the run, or model.weights)");
  command.option("--checkpoint WHICH", request.checkpoint,
                 "A checkpoint of the run instead: newest, best, the number of a step, or a path");
  command
      .option("--set SECTION.KEY=VALUE", request.settings,
              "Overrides a key of the configuration; may be repeated")
      .repeatable();
}

// Only names are looked for here. Whether the file fits the model is found when it is read.
Trained find_trained(const TrainedRequest& request) {
  const std::filesystem::path config = config_of(request.source);
  Trained trained;
  trained.experiment = config == request.source ? train::read_experiment(config, request.settings)
                                                : train::read_recorded(config, request.settings);
  // A configuration that is read is checked for this; what a run has recorded is always there.
  if (trained.experiment.model.name.empty()) {
    throw UsageError(
        fmt::format("{}: missing key 'model.name'; give the directory of a run of rondo train",
                    config.string()));
  }
  trained.weights = weights_of(request, trained.experiment);
  return trained;
}

void tell_of_weights(const Trained& trained) {
  const std::string note = train::note_of_weights(trained.weights);
  if (!note.empty()) say("rondo: {}\n", printable(note));
}

}  // namespace rondo::tools
