// The agreement of ranks before a run, and how they end alike when one of them fails.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/loader.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "support/world.hpp"
#include "train/data_files.hpp"
#include "train/experiments.hpp"
#include "trainer/agreement.hpp"
#include "trainer/prepare.hpp"

namespace rondo::train::prepare_test {
namespace {

using rondo::test::Bytes;
using rondo::test::ScratchFolder;
using rondo::test::World;
using test::small_experiment;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Data and model of an experiment, and that they fit each other.

Experiment synthetic(const std::string& model) {
  Experiment experiment;
  experiment.data.name = "synthetic";
  experiment.data.training = 20;
  experiment.data.test = 10;
  experiment.model.name = model;
  return experiment;
}

class EmptySource : public ImageSource {
 public:
  void read(std::int64_t, const Framing&, tensor::View<std::uint8_t> out) const override {
    std::fill_n(out.data, out.shape.size(), std::uint8_t{0});
  }
  [[nodiscard]] std::string digest() const override { return "empty"; }
};

// Images of a program's own source are decoded ahead as those of a folder are.
TEST(BufferedBatchesTest, AreThoseThatTheLoaderKeeps) {
  const Experiment experiment = synthetic("lenet5");
  for (const bool decodes : {false, true}) {
    Dataset dataset = *load_run(experiment).dataset;
    if (decodes) {
      dataset.training.source = dataset.test.source = std::make_shared<EmptySource>();
      dataset.training.pixels.clear();
      dataset.test.pixels.clear();
    }
    const Loader loader(dataset, {.global_batch = 4, .largest_range = 4});
    const auto values = static_cast<std::size_t>(4 * (dataset.training.shape.image() + 1));

    EXPECT_EQ(loader.batch_bytes(4),
              static_cast<std::size_t>(buffered_batches(experiment, decoded_sets(dataset))) *
                  values * sizeof(float))
        << decodes;
  }
}

TEST(LoadRunTest, SyntheticImagesTakeTheModelsShape) {
  const PreparedRun run = load_run(synthetic("resnet20"));
  EXPECT_EQ(run.dataset->training.shape, (tensor::Shape{20, 32, 32, 3}));
  EXPECT_EQ(run.dataset->test.shape, (tensor::Shape{10, 32, 32, 3}));
  EXPECT_EQ(run.dataset->classes, run.model.classes);
}

TEST(LoadRunTest, TheModelTakesTheShapeOfSyntheticImages) {
  Experiment experiment = synthetic("lenet5");
  experiment.data.shape = {32, 40, 3};
  experiment.data.classes = 7;
  const PreparedRun run = load_run(experiment);
  EXPECT_EQ(run.model.input, (tensor::Shape{1, 32, 40, 3}));
  EXPECT_EQ(run.model.classes, 7);
  EXPECT_EQ(run.dataset->classes, 7);
  EXPECT_EQ(run.dataset->training.shape, (tensor::Shape{20, 32, 40, 3}));
}

TEST(LoadRunTest, RefusesImagesThatAreTooSmallForTheModel) {
  Experiment experiment = synthetic("lenet5");
  experiment.data.shape = {2, 2, 1};
  EXPECT_THAT(
      rondo::test::error_text<ConfigError>([&] { static_cast<void>(load_run(experiment)); }),
      HasSubstr("lenet5 does not fit the images of synthetic"));
}

TEST(LoadRunTest, RefusesNamesOfSomeClassesOnly) {
  Dataset own = *load_run(synthetic("lenet5")).dataset;
  own.class_names = {"cat"};
  EXPECT_THAT(rondo::test::error_text<ConfigError>(
                  [&] { static_cast<void>(load_run(synthetic("lenet5"), &own)); }),
              HasSubstr("10 classes and 1 names"));
}

TEST(LoadRunTest, RefusesAModelThatItDoesNotKnow) {
  EXPECT_THAT(rondo::test::error_text<ConfigError>(
                  [&] { static_cast<void>(load_run(synthetic("lenet6"))); }),
              AllOf(HasSubstr("model.name: "), HasSubstr("lenet6"), HasSubstr("resnet20")));
}

// The agreement of ranks before a run: the configuration, the data, and the grid that was chosen.

using Change = std::function<void(Experiment& experiment)>;

/// Two ranks, the second of which has `change` in its configuration, prepare a run.
void prepare_with_another_rank_1(const Change& change) {
  World{2}.run([&](transport::World& world) {
    Experiment experiment = small_experiment();
    if (world.rank() == 1) change(experiment);
    static_cast<void>(prepare_run(world, experiment));
  });
}

template <typename Error>
void expect_refusal(const Change& change, const std::string& text) {
  World{2}.run([&](transport::World& world) {
    Experiment experiment = small_experiment();
    if (world.rank() == 1) change(experiment);
    EXPECT_THAT(
        rondo::test::error_text<Error>([&] { static_cast<void>(prepare_run(world, experiment)); }),
        HasSubstr(text));
  });
}

TEST(PreparedRunTest, RanksWithDifferentConfigurationsAreToldWhichKeyDiffers) {
  expect_refusal<ConfigError>([](Experiment& e) { e.train.seed = 7; },
                              "train.seed: rank 1 has 7, and rank 0 has 1; start all ranks");
  expect_refusal<ConfigError>([](Experiment& e) { e.train.global_batch = 32; },
                              "train.global_batch: rank 1 has 32, and rank 0 has 24");
  expect_refusal<ConfigError>([](Experiment& e) { e.train.log_every = 3; },
                              "train.log_every: rank 1 has 3, and rank 0 has 50");
  expect_refusal<ConfigError>([](Experiment& e) { e.grid.height = 2; },
                              "grid.height: rank 1 has 2, and rank 0 has 1");
  expect_refusal<ConfigError>([](Experiment& e) { e.transport.bandwidth_gbs = 2.0; },
                              "transport.bandwidth_gbs: rank 1 has 2.0, and rank 0 has 0.0");
}

TEST(PreparedRunTest, ALongValueThatDiffersIsNotPrinted) {
  expect_refusal<ConfigError>([](Experiment& e) { e.grid.layers.assign(50, {"conv1", "replica"}); },
                              "grid.layers: rank 1 has another value than rank 0; start");
}

TEST(PreparedRunTest, WhatConcernsOneRankAloneMayDiffer) {
  EXPECT_NO_THROW(prepare_with_another_rank_1([](Experiment& experiment) {
    experiment.data.path = "/elsewhere";
    experiment.train.threads = 3;
    experiment.update.replay = "another.jsonl";
    experiment.transport.deadline_seconds = 5.0;
    experiment.transport.stall_warning_seconds = 1.0;
    experiment.transport.interface = "eth0";
  }));
}

/// Three training images of 28x28 pixels and one test image.
void write_images(const ScratchFolder& folder, const Bytes& training, const Bytes& labels,
                  const Bytes& test) {
  folder.write("train-images-idx3-ubyte", training);
  folder.write("train-labels-idx1-ubyte", rondo::test::idx_labels(labels));
  folder.write("t10k-images-idx3-ubyte", test);
  folder.write("t10k-labels-idx1-ubyte", rondo::test::idx_labels({1}));
}

/// Rank 1 reads the given images, rank 0 the usual ones.
void expect_refused_images(const Bytes& training, const Bytes& labels, const Bytes& test,
                           const std::string& text) {
  const ScratchFolder usual;
  const ScratchFolder other;
  write_images(usual, rondo::test::idx_images(3, 28, 28), {7, 0, 9},
               rondo::test::idx_images(1, 28, 28));
  write_images(other, training, labels, test);
  World{2}.run([&](transport::World& world) {
    Experiment experiment = small_experiment();
    experiment.data.name = "fashion-mnist";
    experiment.data.path = world.rank() == 0 ? usual.path() : other.path();
    EXPECT_THAT(rondo::test::error_text<DataError>(
                    [&] { static_cast<void>(prepare_run(world, experiment)); }),
                HasSubstr(text));
  });
}

TEST(PreparedRunTest, RanksWithDifferentImagesAreToldSo) {
  const Bytes usual = rondo::test::idx_images(3, 28, 28);
  const Bytes test = rondo::test::idx_images(1, 28, 28);
  Bytes other = usual;
  other.back() ^= 1U;
  Bytes other_test = test;
  other_test.back() ^= 1U;

  expect_refused_images(rondo::test::idx_images(2, 28, 28), {7, 0}, test,
                        "data: the number of training images: rank 1 has 2, and rank 0 has 3; "
                        "give all ranks the same files");
  expect_refused_images(other, {7, 0, 9}, test, "the pixels of training images: rank 1 has ");
  expect_refused_images(usual, {7, 1, 9}, test, "the labels of training images: rank 1 has ");
  expect_refused_images(usual, {7, 0, 9}, other_test, "the pixels of test images: rank 1 has ");
}

TEST(PreparedRunTest, WeightsOfOneRankAloneAreRefused) {
  const ScratchFolder folder;
  const std::filesystem::path file = folder.write("model.safetensors", "1");
  World{2}.run([&](transport::World& world) {
    Experiment experiment = small_experiment();
    if (world.rank() == 1) experiment.model.weights = file;
    EXPECT_THAT(rondo::test::error_text<DataError>([&] { train(world, experiment, {}); }),
                HasSubstr("the digest of model.weights: rank 1 has "));
  });
}

TEST(PreparedRunTest, RanksWithDifferentTurnsToReplayAreToldSo) {
  const ScratchFolder folder;
  const std::filesystem::path usual = folder.write("usual.jsonl", "1");
  const std::filesystem::path other = folder.write("other.jsonl", "2");
  World{2}.run([&](transport::World& world) {
    Experiment experiment = small_experiment();
    experiment.update.scheme = "cyclic";
    experiment.update.replay = world.rank() == 0 ? usual : other;
    EXPECT_THAT(rondo::test::error_text<DataError>(
                    [&] { static_cast<void>(prepare_run(world, experiment)); }),
                HasSubstr("the digest of update.replay: rank 1 has "));
  });
}

Experiment automatic() {
  Experiment experiment = small_experiment();
  experiment.grid.plan = PlanChoice::automatic;
  return experiment;
}

// It is the first one that measures.
TEST(PreparedRunTest, RanksWithDifferentThreadsTakeTheGridThatTheFirstOneChose) {
  std::vector<Experiment::Grid> grids(4);
  std::vector<bool> expects(4);
  World{4}.run([&](transport::World& world) {
    Experiment experiment = automatic();
    experiment.train.threads = world.rank() == 0 ? 1 : 2;

    const auto rank = static_cast<std::size_t>(world.rank());
    const PreparedRun run = prepare_run(world, experiment);
    grids[rank] = run.experiment.grid;
    expects[rank] = !run.planned.empty();
    EXPECT_EQ(train(world, experiment, {.threads = 1}).epoch, 1);
  });
  EXPECT_EQ(grids[0].plan, PlanChoice::chosen);
  EXPECT_THAT(grids, Each(grids[0]));
  EXPECT_THAT(expects, ElementsAre(true, false, false, false));
}

// Behind a concatenation all ranks of a replica have a copy of the batch norm.
TEST(PreparedRunTest, RanksThatHoldCopiesOfALayerNeedEqualThreads) {
  World{2}.run([&](transport::World& world) {
    Experiment experiment = small_experiment("densenet40_12");
    experiment.data.training = 8;
    experiment.data.test = 4;
    experiment.train.global_batch = 4;
    experiment.train.epochs = 1;
    experiment.grid.channel = 2;
    TrainerOptions options;
    options.threads = 1 + world.rank();

    EXPECT_THAT(rondo::test::error_text<ConfigError>([&] { train(world, experiment, options); }),
                AllOf(HasSubstr("train.threads: rank 1 has 2, and rank 0 has 1"),
                      HasSubstr("hold the same layer")));
  });
}

// What is measured may differ from time to time, and a run that goes on may not.
TEST(PreparedRunTest, AnEarlierGridIsKept) {
  World{4}.run([&](transport::World& world) {
    Experiment::Grid earlier{.sample = 1, .filter = 4, .plan = PlanChoice::chosen};
    const std::optional<Experiment::Grid> known =
        world.rank() == 0 ? std::optional(earlier) : std::nullopt;

    const PreparedRun run = prepare_run(world, automatic(), nullptr, nullptr, known);

    EXPECT_EQ(run.experiment.grid, earlier);
  });
}

/// A run on four ranks: what the observer was told of the configuration, what metrics.jsonl has,
/// and what came of it.
struct Told {
  Experiment experiment = {};
  std::string recorded = {};
  std::vector<double> losses = std::vector<double>(4);
  std::vector<std::string> hashes = std::vector<std::string>(4);  // by rank, of what it holds
};

Told told_by(const Experiment& experiment) {
  const ScratchFolder folder;
  Told told;
  TrainerOptions options;
  options.run_folder = folder.path();
  options.observer.on_start = [&](const Experiment& started) { told.experiment = started; };
  World{4}.run([&](transport::World& world) {
    const EpochMetrics metrics = train(world, experiment, options);
    const auto rank = static_cast<std::size_t>(world.rank());
    told.losses[rank] = metrics.loss;
    told.hashes[rank] = metrics.parameter_hash;
  });
  std::ifstream file(folder.path() / "metrics.jsonl");
  std::string line;
  std::getline(file, line);
  told.recorded = nlohmann::json::parse(line).at("config");
  return told;
}

TEST(PreparedRunTest, TheGridThatWasChosenIsInTheConfigurationAndRepeatsTheRun) {
  Experiment experiment = automatic();
  experiment.train.global_batch = 2;  // leaves ranks without a sample unless layers are split
  const Told first = told_by(experiment);
  EXPECT_EQ(first.experiment.grid.plan, PlanChoice::chosen);
  EXPECT_FALSE(first.experiment.grid.layers.empty());
  EXPECT_EQ(first.recorded, to_toml(first.experiment));

  const Told again = told_by(parse_experiment(first.recorded, "config.toml"));

  EXPECT_EQ(again.recorded, first.recorded);
  EXPECT_EQ(again.hashes, first.hashes);
  EXPECT_EQ(again.losses, first.losses);
}

TEST(PreparedRunTest, AGridThatIsGivenStaysAsItIs) {
  Experiment experiment = automatic();
  experiment.grid = {.height = 2};
  EXPECT_EQ(told_by(experiment).experiment.grid, experiment.grid);
}

// A rank that fails, while everybody prepares or later: all ranks learn of it and end alike, none
// waits in vain.

/// Work that throws `error` on the given rank and succeeds on others.
template <typename Error>
std::function<void()> failing_on(int rank, const transport::World& world, const Error& error) {
  return [rank, mine = world.rank(), error] {
    if (mine == rank) throw error;
  };
}

TEST(AgreementTest, AllSucceedTogether) {
  World{3}.run([](transport::World& world) {
    bool worked = false;
    agree_on(world, [&] { worked = true; });
    EXPECT_TRUE(worked);
  });
}

TEST(AgreementTest, TheFailingRankKeepsItsErrorAndOthersHearOfIt) {
  World{3}.run([](transport::World& world) {
    const std::string expected = world.rank() == 1 ? "bad file" : "rank 1: bad file";
    EXPECT_THAT(rondo::test::error_text<DataError>(
                    [&] { agree_on(world, failing_on(1, world, DataError("bad file"))); }),
                expected);
  });
}

TEST(AgreementTest, ErrorsKeepTheirTypes) {
  World{2}.run([](transport::World& world) {
    EXPECT_THROW(agree_on(world, failing_on(0, world, ConfigError("x"))), ConfigError);
    EXPECT_THROW(agree_on(world, failing_on(0, world, std::invalid_argument("x"))),
                 std::invalid_argument);
    EXPECT_THROW(agree_on(world, failing_on(1, world, std::logic_error("x"))), std::exception);
  });
}

TEST(AgreementTest, TheFirstFailingRankIsNamed) {
  World{3}.run([](transport::World& world) {
    const auto work = [&] {
      if (world.rank() > 0) throw ConfigError("of rank " + std::to_string(world.rank()));
    };
    const std::string expected =
        world.rank() == 0 ? "rank 1: of rank 1" : "of rank " + std::to_string(world.rank());
    EXPECT_THAT(rondo::test::error_text<ConfigError>([&] { agree_on(world, work); }), expected);
  });
}

TEST(AgreementTest, ALongTextIsCut) {
  World{2}.run([](transport::World& world) {
    const std::string text(5000, 'x');
    std::string heard;

    try {
      agree_on(world, failing_on(1, world, DataError(text)));
    } catch (const DataError& error) {
      heard = error.what();
    }

    EXPECT_EQ(heard.size(), world.rank() == 1 ? 5000U : std::string("rank 1: ").size() + 1022U);
  });
}

TEST(AgreementTest, ErrorsOfDifferentTypesEndAllRanksAlike) {
  World{3}.run([](transport::World& world) {
    const auto work = [&] {
      if (world.rank() == 1) throw DataError("bad file");
      if (world.rank() == 2) throw ConfigError("bad key");
    };
    EXPECT_THROW(agree_on(world, work), DataError);
  });
}

TEST(AgreementTest, WhatIsNoExceptionEndsAllRanks) {
  World{2}.run([](transport::World& world) {
    if (world.rank() == 0) {
      EXPECT_THROW(agree_on(world, failing_on(0, world, 42)), int);
    } else {
      EXPECT_THROW(agree_on(world, [] {}), std::runtime_error);
    }
  });
}

/// `error` is thrown on rank 1 while the others wait for it.
template <typename Error>
void fail_while_others_wait(transport::World& world, const Error& error) {
  end_together(world, [&] {
    if (world.rank() == 1) throw error;
    world.communicator().barrier().wait();
  });
}

TEST(EndTogetherTest, NothingHappensWhereNothingIsThrown) {
  World{2}.run([](transport::World& world) {
    EXPECT_NO_THROW(end_together(world, [&] { world.communicator().barrier().wait(); }));
    EXPECT_NO_THROW(world.communicator().barrier().wait());
  });
}

TEST(EndTogetherTest, OthersThrowTheSameTypeAndNameTheRank) {
  World{3}.run([](transport::World& world) {
    const auto fail = [&] { fail_while_others_wait(world, DataError("the disk is full")); };

    if (world.rank() == 1) {
      EXPECT_THAT(rondo::test::error_text<DataError>(fail), "the disk is full");
    } else {
      EXPECT_THAT(rondo::test::error_text<DataError>(fail),
                  AllOf(HasSubstr("rank 1"), HasSubstr("the disk is full")));
    }
  });
}

template <typename Error>
void expect_of_all(const Error& error) {
  World{2}.run(
      [&](transport::World& world) { EXPECT_THROW(fail_while_others_wait(world, error), Error); });
}

TEST(EndTogetherTest, EveryTypeThatMeansAStatusIsKept) {
  expect_of_all(ConfigError("x"));
  expect_of_all(DataError("x"));
  expect_of_all(NumericError("x"));
  expect_of_all(std::invalid_argument("x"));
  expect_of_all(std::runtime_error("x"));
  expect_of_all(transport::Error(transport::Errc::deadline_exceeded, "x"));
}

TEST(EndTogetherTest, WhatAllRanksThrowLeavesTheWorldAsItWas) {
  World{2}.run([](transport::World& world) {
    EXPECT_THROW(end_together(world, [] { throw_on_all("x"); }), NumericError);
    EXPECT_NO_THROW(world.communicator().barrier().wait());
  });
}

TEST(EndTogetherTest, MemoryThatOneRankLacksIsNoLostPeerToOthers) {
  World{2}.run([](transport::World& world) {
    const transport::Error error(transport::Errc::out_of_memory, "x");
    std::error_code seen;
    bool other = false;
    try {
      fail_while_others_wait(world, error);
    } catch (const transport::Error& caught) {
      seen = caught.code();
    } catch (const std::runtime_error&) {
      other = true;
    }

    EXPECT_EQ(seen == transport::Errc::out_of_memory, world.rank() == 1);
    EXPECT_EQ(other, world.rank() == 0);
  });
}

TEST(EndTogetherTest, WhatIsNoExceptionEndsAllRanks) {
  World{2}.run([](transport::World& world) {
    if (world.rank() == 1) {
      EXPECT_THROW(fail_while_others_wait(world, 42), int);
    } else {
      EXPECT_THROW(fail_while_others_wait(world, 42), std::runtime_error);
    }
  });
}

// The text of a program or of its scheme may hold any words.
TEST(EndTogetherTest, WordsInATextAreNoType) {
  const std::string words = "configuration error: data error: numeric error: x";
  expect_of_all(transport::Error(transport::Errc::deadline_exceeded, words));
  expect_of_all(DataError("numeric error: x"));
  World{2}.run([&](transport::World& world) {
    if (world.rank() == 1) return world.abort("saw a " + words);
    EXPECT_THROW(end_together(world, [&] { world.communicator().barrier().wait(); }),
                 transport::Error);
  });
}

// An abort of the World from elsewhere says nothing of a type.
TEST(EndTogetherTest, AnAbortOfSomebodyElseStaysOne) {
  World{2}.run([](transport::World& world) {
    if (world.rank() == 1) return world.abort("enough");
    EXPECT_THAT(rondo::test::error_text<transport::Error>(
                    [&] { end_together(world, [&] { world.communicator().barrier().wait(); }); }),
                HasSubstr("enough"));
  });
}

}  // namespace
}  // namespace rondo::train::prepare_test
