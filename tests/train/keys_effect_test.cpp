// Every key of [train], [optimizer] and [update] that changes what is computed does so: with
// another value, as a file gives it, a tiny network ends with other parameters.

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/sync/cyclic.hpp>
#include <rondo/tensor/data_type.hpp>
#include <rondo/tensor/engine.hpp>

#include "config/key.hpp"
#include "schemes/cyclic.hpp"
#include "support/cyclic_forecast.hpp"
#include "support/scratch_folder.hpp"
#include "train/experiments.hpp"
#include "train/outcome.hpp"
#include "train/support/network.hpp"
#include "train/tiny_network.hpp"

namespace rondo::train::keys_effect_test {
namespace {

using test::tiny_experiment;
using test::train_on;

/// Runs that differ in a key alone, and end each with parameters of its own.
struct Effect {
  std::string key;
  std::vector<std::string> values;  ///< a value, and further settings that it needs
  std::string given = {};           ///< settings of all these runs
};

std::vector<Effect> with_each(const std::string& chooser, const std::vector<std::string>& choices,
                              const Effect& effect) {
  std::vector<Effect> effects;
  for (const std::string& choice : choices) {
    effects.push_back(effect);
    effects.back().given = chooser + "=" + choice + " " + effect.given;
  }
  return effects;
}

std::vector<Effect> joined(std::vector<std::vector<Effect>> lists) {
  std::vector<Effect> all;
  for (const std::vector<Effect>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

const std::string k_step = "update.scheme=k_step update.warmup_epochs=0 update.period=2 ";
const std::string hierarchical =
    "update.scheme=hierarchical update.warmup_epochs=0 update.period=4 "
    "update.local_period=2 update.group=2 ";
// Windows may grow in all of the steps, and at no rate that falls.
const std::string lazy =
    "update.scheme=lazy update.warmup_epochs=0 update.lazy_layers=2 optimizer.schedule=constant "
    "train.epochs=3 ";

std::vector<Effect> effects_of_train() {
  std::vector<Effect> effects = {
      {"train.global_batch", {"6", "4"}},
      {"train.epochs", {"1", "2"}},
      {"train.max_steps", {"0", "3", "5"}},
      {"train.seed", {"1", "2"}},
      {"train.label_smoothing", {"0", "0.1"}},
      {"train.accumulate", {"1", "2"}},  // batch norm takes the moments of a micro-batch
  };
  if (tensor::computes_bf16()) effects.push_back({"train.precision", {"fp32", "bf16"}});
  return effects;
}

// One rank sends nothing, and rounds nothing.
std::vector<Effect> effects_of_what_is_sent() {
  const Effect effect{"train.reduce_precision", {"fp32", "bf16"}};
  std::vector<Effect> effects{effect};
  for (const std::string& scheme :
       {std::string("update.scheme=sharded"), lazy, k_step, hierarchical}) {
    effects.push_back({effect.key, effect.values, scheme});
  }
  return effects;
}

std::vector<Effect> effects_of_optimizer() {
  const std::string decay = "optimizer.weight_decay=0.1";
  const std::string steps = "optimizer.schedule=steps train.epochs=3 ";
  return joined({
      {{"optimizer.name", {"sgd", "lars", "adam", "adamw"}},
       {"optimizer.learning_rate", {"0.05", "0.1"}},
       {"optimizer.trust_coefficient", {"0.001", "0.01"}, "optimizer.name=lars"},
       {"optimizer.clip_norm", {"0", "0.1"}, k_step},
       {"optimizer.schedule",
        {"constant", "cosine", "steps optimizer.milestones=[1]",
         "exponential optimizer.final_learning_rate=0.001"}},
       {"optimizer.warmup_epochs", {"0", "1"}},
       {"optimizer.milestones", {"[1]", "[2]", "[1,2]"}, steps},
       {"optimizer.factor", {"0.1", "0.5"}, steps + "optimizer.milestones=[1]"}},
      with_each("optimizer.name", {"sgd", "lars"}, {"optimizer.momentum", {"0.9", "0.5"}}),
      with_each("optimizer.name", {"sgd", "lars"}, {"optimizer.nesterov", {"false", "true"}}),
      with_each("optimizer.name", {"sgd", "lars", "adam", "adamw"},
                {"optimizer.weight_decay", {"0", "0.1"}}),
      with_each("optimizer.name", {"sgd", "lars", "adam", "adamw"},
                {"optimizer.decay_norm_and_bias", {"true", "false"}, decay}),
      with_each("optimizer.name", {"adam", "adamw"}, {"optimizer.beta1", {"0.9", "0.5"}}),
      with_each("optimizer.name", {"adam", "adamw"}, {"optimizer.beta2", {"0.999", "0.9"}}),
      with_each("optimizer.name", {"adam", "adamw"}, {"optimizer.epsilon", {"1e-8", "1e-3"}}),
      with_each("update.scheme", {"synchronous", "sharded"}, {"optimizer.clip_norm", {"0", "0.1"}}),
      with_each("optimizer.schedule", {"cosine", "exponential"},
                {"optimizer.final_learning_rate", {"0.001", "0.01"}}),
  });
}

std::vector<Effect> effects_of_update() {
  return {
      {"update.scheme",
       {"synchronous", "lazy update.lazy_layers=2", "k_step update.period=4",
        "hierarchical update.period=4 update.local_period=2 update.group=2",
        "cyclic update.delay=fixed"},
       "train.epochs=3"},
      {"update.warmup_epochs", {"0", "1"}, "update.scheme=k_step update.period=2"},
      {"update.warmup_epochs", {"0", "1"}, "update.scheme=lazy update.lazy_layers=2"},
      {"update.warmup_epochs", {"0", "1"}, "update.scheme=cyclic update.delay=fixed"},
  };
}

std::vector<Effect> effects_of_lazy() {
  return {
      {"update.lazy_layers", {"0", "1", "2"}, lazy},
      {"update.max_interval", {"1", "2", "16"}, lazy},
      {"update.max_interval_rate", {"0", "0.1"}, lazy},  // two iterations
      {"update.updates_per_iteration", {"false", "true"}, lazy},
      {"update.controller", {"probe", "every_layer"}, lazy},
  };
}

std::vector<Effect> effects_of_averaging() {
  const std::string constant = k_step + "optimizer.schedule=constant ";
  const std::string momentum = k_step + "update.reduction_momentum=0.5 ";
  return {
      {"update.period", {"2", "4"}, k_step},
      {"update.period", {"2", "4"}, hierarchical + "update.local_period=1 "},
      {"update.period_policy",
       {"constant", "post_local update.local_from_epoch=1", "qsr update.qsr_alpha=0.15",
        "adaptive"},
       constant + "update.period=4 train.epochs=4"},
      {"update.local_from_epoch", {"0.5", "1"}, constant + "update.period_policy=post_local"},
      {"update.qsr_alpha", {"0.1", "0.15"}, constant + "update.period_policy=qsr"},
      {"update.overlap_steps", {"0", "1"}, k_step},
      {"update.fragments", {"1", "2", "3"}, k_step + "update.period=4"},
      {"update.reduction_momentum", {"0", "0.5"}, k_step},
      {"update.reduction_momentum", {"0", "0.5"}, k_step + "update.outer_optimizer=sgd"},
      {"update.reduction_momentum_kind",
       {"classical", "nesterov", "slowmo", "diloco update.outer_rate=0.5"},
       momentum},
      {"update.outer_optimizer",
       {"none", "sgd update.outer_rate=0.5", "nesterov update.outer_rate=0.5",
        "adam update.outer_rate=0.01 update.reduction_momentum=0"},
       momentum},
      {"update.outer_rate", {"1", "0.5"}, momentum + "update.reduction_momentum_kind=diloco"},
      {"update.outer_rate", {"1", "0.5"}, momentum + "update.outer_optimizer=sgd"},
      {"update.optimizer_state", {"keep", "average", "reset"}, k_step},
      {"update.local_period", {"1", "2"}, hierarchical},
      {"update.group", {"1", "2"}, hierarchical},
      {"update.levels", {"{}", "{2=2}"}, hierarchical + "update.local_period=1 update.group=1"},
  };
}

/// The turns are those of `trace`, however fast the ranks are.
std::vector<Effect> effects_of_cyclic(const std::string& trace) {
  const std::string replayed = "update.scheme=cyclic update.replay=" + trace + " ";
  return {
      {"optimizer.clip_norm", {"0", "0.1"}, replayed},
      {"update.scaling", {"per_sample", "mean", "sum"}, replayed},
      {"update.local_step", {"false", "true"}, replayed},
  };
}

std::string settings_of(const Effect& effect, const std::string& value) {
  return effect.given + " " + effect.key + "=" + value;
}

std::vector<float> parameters_after(const std::string& settings, int ranks) {
  return train_on(ranks, tiny_experiment(settings)).parameters.at(0);
}

void expect_effects(const std::vector<Effect>& effects, int ranks) {
  for (const Effect& effect : effects) {
    std::vector<std::vector<float>> ends;
    for (const std::string& value : effect.values) {
      const std::string settings = settings_of(effect, value);
      const std::vector<float> end = parameters_after(settings, ranks);
      EXPECT_TRUE(std::ranges::find(ends, end) == ends.end()) << settings;
      ends.push_back(end);
    }
  }
}

// Differences below come from the key, and not from chance.
TEST(KeysEffectTest, EqualRunsEndWithEqualParameters) {
  for (const std::string& settings : {std::string(), lazy, k_step}) {
    EXPECT_EQ(parameters_after(settings, 2), parameters_after(settings, 2)) << settings;
  }
}

TEST(KeysEffectTest, KeysOfTrain) { expect_effects(effects_of_train(), 1); }

TEST(KeysEffectTest, PrecisionOfWhatIsSent) { expect_effects(effects_of_what_is_sent(), 2); }

TEST(KeysEffectTest, KeysOfTheOptimizer) { expect_effects(effects_of_optimizer(), 1); }

TEST(KeysEffectTest, KeysOfAllUpdates) { expect_effects(effects_of_update(), 2); }

TEST(KeysEffectTest, KeysOfLazyUpdates) { expect_effects(effects_of_lazy(), 1); }

TEST(KeysEffectTest, KeysOfAverages) { expect_effects(effects_of_averaging(), 2); }

/// Two epochs in which worker 1 needs more than twice as long for a mini-batch as worker 0.
std::vector<sync::Push> turns_of_a_slow_worker() {
  const sync::test::CyclicForecast forecast = sync::test::forecast(
      {.workers = 2,
       .duration = [](int worker, std::int64_t) { return worker == 0 ? 1.0 : 2.3; },
       .pass_duration = 0.1,
       .minibatch_samples = 3,
       .epoch_samples = 24,
       .total_samples = 48},
      1000.0);
  std::vector<sync::Push> pushes;
  for (const sync::Turn& turn : forecast.turns) pushes.push_back({.turn = turn});
  return pushes;
}

TEST(KeysEffectTest, KeysOfCyclicUpdates) {
  const rondo::test::ScratchFolder folder;
  const std::filesystem::path trace = folder.path() / "token_trace.jsonl";
  append_token_trace(trace, turns_of_a_slow_worker());
  const std::string replayed = "update.scheme=cyclic update.replay=" + trace.string();
  ASSERT_EQ(parameters_after(replayed, 2), parameters_after(replayed, 2));

  expect_effects(effects_of_cyclic(trace.string()), 2);
}

// It computes what synchronous updates do: only what it sends tells that it is there. Gradients are
// halved by bf16, and parameters are not.
TEST(KeysEffectTest, ShardedUpdatesSendParameters) {
  const auto sent = [](const std::string& settings) {
    return train_on(2, tiny_experiment(settings)).summaries.at(0).bytes_sent;
  };
  const std::string bf16 = " train.reduce_precision=bf16";
  EXPECT_EQ(sent("update.scheme=sharded"), sent("update.scheme=synchronous"));
  EXPECT_GT(sent("update.scheme=sharded" + bf16), sent("update.scheme=synchronous" + bf16));
}

// The tiny network has no layer that is computed otherwise. Bits differ, and only by rounding.
TEST(KeysEffectTest, FastConvolutionsRoundOtherwise) {
  if (tensor::instruction_set() == "baseline") GTEST_SKIP() << "this CPU has no fused additions";
  const auto parameters_by = [](tensor::ConvolutionAlgorithm algorithm) {
    Experiment experiment = test::small_experiment("resnet20", 8);
    experiment.train.max_steps = 2;
    experiment.train.convolution = algorithm;
    return train_on(1, experiment).parameters.at(0);
  };
  const std::vector<float> direct = parameters_by(tensor::ConvolutionAlgorithm::direct);
  const std::vector<float> fast = parameters_by(tensor::ConvolutionAlgorithm::fast);
  EXPECT_NE(fast, direct);
  EXPECT_LT(test::relative_distance(fast, direct), 1e-3);
}

// Keys of these sections whose effect other tests show, or that change no parameter.
const std::vector<std::string> others = {
    "train.convolution",       // above
    "train.threads",           // how fast
    "train.log_every",         // trainer_metrics
    "train.memory_limit",      // memory_limit
    "update.bucket_bytes",     // how fast
    "update.delay",            // trainer_cyclic
    "update.minibatch_cap",    // trainer_cyclic
    "update.when_empty",       // trainer_cyclic
    "update.replay",           // trainer_cyclic
    "update.plugin",           // scheme_plugin
    "update.plugin_settings",  // scheme_plugin
};

bool is_in_a_table(const std::vector<Effect>& effects, const std::string& key,
                   const std::string& value) {
  return std::ranges::any_of(effects, [&](const Effect& effect) {
    return effect.key == key && std::ranges::any_of(effect.values, [&](const std::string& text) {
             return value.empty() || text.substr(0, text.find(' ')) == value;
           });
  });
}

// A key or a choice that is new needs a line above.
TEST(KeysEffectTest, EveryKeyAndEveryChoiceIsShown) {
  const std::vector<Effect> effects = joined(
      {effects_of_train(), effects_of_what_is_sent(), effects_of_optimizer(), effects_of_update(),
       effects_of_lazy(), effects_of_averaging(), effects_of_cyclic("trace")});
  for (const Key& key : all_keys()) {
    const std::string name = key.full_name();
    if (key.section != "train" && key.section != "optimizer" && key.section != "update") continue;
    if (std::ranges::find(others, name) != others.end()) continue;
    if (name == "train.precision" && !tensor::computes_bf16()) continue;
    EXPECT_TRUE(is_in_a_table(effects, name, "")) << name;
    for (const std::string& choice : key.limits.names) {
      if (choice == "sharded") continue;  // has a case of its own
      EXPECT_TRUE(is_in_a_table(effects, name, choice)) << name << " = " << choice;
    }
  }
}

}  // namespace
}  // namespace rondo::train::keys_effect_test
