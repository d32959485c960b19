// What ranks agree on before a run: the configuration, the data, and the grid that was chosen.

#include "trainer/prepare.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <rondo/train/trainer.hpp>
#include <rondo/transport/world.hpp>

#include "support/scratch_folder.hpp"
#include "support/world.hpp"
#include "train/data_files.hpp"
#include "train/experiments.hpp"

namespace rondo::train::prepared_run_test {
namespace {

using rondo::test::Bytes;
using rondo::test::ScratchFolder;
using rondo::test::World;
using test::small_experiment;
using testing::HasSubstr;
using testing::ThrowsMessage;

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
    EXPECT_THAT([&] { static_cast<void>(prepare_run(world, experiment)); },
                ThrowsMessage<Error>(HasSubstr(text)));
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
  expect_refusal<ConfigError>([](Experiment& e) { e.grid.layers.assign(50, {"conv1", "group"}); },
                              "grid.layers: rank 1 has another value than rank 0; start");
}

TEST(PreparedRunTest, WhatConcernsOneRankAloneMayDiffer) {
  EXPECT_NO_THROW(prepare_with_another_rank_1([](Experiment& experiment) {
    experiment.data.path = "/elsewhere";
    experiment.train.threads = 3;
    experiment.update.replay = "another.jsonl";
    experiment.transport.wait = "block";
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
    EXPECT_THAT([&] { static_cast<void>(prepare_run(world, experiment)); },
                ThrowsMessage<DataError>(HasSubstr(text)));
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

TEST(PreparedRunTest, RanksWithDifferentTurnsToReplayAreToldSo) {
  const ScratchFolder folder;
  const std::filesystem::path usual = folder.write("usual.jsonl", "1");
  const std::filesystem::path other = folder.write("other.jsonl", "2");
  World{2}.run([&](transport::World& world) {
    Experiment experiment = small_experiment();
    experiment.update.scheme = "cyclic";
    experiment.update.replay = world.rank() == 0 ? usual : other;
    EXPECT_THAT([&] { static_cast<void>(prepare_run(world, experiment)); },
                ThrowsMessage<DataError>(HasSubstr("the digest of update.replay: rank 1 has ")));
  });
}

Experiment automatic() {
  Experiment experiment = small_experiment();
  experiment.grid.plan = "auto";
  return experiment;
}

Experiment::Grid planned(transport::World& world, std::int64_t threads) {
  Experiment experiment = automatic();
  experiment.train.threads = threads;
  return choose_grid_automatically(make_model("lenet5"), experiment, world);
}

// So many threads that computing costs nothing, and ranks had better all do the same.
TEST(PreparedRunTest, RanksWithDifferentThreadsTakeTheGridThatTheFirstOneChose) {
  for (const std::int64_t first : {1, 4096}) {
    World{4}.run([&](transport::World& world) {
      ASSERT_NE(planned(world, 1), planned(world, 4096));
      Experiment experiment = automatic();
      experiment.train.threads = world.rank() == 0 ? first : 4097 - first;

      EXPECT_EQ(prepare_run(world, experiment).experiment.grid, planned(world, first));
      EXPECT_EQ(train(world, experiment, {}).epoch, 1);
    });
  }
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
  EXPECT_EQ(first.experiment.grid.plan, "chosen");
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

}  // namespace
}  // namespace rondo::train::prepared_run_test
