// `rondo init` and `rondo config`: configurations to begin with, and what a configuration comes to.
//
// `init` writes the keys that people usually change, section by section, with a comment each.
// Values come from an Experiment, whose other members are the program's defaults; so the text
// cannot say a default that the program does not have. Keys that are left as they are stand there
// as comments.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>

#include "command.hpp"
#include "compare/runs.hpp"
#include "failure.hpp"
#include "options.hpp"

namespace rondo::tools {
namespace {

// A key of the text that `init` writes.
struct UsualKey {
  enum class Form { set, comment };  // a comment: with its default, for those who want another
  std::string_view section;
  std::string_view name;
  Form form;
  std::string_view text;  // what it means
};

constexpr auto set = UsualKey::Form::set;
constexpr auto comment = UsualKey::Form::comment;

constexpr auto usual_keys = std::to_array<UsualKey>({
    {"data", "name", set, "made-up images, which need no file; or fashion-mnist, cifar10, ..."},
    {"data", "path", comment, "the folder of the files"},
    {"data", "training", set, "synthetic: training images; other data take no such key"},
    {"data", "test", set, "synthetic: test images; likewise"},
    {"data", "augment", comment, R"(how training images are varied, as in ["crop:4", "flip"])"},
    {"model", "name", set, "rondo init NAME knows the names; or custom, with [[model.layers]]"},
    {"model", "weights", comment, "a safetensors file to begin with, such as another run's"},
    {"model", "skip", comment, "parameters that it must not set, as in [\"fc.*\"]"},
    {"train", "global_batch", set, "samples of a step, over all ranks"},
    {"train", "epochs", set, "passes over the training images"},
    {"train", "max_steps", comment, "ends the run earlier; 0: after the epochs"},
    {"train", "seed", set, "of initial parameters, order, augmentations"},
    {"train", "threads", comment, "of a rank; 0: its share of the cores"},
    {"train", "log_every", set, "steps between two lines of metrics.jsonl"},
    {"train", "label_smoothing", comment, "the part of a target that is spread over all classes"},
    {"train", "accumulate", comment, "micro-batches, one after another, that save memory"},
    {"train", "memory_limit", comment, "bytes that a rank's arrays may take; 0: no limit"},
    {"train", "precision", comment, "bf16 halves activations, on CPUs that compute it"},
    {"train", "reduce_precision", comment, "bf16 halves gradients on their way, on any CPU"},
    {"checkpoint", "every_epochs", comment, "epochs between checkpoints; 0: none for their number"},
    {"checkpoint", "keep", comment, "so many of the newest ones are kept"},
    {"optimizer", "name", set, "sgd, lars, adam or adamw"},
    {"optimizer", "learning_rate", set, "after the warm-up"},
    {"optimizer", "momentum", set, "of sgd and lars"},
    {"optimizer", "weight_decay", set, "pulls parameters towards 0"},
    {"optimizer", "schedule", set,
     "cosine, exponential, constant, or steps with milestones = [80, 120]"},
    {"optimizer", "warmup_epochs", set, "in which the learning rate rises from 0"},
    {"optimizer", "clip_norm", comment, "longer gradients are scaled down to it; 0: none are"},
    {"update", "scheme", set, "synchronous, sharded, lazy, k_step, hierarchical or cyclic"},
    {"update", "period", comment, "k_step, hierarchical: steps between averages of all ranks"},
    {"update", "max_interval", comment, "lazy: iterations of the longest window"},
    {"grid", "plan", comment, "auto: the planner splits layers over ranks"},
    {"grid", "channel", comment, "parts of the channels; likewise filter, height and width"},
    {"grid", "batch_norm", comment, "who shares statistics: rank, replica or all"},
    {"transport", "fabric", comment, "between nodes: auto, tcp, ucx, ofi or shm"},
    {"transport", "interface", comment, "network interfaces by preference, as in \"ib0,eth*\""},
    {"transport", "deadline_seconds", comment, "a wait that lasts longer is an error"},
    {"inject", "slow_ranks", comment,
     "{ 1 = 4.0 } makes rank 1 four times as slow, for experiments"},
});

// A predicate on the kind of layer, and not on the model's name, so that new models need no line
// here.
bool has_batch_norm(const train::Model& model) {
  return std::ranges::any_of(model.layers, [](const train::LayerSpec& layer) {
    return layer.kind.get_if<train::BatchNormLayer>() != nullptr;
  });
}

// Small enough that the run begins to show results within minutes, whatever the model. Networks
// without batch norm bear only small learning rates.
train::Experiment usual_experiment(const std::string& name) {
  // The model tells how large its images are.
  const train::Model model = train::make_model(name);
  const bool large = model.input.h * model.input.w > 64 * 64;
  train::Experiment experiment;
  experiment.data.name = "synthetic";
  experiment.data.training = large ? 512 : 10'000;
  experiment.data.test = large ? 128 : 1'000;
  experiment.model.name = name;
  experiment.train.global_batch = large ? 16 : 128;
  experiment.train.epochs = 10;
  experiment.optimizer.learning_rate = has_batch_norm(model) ? 0.1 : 0.01;
  experiment.optimizer.warmup_epochs = 1.0;
  return experiment;
}

// Lines of to_toml() with comments behind them: their values are those of the Experiment, whatever
// the list above says.
std::string commented_text(const train::Experiment& experiment) {
  const auto keys = keys_of(to_toml(experiment));
  const std::map<std::string, std::string> values(keys.begin(), keys.end());
  std::string text = fmt::format(
      "# {0} on made-up images. Keys behind a # have the defaults that are shown; all keys are\n"
      "# listed by rondo config, and explained in docs/configuration.md.\n"
      "#\n"
      "#   rondo train -n 2 run.toml\n",
      experiment.model.name);
  std::string_view section;
  for (const UsualKey& key : usual_keys) {
    if (key.section != section) text += fmt::format("\n[{}]\n", key.section);
    section = key.section;
    // A key that the program no longer has ends it here: at() throws.
    const std::string line =
        fmt::format("{} = {}", key.name, values.at(fmt::format("{}.{}", key.section, key.name)));
    text += fmt::format("{}{:<{}}  # {}\n", key.form == set ? "" : "# ", line,
                        key.form == set ? 30 : 28, key.text);
  }
  return text;
}

// An unknown name is answered with all names there are.
int run_init(const std::string& model) {
  try {
    fmt::print("{}", commented_text(usual_experiment(model)));
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  return exit_done;
}

struct ConfigRequest {
  std::filesystem::path config = {};
  std::vector<std::string> settings = {};
};

}  // namespace

void add_init(Command& root) {
  Command command = root.add("init", "Print a commented configuration to begin with");
  auto model = std::make_shared<std::string>();
  command.option("model MODEL", *model, "lenet5, resnet20, resnet18, ...").required();
  command.footer("rondo init MODEL > run.toml writes a file that rondo train takes as it is.");
  command.does([model](const CommandLine& /*line*/) { return run_init(*model); });
}

void add_config(Command& root) {
  Command command = root.add("config", "Print a configuration with every key and its value");
  auto request = std::make_shared<ConfigRequest>();
  add_experiment_options(command, request->config, request->settings, "", "");
  command.does([request](const CommandLine& /*line*/) {
    fmt::print("{}", to_toml(train::read_experiment(request->config, request->settings)));
    return exit_done;
  });
}

}  // namespace rondo::tools
