// Checkpoints on disk: the manifest, whole and damaged; files; what is kept.

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/manifest.hpp"
#include "checkpoint/resume.hpp"
#include "checkpoint/storage.hpp"
#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "support/seeds.hpp"
#include "weights/checksum.hpp"
#include "weights/durable_file.hpp"

namespace rondo::train::checkpoint_files_test {
namespace {

namespace fs = std::filesystem;

using rondo::test::ScratchFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Two ranks with equal parameters, and all else apart.
Manifest example(std::int64_t step = 12) {
  Manifest manifest{.program = "0.1.0",
                    .config = "[data]\nname = \"synthetic\"\n",
                    .step = step,
                    .epoch = 2,
                    .ranks = 2,
                    .threads = 3,
                    .replicas = 2,
                    .training_samples = 50000,
                    .training_data = "4567",
                    .test_data = "89ab",
                    .mean = {0.1F, 0.2F, 0.3F},
                    .stddev = {1.1F, 1.2F, 1.3F},
                    .class_names = {"cat", "dog"},
                    .images = DescribedImages{.name = "folder", .hwc = {32, 48, 3}, .classes = 2},
                    .layers = "0123",
                    .accuracy = 91.25,
                    .metrics_bytes = 1234,
                    .metrics_checksum = "cdef"};
  for (const char* name :
       {"parameters-0.bin", "statistics-0.bin", "scheme-0.bin", "progress-0.bin",
        "statistics-1.bin", "scheme-1.bin", "progress-1.bin", "evaluated-0.bin"}) {
    const std::string text = std::string("contents of ") + name;
    manifest.files.push_back(
        {.name = name, .bytes = text.size(), .checksum = checksum_of(bytes_of(text))});
  }
  manifest.parts = {{0, 1, 2, 3, 7}, {0, 4, 5, 6, 7}};
  return manifest;
}

void write_example(const fs::path& run, const Manifest& manifest) {
  make_unfinished_folder(run, manifest.step);
  for (const CheckpointFile& file : manifest.files) {
    write_durably(unfinished_folder(run, manifest.step) / file.name,
                  bytes_of("contents of " + file.name));
  }
  complete_checkpoint(run, manifest);
}

// What is wrong with a checkpoint; empty if nothing is.
std::string problem_of(const fs::path& checkpoint) {
  try {
    const Manifest manifest = read_manifest(checkpoint);
    for (const CheckpointFile& file : manifest.files) {
      static_cast<void>(read_checked(checkpoint, file));
    }
  } catch (const DataError& error) {
    return error.what();
  }
  return {};
}

TEST(CheckpointFilesTest, AManifestReadsBackToTheSame) {
  Manifest manifest = example();

  EXPECT_EQ(parse_manifest(to_json(manifest)), manifest);

  manifest.accuracy.reset();
  manifest.metrics_checksum.clear();  // as programs before wrote it
  EXPECT_EQ(parse_manifest(to_json(manifest)), manifest);
  manifest.images.reset();
  EXPECT_EQ(parse_manifest(to_json(manifest)), manifest);
}

TEST(CheckpointFilesTest, ImagesMayHaveOneLongSide) {
  Manifest manifest = example();
  manifest.images->hwc = {1, 1'000'000, 3};

  EXPECT_EQ(parse_manifest(to_json(manifest)), manifest);
}

TEST(CheckpointFilesTest, TheImagesOfAManifestArePossible) {
  std::vector<Manifest> impossible(6, example());
  impossible[0].images->hwc[0] = 0;
  impossible[1].images->classes = 0;
  impossible[2].images->hwc[1] = std::int64_t{1} << 62;
  impossible[3].images->hwc[2] = 4;  // and three means
  impossible[4].stddev[1] = 0.0F;
  impossible[5].stddev.pop_back();
  for (const Manifest& manifest : impossible) {
    EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                    [&] { static_cast<void>(parse_manifest(to_json(manifest))); }),
                HasSubstr("of images that cannot be"));
  }
}

TEST(CheckpointFilesTest, TheFuzzerOfManifestsBeginsWithOneThatIsRead) {
  rondo::test::expect_seed("manifest/two_ranks", to_json(example()));
}

TEST(CheckpointFilesTest, EveryChangedByteOfAManifestIsNoticed) {
  const std::string text = to_json(example());
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const int bit : {0x01, 0x20, 0x80}) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ bit);
      EXPECT_THROW(static_cast<void>(parse_manifest(changed)), std::invalid_argument)
          << "byte " << i;
    }
  }
}

TEST(CheckpointFilesTest, APartOfAManifestIsRefused) {
  const std::string text = to_json(example());
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_THROW(static_cast<void>(parse_manifest(text.substr(0, size))), std::invalid_argument);
  }
  EXPECT_THROW(static_cast<void>(parse_manifest(text + " ")), std::invalid_argument);
}

// Also with a checksum that fits: no foreign manifest may lead out of the folder.
TEST(CheckpointFilesTest, AManifestNamesFilesOfItsFolderOnly) {
  for (const char* name : {"../secret", "/etc/passwd", "", ".hidden"}) {
    Manifest manifest = example();
    manifest.files[0].name = name;

    EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                    [&] { static_cast<void>(parse_manifest(to_json(manifest))); }),
                HasSubstr("names a file"));
  }
}

// A conversion of such a number is undefined.
TEST(CheckpointFilesTest, ANumberOfAManifestIsAnInteger) {
  const std::string text = to_json(example());
  for (const char* key : {"format", "step", "threads", "metrics_bytes"}) {
    std::string changed = text;
    const std::size_t begin = changed.find(": ", changed.find('"' + std::string(key) + '"')) + 2;
    changed.replace(begin, changed.find(',', begin) - begin, "1e46");

    EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                    [&] { static_cast<void>(parse_manifest(changed)); }),
                HasSubstr("that is no integer"));
  }
}

TEST(CheckpointFilesTest, AManifestListsAllRanks) {
  Manifest manifest = example();
  manifest.ranks = 4;

  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                  [&] { static_cast<void>(parse_manifest(to_json(manifest))); }),
              HasSubstr("of 4 ranks"));
}

TEST(CheckpointFilesTest, ACheckpointHasItsNameOnlyWhenItIsComplete) {
  const ScratchFolder run;
  const Manifest manifest = example();
  make_unfinished_folder(run.path(), 12);
  write_durably(unfinished_folder(run.path(), 12) / "parameters-0.bin", bytes_of("half"));

  EXPECT_THAT(list_checkpoints(run.path()), IsEmpty());

  remove_unfinished(run.path());
  EXPECT_TRUE(fs::is_empty(checkpoints_in(run.path())));
  write_example(run.path(), manifest);
  EXPECT_THAT(list_checkpoints(run.path()), ElementsAre(checkpoint_folder(run.path(), 12)));
  EXPECT_EQ(problem_of(checkpoint_folder(run.path(), 12)), "");
}

// The name of the damaged file is in the message.
TEST(CheckpointFilesTest, EveryChangedByteOfAnyFileIsNoticed) {
  const ScratchFolder run;
  write_example(run.path(), example());
  const fs::path checkpoint = checkpoint_folder(run.path(), 12);
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const std::string text = rondo::test::contents(entry.path());
    const bool is_manifest = entry.path().extension() == ".json";
    for (std::size_t i = 0; i < text.size(); i += is_manifest ? 7 : 1) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ 1);
      std::ofstream(entry.path(), std::ios::binary) << changed;
      EXPECT_THAT(problem_of(checkpoint),
                  HasSubstr(is_manifest ? checkpoint.string() : entry.path().string()));
    }
    std::ofstream(entry.path(), std::ios::binary) << text;
  }
  EXPECT_EQ(problem_of(checkpoint), "");
}

TEST(CheckpointFilesTest, MissingAndShortFilesAreNamed) {
  const ScratchFolder run;
  write_example(run.path(), example());
  const fs::path checkpoint = checkpoint_folder(run.path(), 12);

  fs::resize_file(checkpoint / "scheme-1.bin", 3);
  EXPECT_THAT(problem_of(checkpoint), HasSubstr("scheme-1.bin: has 3 bytes"));

  fs::remove(checkpoint / "scheme-0.bin");
  EXPECT_THAT(problem_of(checkpoint), HasSubstr("scheme-0.bin: cannot be read"));

  fs::remove(checkpoint / "manifest.json");
  EXPECT_THAT(problem_of(checkpoint), HasSubstr("manifest.json: is missing"));
}

TEST(CheckpointFilesTest, OnlyTheFirstLogMustBeThere) {
  const ScratchFolder run;
  const fs::path log = run.write("metrics.jsonl", "{}\n");
  const std::vector logs{log, run.path() / "token_trace.jsonl"};

  EXPECT_NO_THROW(sync_logs(logs));
  fs::remove(log);
  EXPECT_THAT(rondo::test::error_text<DataError>([&] { sync_logs(logs); }),
              HasSubstr("metrics.jsonl: cannot be synced"));
}

// Whoever waits for ranks that write sees by it that they go on.
TEST(CheckpointFilesTest, TheirStateChangesWithEveryFile) {
  const ScratchFolder run;
  const auto state = [&run] { return state_of_checkpoints(run.path()); };
  EXPECT_EQ(state(), "");
  make_unfinished_folder(run.path(), 12);
  const fs::path file = unfinished_folder(run.path(), 12) / "parameters-0.bin";

  std::string before = state();
  write_durably(file, {});
  EXPECT_NE(state(), before);
  before = state();
  EXPECT_EQ(state(), before);
  write_durably(file, bytes_of("half"));
  EXPECT_NE(state(), before);
  before = state();
  fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(1));
  EXPECT_NE(state(), before);
  before = state();
  const fs::path complete = checkpoint_folder(run.path(), 12);
  fs::rename(file.parent_path(), complete);
  EXPECT_NE(state(), before);
  before = state();
  write_durably(complete / file.filename(), bytes_of("whole"));  // nobody waits for it any more
  EXPECT_EQ(state(), before);
}

// A run that fails does not write the rest of a large model before it tells why.
TEST(CheckpointFilesTest, AStopEndsAFileAfterAPiece) {
  const ScratchFolder run;
  const fs::path file = run.path() / "parameters-0.bin";
  const std::vector<std::byte> bytes((std::size_t{64} << 20U) + 1);
  std::stop_source stop;
  write_durably(file, bytes, stop.get_token());
  EXPECT_EQ(fs::file_size(file), bytes.size());

  stop.request_stop();
  write_durably(file, bytes, stop.get_token());
  EXPECT_EQ(fs::file_size(file), bytes.size() - 1);
}

// A folder of /proc answers EINVAL, as some file systems of networks do.
TEST(CheckpointFilesTest, AFileSystemThatCannotSyncFoldersIsUsed) {
  EXPECT_NO_THROW(sync_folder("/proc/self", "no remedy"));
  EXPECT_THAT(rondo::test::error_text<DataError>(
                  [] { sync_folder("/proc/self/missing", "choose another"); }),
              AllOf(HasSubstr("/proc/self/missing: cannot be synced (No such file or directory"),
                    HasSubstr("choose another")));
}

TEST(CheckpointFilesTest, KeepsTheNewestAndTheBest) {
  const ScratchFolder run;
  for (const auto& [step, accuracy] :
       {std::pair{9, 80.0}, std::pair{100, 95.0}, std::pair{20, 90.0}, std::pair{200, 70.0}}) {
    Manifest manifest = example(step);
    manifest.accuracy = accuracy;
    write_example(run.path(), manifest);
  }

  prune_checkpoints(run.path(), 3, true);
  EXPECT_THAT(list_checkpoints(run.path()),
              ElementsAre(checkpoint_folder(run.path(), 200), checkpoint_folder(run.path(), 100),
                          checkpoint_folder(run.path(), 20)));
  prune_checkpoints(run.path(), 1, true);
  EXPECT_THAT(list_checkpoints(run.path()),
              ElementsAre(checkpoint_folder(run.path(), 200), checkpoint_folder(run.path(), 100)));
  prune_checkpoints(run.path(), 1, false);
  EXPECT_THAT(list_checkpoints(run.path()), ElementsAre(checkpoint_folder(run.path(), 200)));
}

TEST(CheckpointFilesTest, ANewOneTakesTheNameOfOneThatIsThere) {
  const ScratchFolder run;
  write_example(run.path(), example());
  Manifest later = example();
  later.program = "later";
  write_example(run.path(), later);

  EXPECT_EQ(read_manifest(checkpoint_folder(run.path(), 12)).program, "later");
  EXPECT_EQ(problem_of(checkpoint_folder(run.path(), 12)), "");
  EXPECT_FALSE(fs::exists(unfinished_folder(run.path(), 12)));
}

// A checkpoint may have been moved to where there is more room.
TEST(CheckpointFilesTest, WhatALinkLeadsToIsNotRemoved) {
  const ScratchFolder run;
  const ScratchFolder elsewhere;
  for (const int step : {4, 8}) write_example(run.path(), example(step));
  const fs::path moved = elsewhere.path() / "step-4";
  fs::copy(checkpoint_folder(run.path(), 4), moved);
  fs::remove_all(checkpoint_folder(run.path(), 4));
  fs::create_directory_symlink(moved, checkpoint_folder(run.path(), 4));

  prune_checkpoints(run.path(), 1, false);

  EXPECT_THAT(list_checkpoints(run.path()), ElementsAre(checkpoint_folder(run.path(), 8)));
  EXPECT_EQ(problem_of(moved), "");
}

// Until the run that goes on from an older one has another.
TEST(CheckpointFilesTest, SetsAsideThoseOfLaterSteps) {
  const ScratchFolder run;
  for (const int step : {4, 8, 12}) write_example(run.path(), example(step));

  set_aside_later(run.path(), 8);
  EXPECT_THAT(list_checkpoints(run.path()),
              ElementsAre(checkpoint_folder(run.path(), 8), checkpoint_folder(run.path(), 4)));
  EXPECT_TRUE(fs::exists(checkpoint_folder(run.path(), 12).concat(".left")));

  prune_checkpoints(run.path(), 1, false);
  EXPECT_THAT(list_checkpoints(run.path()), ElementsAre(checkpoint_folder(run.path(), 8)));
  EXPECT_FALSE(fs::exists(checkpoint_folder(run.path(), 12).concat(".left")));
}

}  // namespace
}  // namespace rondo::train::checkpoint_files_test
