// Writing a checkpoint: a rank that does not come is named, and what is not complete is removed.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <latch>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "checkpoint/storage.hpp"
#include "checkpoint/writer.hpp"
#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "support/world.hpp"

namespace rondo::train::checkpoint_writer_test {
namespace {

namespace fs = std::filesystem;

using rondo::test::ScratchFolder;
using rondo::test::World;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t step = 3;

Manifest about() { return {.step = step, .epoch = 1, .ranks = 1, .replicas = 1}; }

RankState state_of(int rank) {
  RankState state;
  state.fill(std::vector<std::byte>(1000, static_cast<std::byte>(rank)));
  return state;
}

// The files of both ranks are written, but one of the ranks stops in its training.
TEST(CheckpointWriterTest, ARankThatDoesNotComeIsNamedAfterADeadline) {
  const ScratchFolder run;
  transport::WorldOptions options;
  options.deadline = std::chrono::seconds(1);
  std::latch has_failed(1);
  World(2, options).run([&](transport::World& world) {
    CheckpointWriter writer(world.communicator(), {.run_folder = run.path()});
    writer.start(about(), state_of(world.rank()));
    if (world.rank() == 1) return has_failed.wait();
    EXPECT_THAT(
        rondo::test::error_text<transport::Error>([&] { writer.finish(); }),
        AllOf(HasSubstr("its deadline, for rank 1"), HasSubstr("alive but not taking part")));
    has_failed.count_down();
  });
}

TEST(CheckpointWriterTest, ACompleteOneStays) {
  const ScratchFolder run;
  World{1}.run([&](transport::World& world) {
    CheckpointWriter writer(world.communicator(), {.run_folder = run.path()});
    writer.start(about(), state_of(0));
    writer.finish();
  });
  EXPECT_THAT(list_checkpoints(run.path()), ElementsAre(checkpoint_folder(run.path(), step)));
}

TEST(CheckpointWriterTest, OneThatARunLeavesUnfinishedIsRemoved) {
  const ScratchFolder run;
  World{1}.run([&](transport::World& world) {
    CheckpointWriter writer(world.communicator(), {.run_folder = run.path()});
    writer.start(about(), state_of(0));
  });
  EXPECT_TRUE(fs::is_empty(checkpoints_in(run.path())));
}

// Before the error is told: what tells it may need the room.
TEST(CheckpointWriterTest, OneThatCannotBeWrittenIsRemovedAtOnce) {
  const ScratchFolder run;
  World{1}.run([&](transport::World& world) {
    CheckpointWriter writer(world.communicator(), {.run_folder = run.path()});
    const fs::path in_the_way = unfinished_folder(run.path(), step) / "manifest.json";
    fs::create_directories(in_the_way);
    writer.start(about(), state_of(0));
    EXPECT_THAT(rondo::test::error_text<DataError>([&] { writer.finish(); }),
                HasSubstr("manifest.json: cannot be written"));
    EXPECT_TRUE(fs::is_empty(checkpoints_in(run.path())));
  });
}

// Also where rank 0 has removed what it found before another rank wrote its own.
TEST(CheckpointWriterTest, WhatCannotBeWrittenIsRemovedByAllRanks) {
  const ScratchFolder run;
  const fs::path folder = unfinished_folder(run.path(), step);
  World(3).run([&](transport::World& world) {
    CheckpointWriter writer(world.communicator(), {.run_folder = run.path()});
    world.communicator().barrier().wait();  // rank 0 has removed what was there
    if (world.rank() == 1) fs::create_directories(folder / "scheme-1.bin");
    writer.start(about(), state_of(world.rank()));
    if (world.rank() == 1) {
      EXPECT_THAT(rondo::test::error_text<DataError>([&] { writer.finish_together(); }),
                  HasSubstr("scheme-1.bin: cannot be written"));
    } else {
      writer.finish_together();
    }
    world.communicator().barrier().wait();
    EXPECT_FALSE(fs::exists(folder)) << world.rank();
  });
  EXPECT_THAT(list_checkpoints(run.path()), testing::IsEmpty());
}

TEST(CheckpointWriterTest, ARunFolderThatIsGoneIsNotMadeAgain) {
  const ScratchFolder scratch;
  const fs::path run = scratch.path() / "run";
  fs::create_directory(run);
  World{1}.run([&](transport::World& world) {
    CheckpointWriter writer(world.communicator(), {.run_folder = run});
    fs::rename(run, scratch.path() / "moved");
    writer.start(about(), state_of(0));
    EXPECT_THAT(rondo::test::error_text<DataError>([&] { writer.finish(); }),
                HasSubstr("checkpoints: cannot be made"));
  });
  EXPECT_FALSE(fs::exists(run));
}

}  // namespace
}  // namespace rondo::train::checkpoint_writer_test
