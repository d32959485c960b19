// Values that do not go together, and names that are nearly right.

#include <functional>
#include <string>
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
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// Values that are possible by themselves and do not go together: the answer names the key and why.

/// An experiment of that scheme, which `change` makes impossible; the answer to it.
std::string refusal(const std::string& scheme, const std::function<void(Experiment&)>& change) {
  Experiment experiment;
  experiment.update.scheme = scheme;
  check_combinations(experiment);
  change(experiment);
  return error_text<ConfigError>([&] { check_combinations(experiment); });
}

TEST(CombinationsTest, LazyNeedsAnOptimizerThatHeedsScale) {
  for (const char* name : {"lars", "adam", "adamw"}) {
    EXPECT_THAT(refusal("lazy", [&](Experiment& e) { e.optimizer.name = name; }),
                AllOf(StartsWith("optimizer.name: "), HasSubstr("ignores the scale of gradients")));
  }
}

TEST(CombinationsTest, AnAugmentationIsThereOnce) {
  EXPECT_THAT(refusal("synchronous", [](Experiment& e) { e.data.augment = {"crop:4", "crop:2"}; }),
              AllOf(StartsWith("data.augment: "), HasSubstr("\"crop\" is there twice")));
}

TEST(CombinationsTest, LazyHasNoNormToClip) {
  EXPECT_THAT(refusal("lazy", [](Experiment& e) { e.optimizer.clip_norm = 1.0; }),
              AllOf(StartsWith("optimizer.clip_norm: "), HasSubstr("set it to 0")));
}

// Which schemes can follows from their descriptions.
TEST(CombinationsTest, SchemesThatSumNothingRefuseBf16) {
  for (const sync::SchemeDescription& scheme : sync::schemes()) {
    const std::string name(scheme.name);
    const auto narrow = [](Experiment& e) { e.train.reduce_precision = "bf16"; };
    if (name != "cyclic") {
      Experiment experiment;
      experiment.update.scheme = name;
      narrow(experiment);
      EXPECT_NO_THROW(check_combinations(experiment)) << name;
    } else {
      EXPECT_THAT(refusal(name, narrow),
                  AllOf(StartsWith("train.reduce_precision: update.scheme = \"" + name + "\""),
                        EndsWith("that sums what it sends: \"synchronous\", \"sharded\", \"lazy\", "
                                 "\"k_step\", \"hierarchical\"")));
    }
  }
}

TEST(CombinationsTest, ADividedOptimizerDoesNotNeedWholeLayers) {
  EXPECT_THAT(refusal("sharded", [](Experiment& e) { e.optimizer.name = "lars"; }),
              StartsWith("optimizer.name: \"lars\" needs whole layers"));
}

TEST(CombinationsTest, LazyLayersAreACountAFractionOrAuto) {
  for (const char* text : {"", "some", "-1", "1.5", "0.5x", "nan"}) {
    EXPECT_THAT(refusal("lazy", [&](Experiment& e) { e.update.lazy_layers = text; }),
                StartsWith("update.lazy_layers: "))
        << text;
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

TEST(CombinationsTest, AnExponentialScheduleNeedsAFinalRate) {
  EXPECT_THAT(refusal("synchronous", [](Experiment& e) { e.optimizer.schedule = "exponential"; }),
              StartsWith("optimizer.final_learning_rate: the schedule \"exponential\" needs one"));
}

TEST(CombinationsTest, PeriodsAreMultiplesOfThoseBelow) {
  EXPECT_THAT(refusal("hierarchical", [](Experiment& e) { e.update.local_period = 5; }),
              StartsWith("update.period: 16 is not a multiple of the period below it, 5; "));
  EXPECT_THAT(refusal("hierarchical", [](Experiment& e) { e.update.levels = {{6, 4.0}}; }),
              StartsWith("update.levels: 6 is not a multiple of the period below it, 4; "));
  EXPECT_THAT(refusal("hierarchical", [](Experiment& e) { e.update.levels = {{12, 4.0}}; }),
              StartsWith("update.period: 16 is not a multiple of the period below it, 12; "));
  EXPECT_THAT(refusal("hierarchical", [](Experiment& e) { e.update.levels = {{4, 4.0}}; }),
              StartsWith("update.levels: the period 4 is that of the level below it"));
}

TEST(CombinationsTest, GroupsConsistOfWholeGroups) {
  EXPECT_THAT(refusal("hierarchical",
                      [](Experiment& e) {
                        e.update.group = 2;
                        e.update.levels = {{8, 3.0}};
                      }),
              StartsWith("update.levels: an averaging group of 3 does not consist of whole "
                         "averaging groups of 2"));
}

TEST(CombinationsTest, OnlyDilocoHasAnOuterRate) {
  for (const char* scheme : {"k_step", "hierarchical"}) {
    EXPECT_THAT(
        refusal(scheme, [](Experiment& e) { e.update.outer_rate = 0.7; }),
        testing::StrEq("update.outer_rate: 0.7 is only for reduction_momentum_kind = \"diloco\"; "
                       "\"classical\" has none"));
  }
}

TEST(CombinationsTest, APeriodPolicyNeedsItsNumber) {
  for (const char* scheme : {"k_step", "hierarchical"}) {
    EXPECT_THAT(
        refusal(scheme, [](Experiment& e) { e.update.period_policy = "post_local"; }),
        StartsWith("update.local_from_epoch: the policy \"post_local\" needs one above 0: the "
                   "epoch from which rounds have 16 steps"));
    EXPECT_THAT(refusal(scheme, [](Experiment& e) { e.update.period_policy = "qsr"; }),
                StartsWith("update.qsr_alpha: the policy \"qsr\" needs one above 0"));
  }
}

TEST(CombinationsTest, AnOverlappedAverageLeavesMomenta) {
  for (const char* state : {"average", "reset"}) {
    EXPECT_THAT(refusal("k_step",
                        [&](Experiment& e) {
                          e.update.optimizer_state = state;
                          e.update.overlap_steps = 2;
                        }),
                StartsWith("update.optimizer_state: with update.overlap_steps = 2 an average"));
  }
}

TEST(CombinationsTest, FragmentsNeedMomentaThatStayAndAConstantPeriod) {
  const auto refused = [](const auto& change) {
    return refusal("k_step", [&](Experiment& e) {
      e.update.fragments = 4;
      change(e.update);
    });
  };
  EXPECT_THAT(refused([](Experiment::Update& update) { update.optimizer_state = "average"; }),
              StartsWith("update.optimizer_state: an average of one of update.fragments = 4"));
  EXPECT_THAT(refused([](Experiment::Update& update) { update.period_policy = "adaptive"; }),
              StartsWith("update.period_policy: with update.fragments = 4 rounds have"));
  EXPECT_THAT(refused([](Experiment::Update& update) { update.period = 3; }),
              StartsWith("update.fragments: 4 are more than the 3 steps of update.period"));
}

TEST(CombinationsTest, AnOuterOptimizerIsTheOnlyOuterStep) {
  const auto refused = [](const std::string& outer, const std::string& kind, double momentum) {
    return refusal("k_step", [&](Experiment& e) {
      e.update.outer_optimizer = outer;
      e.update.reduction_momentum_kind = kind;
      e.update.reduction_momentum = momentum;
      e.update.outer_rate = 0.7;
    });
  };
  EXPECT_THAT(refused("sgd", "slowmo", 0.5),
              StartsWith("update.reduction_momentum_kind: \"slowmo\" is an outer step of its own"));
  EXPECT_THAT(refused("adam", "classical", 0.5),
              StartsWith("update.reduction_momentum: update.outer_optimizer = \"adam\" has a"));
  EXPECT_THAT(refused("nesterov", "classical", 0.0),
              StartsWith("update.reduction_momentum: update.outer_optimizer = \"nesterov\" needs"));
}

TEST(CombinationsTest, AnOuterAdamNeedsARateOfItsOwn) {
  EXPECT_THAT(
      refusal("k_step", [](Experiment& e) { e.update.outer_optimizer = "adam"; }),
      StartsWith("update.outer_rate: 1 is too large for update.outer_optimizer = \"adam\""));
}

TEST(CombinationsTest, KindsOfReductionMomentumNeedOne) {
  for (const char* kind : {"nesterov", "slowmo"}) {
    EXPECT_THAT(refusal("k_step", [&](Experiment& e) { e.update.reduction_momentum_kind = kind; }),
                StartsWith("update.reduction_momentum: update.reduction_momentum_kind = \"" +
                           std::string(kind) + "\" needs one above 0"));
  }
}

TEST(CombinationsTest, WithFixedDelayNothingIsComputedBetweenTurns) {
  EXPECT_THAT(refusal("cyclic",
                      [](Experiment& e) {
                        e.update.delay = "fixed";
                        e.update.local_step = true;
                      }),
              StartsWith("update.local_step: with delay"));
}

TEST(CombinationsTest, NesterovNeedsAMomentum) {
  EXPECT_THAT(refusal("synchronous",
                      [](Experiment& e) {
                        e.optimizer.nesterov = true;
                        e.optimizer.momentum = 0.0;
                      }),
              StartsWith("optimizer.nesterov: looks ahead by the momentum"));
}

TEST(CombinationsTest, CyclicBeginsWithAnEpoch) {
  EXPECT_THAT(refusal("cyclic", [](Experiment& e) { e.update.warmup_epochs = 0.5; }),
              StartsWith("update.warmup_epochs: 0.5 would end within an epoch"));
}

TEST(CombinationsTest, CyclicWithFixedDelaySkipsNothing) {
  EXPECT_THAT(refusal("cyclic",
                      [](Experiment& e) {
                        e.update.delay = "fixed";
                        e.update.when_empty = "skip";
                      }),
              StartsWith("update.when_empty: with delay = \"fixed\" every turn has a mini-batch"));
}

TEST(CombinationsTest, CyclicRanksDoNotMeetInBatchNorm) {
  EXPECT_THAT(refusal("cyclic", [](Experiment& e) { e.grid.batch_norm = "all"; }),
              StartsWith("grid.batch_norm: \"all\" makes all ranks meet in every mini-batch"));
}

TEST(CombinationsTest, AScheduleOfStepsHasMilestones) {
  EXPECT_THAT(refusal("synchronous", [](Experiment& e) { e.optimizer.schedule = "steps"; }),
              StartsWith("optimizer.milestones: "));
}

TEST(CombinationsTest, AGridIsEitherChosenOrGiven) {
  const auto chosen_and_given = [](Experiment& e) {
    e.grid.plan = "auto";
    e.grid.height = 2;
  };
  EXPECT_THAT(refusal("synchronous", chosen_and_given),
              StartsWith("grid.plan: \"auto\" chooses all splits"));
}

TEST(CombinationsTest, TheWarmUpIsNotNegative) {
  EXPECT_THAT(refusal("k_step", [](Experiment& e) { e.update.warmup_epochs = -0.5; }),
              StartsWith("update.warmup_epochs: -0.5 is impossible"));
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

// Keys that a file or a setting gives, and that the choices made do not read.

constexpr std::string_view names = "[data]\nname = 'synthetic'\n[model]\nname = 'lenet5'\n";

std::string refusal_of(const std::vector<std::string>& settings) {
  return error_text<ConfigError>([&] { return parse_experiment(names, "exp.toml", settings); });
}

TEST(KeyWithoutEffectTest, NamesKeyValueSchemeAndThoseThatReadIt) {
  EXPECT_EQ(refusal_of({"update.period_policy=qsr", "update.scheme=synchronous"}),
            "--set update.period_policy=qsr: update.period_policy: \"qsr\" has no effect with "
            "update.scheme = \"synchronous\"; leave the key out, or choose one that reads it: "
            "\"k_step\", \"hierarchical\"");
}

TEST(KeyWithoutEffectTest, NamesTheLineOfTheFile) {
  EXPECT_THAT(error_text<ConfigError>([] {
                return parse_experiment(std::string(names) + "[update]\nlazy_layers = '2'\n", "e");
              }),
              StartsWith("e:6: update.lazy_layers: \"2\" has no effect with update.scheme"));
}

TEST(KeyWithoutEffectTest, OfDataAndModelsSaysWhichReadIt) {
  EXPECT_THAT(
      refusal_of({"data.name=cifar10", "data.training=100"}),
      HasSubstr("data.training: 100 has no effect with data.name = \"cifar10\"; leave the key "
                "out, or choose one that reads it: \"synthetic\""));
  EXPECT_THAT(refusal_of({"data.name=cifar10", "data.image_size=64"}), HasSubstr("\"folder\""));
  EXPECT_THAT(refusal_of({"model.name=lenet5", "model.classes=100"}), HasSubstr("\"custom\""));
  // A run of an older version, or one that is evaluated on other data.
  EXPECT_EQ(parse_recorded(names, "e", {"data.name=cifar10", "data.training=100"}).data.training,
            100);
  EXPECT_NO_THROW(
      (void)parse_experiment(names, "exp.toml", {"data.name=synthetic", "data.path=x"}));
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
        static_cast<void>(parse_experiment(names, "exp.toml",
                                           {"update.scheme=" + std::string(scheme.name), setting}));
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

TEST(KeyWithoutEffectTest, OptimizersSchedulesAndPoliciesReadTheirOwn) {
  EXPECT_THAT(refusal_of({"optimizer.trust_coefficient=0.1"}),
              EndsWith("with optimizer.name = \"sgd\"; leave the key out, or choose one that reads "
                       "it: \"lars\""));
  EXPECT_THAT(refusal_of({"optimizer.beta1=0.5"}), EndsWith("reads it: \"adam\", \"adamw\""));
  EXPECT_THAT(refusal_of({"optimizer.name=adam", "optimizer.momentum=0.5"}),
              EndsWith("reads it: \"sgd\", \"lars\""));
  EXPECT_THAT(
      refusal_of({"optimizer.milestones=[3]"}),
      EndsWith("with optimizer.schedule = \"cosine\"; leave the key out, or choose one that "
               "reads it: \"steps\""));
  EXPECT_THAT(refusal_of({"update.scheme=k_step", "update.qsr_alpha=0.1"}),
              HasSubstr("with update.period_policy = \"constant\"; "));
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

// A run's own record is read as it is, so that a program's checkpoints can be resumed.
TEST(KeyWithoutEffectTest, RecordedOnesAreRead) {
  const std::string text = std::string(names) + "[update]\nperiod = 7\n";
  EXPECT_EQ(parse_recorded(text, "e").update.period, 7);
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

TEST(CombinationsTest, AreCheckedWhenAFileIsRead) {
  const std::string answer = error_text<ConfigError>([] {
    return parse_experiment(
        "", "exp.toml",
        {"data.name=synthetic", "model.name=lenet5", "update.scheme=lazy", "optimizer.name=adam"});
  });
  EXPECT_THAT(answer, StartsWith("exp.toml: optimizer.name: adam ignores"));
}

// Which word a typing error was meant to be.

TEST(NearestTest, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("epochs", "epochs"), 0U);
}

TEST(NearestTest, CountsSwappedNeighboursOnce) {
  EXPECT_EQ(edit_distance("gloabl", "global"), 1U);
  EXPECT_EQ(edit_distance("ab", "ba"), 1U);
}

TEST(NearestTest, FindsTheNearestOfSeveral) {
  const std::vector<std::string> words = {"seed", "speed", "threads"};
  EXPECT_EQ(nearest("sed", words), "seed");
  EXPECT_EQ(nearest("thread", words), "threads");
}

TEST(NearestTest, GivesUpOnWhatIsFar) {
  const std::vector<std::string> words = {"sgd", "epochs"};
  EXPECT_EQ(nearest("momentum", words), "");
  EXPECT_EQ(nearest("ab", words), "");
  EXPECT_EQ(nearest(std::string(100'000, 'x'), words), "");
  EXPECT_EQ(nearest("", words), "");
}

TEST(NearestTest, ListsAllWhenNoneIsNear) {
  const std::vector<std::string> words = {"spin", "yield"};
  EXPECT_EQ(suggest("spinn", words), "did you mean 'spin'?");
  EXPECT_EQ(suggest("frobnicate", words), "choose one of spin, yield");
}

}  // namespace
}  // namespace rondo::train::combinations_test
