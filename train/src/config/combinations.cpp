// What is wrong with a configuration although each key by itself is within its limits: keys that
// need each other, or exclude each other. Every message names the key to change, and why.
//
// What a scheme demands follows from its description (sync::SchemeDescription), not from its name,
// so that a scheme that is added gets the checks that fit it.

#include "config/combinations.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/key.hpp"
#include "data/augmentations.hpp"

namespace rondo::train {
namespace {

void check_optimizer(const Experiment::Optimizer& optimizer) {
  if (optimizer.schedule == sync::Decay::steps && optimizer.milestones.empty()) {
    refuse_key("optimizer.milestones",
               "the schedule \"steps\" has none; give epochs, as in [80, 120]");
  }
  if (optimizer.schedule == sync::Decay::exponential && optimizer.final_learning_rate <= 0.0) {
    refuse_key("optimizer.final_learning_rate",
               "the schedule \"exponential\" needs one above 0, as in 1e-4");
  }
  const bool has_momentum =
      optimizer.name == OptimizerName::sgd || optimizer.name == OptimizerName::lars;
  if (has_momentum && optimizer.nesterov && optimizer.momentum == 0.0) {
    refuse_key("optimizer.nesterov", "looks ahead by the momentum, and optimizer.momentum is 0");
  }
}

// Each draws its random numbers from a stream that its name chooses.
void check_augmentations(const Experiment::Data& data) {
  for (std::size_t i = 0; i < data.augment.size(); ++i) {
    const std::string_view name = augmentation_name(data.augment[i]);
    for (std::size_t other = 0; other < i; ++other) {
      if (augmentation_name(data.augment[other]) == name)
        refuse_key("data.augment", "\"{}\" is there twice; give it once", name);
    }
  }
}

// A window sums gradients over several steps, and its layers end their windows in different steps.
void check_lazy(const Experiment& experiment) {
  static_cast<void>(lazy_layers_of(experiment));
  if (experiment.optimizer.name != OptimizerName::sgd) {
    refuse_key(
        "optimizer.name",
        "{} ignores the scale of gradients, and so would lose what a lazy window has summed up; "
        "use sgd with update.scheme = \"lazy\"",
        chosen(experiment, "optimizer.name"));
  }
  if (experiment.optimizer.clip_norm > 0.0 && !scheme_of(experiment.update).clips) {
    refuse_key(
        "optimizer.clip_norm",
        "update.scheme = \"lazy\" reduces the gradients of its layers in different iterations, "
        "so that there is no norm of all of them; set it to 0");
  }
}

// Other kinds have no rate of their own, so that a number here would silently do nothing.
void check_averaging(const Experiment& experiment) {
  using enum sync::MomentumKind;
  const Experiment::Update& update = experiment.update;
  const sync::MomentumKind kind = update.reduction_momentum_kind;
  const std::string kind_name = chosen(experiment, "update.reduction_momentum_kind");
  const OuterOptimizer outer = update.outer_optimizer;
  const bool has_outer = outer != OuterOptimizer::none;
  if (!has_outer && kind != diloco && update.outer_rate != 1.0) {
    refuse_key("update.outer_rate",
               "{} is only for reduction_momentum_kind = \"diloco\"; \"{}\" has none",
               update.outer_rate, kind_name);
  }
  if (has_outer && kind != classical) {
    refuse_key("update.reduction_momentum_kind",
               "\"{}\" is an outer step of its own, and update.outer_optimizer = \"{}\" another; "
               "give one of them",
               kind_name, chosen(experiment, "update.outer_optimizer"));
  }
  if ((kind == nesterov || kind == slowmo) && update.reduction_momentum == 0.0) {
    refuse_key("update.reduction_momentum",
               "update.reduction_momentum_kind = \"{}\" needs one above 0, as in 0.5", kind_name);
  }
  // Its first step is as long as the rate, for each parameter.
  if (outer == OuterOptimizer::adam && update.outer_rate >= 1.0) {
    refuse_key("update.outer_rate",
               "{} is too large for update.outer_optimizer = \"adam\", which moves every parameter "
               "by about as much; give one as 0.01",
               update.outer_rate);
  }
  if (outer == OuterOptimizer::adam && update.reduction_momentum != 0.0) {
    refuse_key("update.reduction_momentum",
               "update.outer_optimizer = \"adam\" has a momentum of its own; set it to 0");
  }
  if (outer == OuterOptimizer::nesterov && update.reduction_momentum == 0.0) {
    refuse_key("update.reduction_momentum",
               "update.outer_optimizer = \"nesterov\" needs one above 0, as in 0.9");
  }
  if (update.overlap_steps > 0 && update.optimizer_state != sync::LocalState::keep) {
    refuse_key("update.optimizer_state",
               "with update.overlap_steps = {} an average would reach the momenta late; give "
               "\"keep\"",
               update.overlap_steps);
  }
}

// Fragments share the optimizer, and end their rounds in turn.
void check_fragments(const Experiment::Update& update) {
  if (update.fragments == 1) return;
  if (update.optimizer_state != sync::LocalState::keep) {
    refuse_key("update.optimizer_state",
               "an average of one of update.fragments = {} leaves the momenta alone; give \"keep\"",
               update.fragments);
  }
  if (update.period_policy != PeriodChoice::constant) {
    refuse_key("update.period_policy",
               "with update.fragments = {} rounds have a constant length; give \"constant\"",
               update.fragments);
  }
  if (update.fragments > update.period) {
    refuse_key("update.fragments", "{} are more than the {} steps of update.period",
               update.fragments, update.period);
  }
}

// Without its number a policy would be the constant period.
void check_period_policy(const Experiment::Update& update) {
  if (update.period_policy == PeriodChoice::post_local && update.local_from_epoch == 0.0) {
    refuse_key("update.local_from_epoch",
               "the policy \"post_local\" needs one above 0: the epoch from which rounds have {} "
               "steps",
               update.period);
  }
  if (update.period_policy == PeriodChoice::qsr && update.qsr_alpha == 0.0) {
    refuse_key("update.qsr_alpha", "the policy \"qsr\" needs one above 0, as in 0.03");
  }
}

void expect_multiple(std::string_view key, std::int64_t period, std::int64_t faster) {
  if (period % faster == 0) return;
  refuse_key(key,
             "{} is not a multiple of the period below it, {}; averages of a slower level must "
             "fall on those of the faster one",
             period, faster);
}

// From the fastest level to the slowest: each period is a multiple of the one below, and each
// averaging group consists of whole ones. Else an average of a slower level would fall between two
// of a faster one, or cut through an averaging group.
void check_levels(const Experiment::Update& update) {
  std::int64_t faster = update.local_period;
  double inner = static_cast<double>(update.group);
  for (const auto& [period, size] : update.levels) {
    expect_multiple("update.levels", period, faster);
    if (period == faster) {
      refuse_key("update.levels", "the period {} is that of the level below it", period);
    }
    if (inner > 0.0 && std::fmod(size, inner) != 0.0) {
      refuse_key("update.levels",
                 "an averaging group of {} does not consist of whole averaging groups of {}", size,
                 inner);
    }
    faster = period;
    inner = size;
  }
  expect_multiple("update.period", update.period, faster);
}

// Ranks go each at their own pace after the warm-up: nothing may be left that all of them do in the
// same mini-batch.
void check_cyclic(const Experiment& experiment) {
  const double warmup = warmup_epochs_of(experiment);
  if (warmup != std::floor(warmup)) {
    refuse_key("update.warmup_epochs",
               "{} would end within an epoch, where update.scheme = \"cyclic\" "
               "cannot begin; give whole epochs",
               warmup);
  }
  const bool is_fixed = experiment.update.delay == sync::Delay::fixed;
  if (is_fixed && experiment.update.local_step) {
    refuse_key("update.local_step",
               "with delay = \"fixed\" a worker computes nothing between its turns; leave the key "
               "out");
  }
  if (is_fixed && experiment.update.when_empty == sync::WhenEmpty::skip) {
    refuse_key("update.when_empty",
               "with delay = \"fixed\" every turn has a mini-batch, and none can be skipped; give "
               "\"wait\"");
  }
  if (experiment.grid.batch_norm == BatchNormScope::all) {
    refuse_key(
        "grid.batch_norm",
        "\"all\" makes all ranks meet in every mini-batch, and with update.scheme = \"cyclic\" "
        "they go each at a pace of its own; give \"rank\" or \"replica\"");
  }
}

void check_grid(const Experiment::Grid& grid) {
  const std::int64_t parts = grid.channel * grid.filter * grid.height * grid.width;
  const bool has_numbers = grid.sample > 0 || parts > 1 || !grid.layers.empty();
  if (grid.plan == PlanChoice::automatic && has_numbers) {
    refuse_key("grid.plan",
               "\"auto\" chooses all splits; leave the other numbers of [grid] out, or say "
               "\"given\"");
  }
}

void check_reduce_precision(const Experiment& experiment, const sync::SchemeDescription& scheme) {
  if (experiment.train.reduce_precision == tensor::DataType::f32 || scheme.sums_in_bf16) return;
  std::string able;
  for (const sync::SchemeDescription& other : sync::schemes()) {
    if (other.sums_in_bf16) able += fmt::format("{}\"{}\"", able.empty() ? "" : ", ", other.name);
  }
  refuse_key(
      "train.reduce_precision",
      "update.scheme = \"{}\" sends parameters, of which bf16 would lose all but 8 bits; set "
      "\"fp32\", or use a scheme that sums what it sends: {}",
      scheme.name, able);
}

// All of the text, not only its beginning.
template <typename Number>
bool reads_as(std::string_view text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && last == end;
}

}  // namespace

const sync::SchemeDescription& scheme_of(const Experiment::Update& update) {
  try {
    return sync::describe_scheme(update.scheme);
  } catch (const std::invalid_argument& error) {
    refuse_key("update.scheme", "{}", error.what());
  }
}

// Replicas that communicate less often than in every step lose most at the start, where gradients
// change most. Under cyclic they do not wait for each other from the start, as the paper has it.
double warmup_epochs_of(const Experiment& experiment) {
  const Experiment::Update& update = experiment.update;
  if (update.warmup_epochs >= 0.0) return update.warmup_epochs;
  return scheme_of(update).warm_up == sync::WarmUp::advised ? 1.0 : 0.0;
}

// An integer is a count, a number from 0 to 1 with a point a share: "1" is one layer, "1.0" all of
// them.
LazyLayers lazy_layers_of(const Experiment& experiment) {
  const std::string& text = experiment.update.lazy_layers;
  if (text == "auto") return {};
  if (std::int64_t count = 0; reads_as(text, count) && count >= 0) {
    return {LazyLayers::Kind::count, static_cast<double>(count)};
  }
  if (double share = 0.0; reads_as(text, share) && share >= 0.0 && share <= 1.0) {
    return {LazyLayers::Kind::fraction, share};
  }
  refuse_key("update.lazy_layers",
             "\"{}\" is neither \"auto\" nor a count such as \"8\" nor a fraction such as \"0.5\"",
             text);
}

namespace {

// Longer values, such as lists of layers, are not repeated in a message.
constexpr std::size_t longest_quoted = 80;

// With a value that it does not have by itself, a key looks as if it did something. Where nothing
// is chosen, as in a file that leaves data.name to a setting, another check says so.
const Condition* unmet_condition(const Key& key, const Experiment& experiment) {
  if (key.get(experiment) == key.get(Experiment{})) return nullptr;
  for (const Condition& condition : key.conditions) {
    const auto choice = std::get<std::string>(find_key(condition.chooser)->get(experiment));
    if (!choice.empty() && !condition.reads(choice)) return &condition;
  }
  return nullptr;
}

}  // namespace

bool has_effect(const Key& key, const Experiment& experiment) {
  return unmet_condition(key, experiment) == nullptr;
}

std::string complaint_about_effect(const Key& key, const Experiment& experiment) {
  const Condition* const condition = unmet_condition(key, experiment);
  if (condition == nullptr) return {};
  const Key& chooser = *find_key(condition->chooser);
  std::vector<std::string> readers;
  for (const std::string& name : chooser.limits.names) {
    if (condition->reads(name)) readers.push_back(to_toml_value(name));
  }
  const std::string value = to_toml_value(key.get(experiment));
  return fmt::format(
      "{} has no effect with {} = {}; leave the key out, or choose one that reads it: {}",
      value.size() <= longest_quoted ? value : "its value", condition->chooser,
      to_toml_value(chooser.get(experiment)), fmt::join(readers, ", "));
}

// Called after all keys are set, by a file or by --set, in whichever order.
void check_combinations(const Experiment& experiment) {
  const Experiment::Update& update = experiment.update;
  check_augmentations(experiment.data);
  check_optimizer(experiment.optimizer);
  if (!update.plugin_settings.empty() && update.plugin.empty()) {
    refuse_key("update.plugin_settings",
               "are for update.plugin, which names no library; give both");
  }
  check_grid(experiment.grid);
  if (!experiment.model.skip.empty() && experiment.model.weights.empty()) {
    refuse_key("model.skip",
               "leaves out what model.weights would set, which names no file; give both");
  }
  if (update.warmup_epochs < 0.0 && update.warmup_epochs != -1.0) {
    refuse_key("update.warmup_epochs",
               "{} is impossible; give 0 or more, or -1 for the scheme's own",
               update.warmup_epochs);
  }
  const sync::SchemeDescription& scheme = scheme_of(update);
  if (scheme.windows) check_lazy(experiment);
  if (scheme.divides_optimizer && experiment.optimizer.name == OptimizerName::lars) {
    refuse_key(
        "optimizer.name",
        "\"lars\" needs whole layers, and under update.scheme = \"{}\" a rank updates parts of "
        "them; use sgd, adam or adamw, or \"synchronous\"",
        update.scheme);
  }
  if (scheme.exchange == sync::Exchange::parameters) {
    check_averaging(experiment);
    check_period_policy(update);
    check_fragments(update);
  }
  if (scheme.levels) check_levels(update);
  if (scheme.own_pace) check_cyclic(experiment);
  check_reduce_precision(experiment, scheme);
}

}  // namespace rondo::train
