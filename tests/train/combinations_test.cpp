// Values that do not go together, and names that are nearly right.

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/variant.hpp>

#include "config/combinations.hpp"
#include "model/names.hpp"
#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::train::combinations_test {
namespace {

using rondo::test::error_text;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// Values that are possible by themselves and do not go together, and keys that a file or a setting
// gives and that the choices made do not read: the answer names the key and why.

constexpr std::string_view names = "[data]\nname = 'synthetic'\n[model]\nname = 'lenet5'\n";

/// With `settings`, as --set takes them; spaces stand between them.
Experiment parse(const std::string& settings) {
  std::vector<std::string> list;
  std::istringstream words(settings);
  for (std::string word; words >> word;) list.push_back(word);
  return parse_experiment(names, "exp.toml", list);
}

std::string refusal(const std::string& settings) {
  return error_text<ConfigError>([&] { (void)parse(settings); });
}

/// Settings that are refused, and what the answer says.
struct Case {
  std::string settings;
  std::string words;
};

void expect_refusals(const std::string& all, const std::vector<Case>& cases) {
  for (const auto& [settings, words] : cases) {
    EXPECT_THAT(refusal(all + settings), HasSubstr(words)) << settings;
  }
}

TEST(CombinationsTest, NamesTheKeyThatDoesNotFitTheOthers) {
  expect_refusals(
      "",
      {{"data.augment=['crop:4','crop:2']", "data.augment: \"crop\" is there twice"},
       {"optimizer.schedule=exponential",
        "optimizer.final_learning_rate: the schedule \"exponential\" needs one"},
       {"optimizer.schedule=steps", "optimizer.milestones: "},
       {"optimizer.nesterov=true optimizer.momentum=0",
        "optimizer.nesterov: looks ahead by the momentum"},
       {"grid.plan=auto grid.height=2", "grid.plan: \"auto\" chooses all splits"},
       {"update.scheme=sharded optimizer.name=lars", "optimizer.name: \"lars\" needs whole layers"},
       {"update.scheme=k_step update.warmup_epochs=-0.5",
        "update.warmup_epochs: -0.5 is impossible"}});
}

// Lazy needs an optimizer that heeds the scale of gradients, and has no norm to clip. Lazy layers
// are a count, a fraction or "auto".
TEST(CombinationsTest, NamesTheKeyThatDoesNotFitLazy) {
  expect_refusals("update.scheme=lazy ",
                  {{"optimizer.name=lars", "optimizer.name: lars ignores the scale of gradients"},
                   {"optimizer.name=adam", "optimizer.name: adam ignores the scale of gradients"},
                   {"optimizer.name=adamw", "optimizer.name: adamw ignores the scale of gradients"},
                   {"optimizer.clip_norm=1", "optimizer.clip_norm: "},
                   {"optimizer.clip_norm=1", "set it to 0"},
                   {"update.lazy_layers=", "update.lazy_layers: "},
                   {"update.lazy_layers=some", "update.lazy_layers: "},
                   {"update.lazy_layers=-1", "update.lazy_layers: "},
                   {"update.lazy_layers=1.5", "update.lazy_layers: "},
                   {"update.lazy_layers=0.5x", "update.lazy_layers: "},
                   {"update.lazy_layers=nan", "update.lazy_layers: "}});
}
// The descriptions of schemes say which can.
TEST(CombinationsTest, SchemesThatSumNothingRefuseBf16) {
  for (const sync::SchemeDescription& scheme : sync::schemes()) {
    const std::string settings =
        "train.reduce_precision=bf16 update.scheme=" + std::string(scheme.name);
    if (scheme.name != "cyclic") {
      EXPECT_NO_THROW((void)parse(settings)) << scheme.name;
      continue;
    }
    EXPECT_THAT(refusal(settings), HasSubstr("train.reduce_precision: update.scheme = \"cyclic\""));
    EXPECT_THAT(refusal(settings),
                EndsWith("that sums what it sends: \"synchronous\", \"sharded\", \"lazy\", "
                         "\"k_step\", \"hierarchical\""));
  }
}

TEST(CombinationsTest, ReadsLazyLayers) {
  const auto read = [](const char* text) {
    Experiment experiment;
    experiment.update.lazy_layers = text;
    return lazy_layers_of(experiment);
  };

  EXPECT_EQ(read("auto").kind, LazyLayers::Kind::automatic);
  EXPECT_EQ(read("8").kind, LazyLayers::Kind::count);
  EXPECT_EQ(read("8").number, 8.0);
  EXPECT_EQ(read("1").kind, LazyLayers::Kind::count);
  EXPECT_EQ(read("1.0").kind, LazyLayers::Kind::fraction);
  EXPECT_EQ(read("0.25").number, 0.25);
}

// A policy needs its number, and only "diloco" has an outer rate.
TEST(CombinationsTest, NamesTheKeyThatDoesNotFitAverages) {
  for (const std::string scheme : {"k_step", "hierarchical"}) {
    expect_refusals(
        "update.scheme=" + scheme + " ",
        {{"update.outer_rate=0.7", "update.outer_rate: 0.7 is only for reduction_momentum_kind"},
         {"update.period_policy=post_local", "update.local_from_epoch: the policy \"post_local\" "},
         {"update.period_policy=qsr", "update.qsr_alpha: the policy \"qsr\" needs one above 0"}});
  }
}

// An average that overlaps leaves momenta alone, and so do fragments, whose rounds have a constant
// length. An outer optimizer is the only outer step; Adam needs a rate of its own.
TEST(CombinationsTest, NamesTheKeyThatDoesNotFitKStep) {
  expect_refusals(
      "update.scheme=k_step update.",
      {{"overlap_steps=2 update.optimizer_state=average",
        "update.optimizer_state: with update.overlap_steps = 2 an average"},
       {"overlap_steps=2 update.optimizer_state=reset",
        "update.optimizer_state: with update.overlap_steps = 2 an average"},
       {"fragments=4 update.optimizer_state=average",
        "update.optimizer_state: an average of one of update.fragments = 4"},
       {"fragments=4 update.period_policy=adaptive",
        "update.period_policy: with update.fragments = 4 rounds have"},
       {"fragments=4 update.period=3",
        "update.fragments: 4 are more than the 3 steps of update.period"},
       {"outer_optimizer=sgd update.reduction_momentum_kind=slowmo update.reduction_momentum=0.5",
        "update.reduction_momentum_kind: \"slowmo\" is an outer step of its own"},
       {"outer_optimizer=adam update.outer_rate=0.7 update.reduction_momentum=0.5",
        "update.reduction_momentum: update.outer_optimizer = \"adam\" has a"},
       {"outer_optimizer=nesterov",
        "update.reduction_momentum: update.outer_optimizer = \"nesterov\" needs"},
       {"outer_optimizer=adam",
        "update.outer_rate: 1 is too large for update.outer_optimizer = \"adam\""},
       {"reduction_momentum_kind=nesterov",
        "update.reduction_momentum: update.reduction_momentum_"},
       {"reduction_momentum_kind=slowmo", "_kind = \"slowmo\" needs one above 0"}});
}

// Periods are multiples of those below, and groups consist of whole groups.
TEST(CombinationsTest, NamesTheKeyThatDoesNotFitLevels) {
  expect_refusals(
      "update.scheme=hierarchical update.",
      {{"local_period=5", "update.period: 16 is not a multiple of the period below it, 5; "},
       {"levels={6=4}", "update.levels: 6 is not a multiple of the period below it, 4; "},
       {"levels={12=4}", "update.period: 16 is not a multiple of the period below it, 12; "},
       {"levels={4=4}", "update.levels: the period 4 is that of the level below it"},
       {"group=2 update.levels={8=3}", "update.levels: an averaging group of 3 does not consist"}});
}

// With fixed delay nothing is computed between turns, and every turn has a mini-batch.
TEST(CombinationsTest, NamesTheKeyThatDoesNotFitCyclic) {
  expect_refusals(
      "update.scheme=cyclic ",
      {{"update.delay=fixed update.local_step=true", "update.local_step: with delay"},
       {"update.delay=fixed update.when_empty=skip",
        "update.when_empty: with delay = \"fixed\" every turn has a mini-batch"},
       {"update.warmup_epochs=0.5", "update.warmup_epochs: 0.5 would end within an epoch"},
       {"grid.batch_norm=all",
        "grid.batch_norm: \"all\" makes all ranks meet in every mini-batch"}});
}

TEST(CombinationsTest, TheWarmUpDependsOnTheScheme) {
  for (const char* scheme : {"lazy", "k_step", "hierarchical"}) {
    Experiment experiment;
    experiment.update.scheme = scheme;
    EXPECT_EQ(warmup_epochs_of(experiment), 1.0) << scheme;
    experiment.update.warmup_epochs = 0.0;
    EXPECT_EQ(warmup_epochs_of(experiment), 0.0) << scheme;
  }
  Experiment cyclic;
  cyclic.update.scheme = "cyclic";
  EXPECT_EQ(warmup_epochs_of(cyclic), 0.0);
  EXPECT_EQ(warmup_epochs_of(Experiment{}), 0.0);
}

TEST(CombinationsTest, KeysOfOtherSchemesAreNotLookedAt) {
  Experiment experiment;
  experiment.update.lazy_layers = "none";
  experiment.update.local_period = 7;
  EXPECT_NO_THROW(check_combinations(experiment));
}

TEST(KeyWithoutEffectTest, NamesKeyValueChoiceAndThoseThatReadIt) {
  expect_refusals(
      "", {{"update.period_policy=qsr update.scheme=synchronous",
            "--set update.period_policy=qsr: update.period_policy: \"qsr\" has no effect with "},
           {"data.name=cifar10 data.training=100", "choose one that reads it: \"synthetic\""},
           {"data.name=cifar10 data.image_size=64", "\"folder\""},
           {"model.name=lenet5 model.classes=100", "\"custom\""},
           {"optimizer.trust_coefficient=0.1", "with optimizer.name = \"sgd\"; leave the key out"},
           {"optimizer.beta1=0.5", "reads it: \"adam\", \"adamw\""},
           {"optimizer.name=adam optimizer.momentum=0.5", "reads it: \"sgd\", \"lars\""},
           {"optimizer.milestones=[3]", "with optimizer.schedule = \"cosine\"; leave the key out"},
           {"update.scheme=k_step update.qsr_alpha=0.1",
            "with update.period_policy = \"constant\"; "}});
  EXPECT_NO_THROW((void)parse("data.name=synthetic data.path=x"));
}

TEST(KeyWithoutEffectTest, NamesTheLineOfTheFile) {
  EXPECT_THAT(error_text<ConfigError>([] {
                return parse_experiment(std::string(names) + "[update]\nlazy_layers = '2'\n", "e");
              }),
              StartsWith("e:6: update.lazy_layers: \"2\" has no effect with update.scheme"));
}

// As in a file that leaves the name to a setting.
TEST(KeyWithoutEffectTest, WhereNothingIsChosenTheChoiceIsMissed) {
  EXPECT_THAT(error_text<ConfigError>([] {
                return parse_experiment("[data]\ntraining = 5\n[model]\nname = 'lenet5'\n", "e");
              }),
              HasSubstr("missing key 'data.name'"));
}

// One setting of each kind: what a scheme can is said by its description.
TEST(KeyWithoutEffectTest, SchemesReadWhatTheyCan) {
  for (const sync::SchemeDescription& scheme : sync::schemes()) {
    const auto reads = [&](const std::string& setting) {
      try {
        (void)parse("update.scheme=" + std::string(scheme.name) + " " + setting);
        return true;
      } catch (const ConfigError&) {
        return false;
      }
    };
    const bool averages = scheme.exchange == sync::Exchange::parameters;
    EXPECT_EQ(reads("update.period=32"), averages) << scheme.name;
    EXPECT_EQ(reads("update.fragments=2"), averages) << scheme.name;
    EXPECT_EQ(reads("update.max_interval=8"), scheme.windows) << scheme.name;
    EXPECT_EQ(reads("update.local_period=2"), scheme.levels) << scheme.name;
    EXPECT_EQ(reads("update.scaling=mean"), scheme.own_pace) << scheme.name;
    EXPECT_EQ(reads("update.warmup_epochs=2"), scheme.warm_up != sync::WarmUp::pointless);
    EXPECT_TRUE(reads("update.bucket_bytes=4096")) << scheme.name;
  }
}

TEST(KeyWithoutEffectTest, DefaultsMayBeThereWhateverIsChosen) {
  Experiment experiment;
  experiment.data.name = "synthetic";
  experiment.model.name = "lenet5";
  for (const sync::SchemeDescription& scheme : sync::schemes()) {
    experiment.update.scheme = scheme.name;
    EXPECT_NO_THROW(static_cast<void>(parse_experiment(to_toml(experiment), "e"))) << scheme.name;
  }
}

// A run's own record is read as it is, so that a program's checkpoints can be resumed; so is that
// of a run of an older version, and of one that is evaluated on other data.
TEST(KeyWithoutEffectTest, RecordedOnesAreRead) {
  const std::string text = std::string(names) + "[update]\nperiod = 7\n";
  EXPECT_EQ(parse_recorded(text, "e").update.period, 7);
  EXPECT_EQ(parse_recorded(names, "e", {"data.name=cifar10", "data.training=100"}).data.training,
            100);
}

// A name that a program gave to its data is kept as it is; one that is set now may be a slip.
TEST(KeyWithoutEffectTest, ARecordedNameMayBeAnyAndOneThatIsSetMayNot) {
  const std::string text = "[data]\nname = \"stripes\"\n[model]\nname = \"custom\"\n";
  EXPECT_EQ(parse_recorded(text, "e").data.name, "stripes");
  EXPECT_THAT(error_text<ConfigError>(
                  [&] { static_cast<void>(parse_recorded(text, "e", {"data.name=cifar1"})); }),
              HasSubstr("no such choice 'cifar1'"));
}

TEST(KeyWithoutEffectTest, AVariantLeavesOutWhatItsSchemeDoesNotRead) {
  const rondo::test::ScratchFolder folder;
  const auto file = folder.write("e.toml", std::string(names) + "[update]\nscheme = 'k_step'\n" +
                                               "period = 7\nwarmup_epochs = 0.0\n");

  EXPECT_THAT(settings_of_variant(file, {"update.scheme=lazy"}),
              testing::ElementsAre("update.period=16", "update.scheme=lazy"));
  EXPECT_THAT(settings_of_variant(file, {"update.scheme=hierarchical"}),
              testing::ElementsAre("update.scheme=hierarchical"));
}

// Which word a typing error was meant to be.

TEST(NearestTest, CountsEditsAndSwappedNeighboursOnce) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("epochs", "epochs"), 0U);
  EXPECT_EQ(edit_distance("gloabl", "global"), 1U);
  EXPECT_EQ(edit_distance("ab", "ba"), 1U);
}

TEST(NearestTest, FindsTheNearestOfSeveralUnlessItIsFar) {
  const std::vector<std::string> words = {"seed", "speed", "threads"};
  EXPECT_EQ(nearest("sed", words), "seed");
  EXPECT_EQ(nearest("thread", words), "threads");
  EXPECT_EQ(nearest("momentum", words), "");
  EXPECT_EQ(nearest("ab", words), "");
  EXPECT_EQ(nearest(std::string(100'000, 'x'), words), "");
  EXPECT_EQ(nearest("", words), "");
  EXPECT_EQ(suggest("thread", words), "did you mean 'threads'?");
  EXPECT_EQ(suggest("frobnicate", words), "choose one of seed, speed, threads");
}

}  // namespace
}  // namespace rondo::train::combinations_test
