#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace rondo::train {

// The checkpoints of a run as folders, RUN/checkpoints/step-N, each with a manifest.json and the
// files that it names.

[[nodiscard]] std::filesystem::path checkpoints_in(const std::filesystem::path& run_folder);
[[nodiscard]] std::filesystem::path checkpoint_folder(const std::filesystem::path& run_folder,
                                                      std::int64_t step);
// Where its files are until it is complete.
[[nodiscard]] std::filesystem::path unfinished_folder(const std::filesystem::path& run_folder,
                                                      std::int64_t step);

// Makes it, and the folder of checkpoints, but not the run's, which somebody may have moved. Throws
// DataError.
void make_unfinished_folder(const std::filesystem::path& run_folder, std::int64_t step);

// Writes a file and waits until the disk has it; only a part of it where a stop is requested
// meanwhile. Throws DataError.
void write_durably(const std::filesystem::path& file, std::span<const std::byte> bytes,
                   const std::stop_token& stop = {});

// The facts about a run's checkpoints that change while a rank writes, completes or removes one:
// their names and times, and names, lengths and times of the files of unfinished ones. Throws
// nothing for what cannot be read.
[[nodiscard]] std::string state_of_checkpoints(const std::filesystem::path& run_folder);

// Waits until the disk has the logs of a run, whose lengths a manifest will say. The first must be
// there; another one is left out where it is not. Throws DataError.
void sync_logs(std::span<const std::filesystem::path> logs);

// Writes the manifest behind all files of the unfinished checkpoint, and gives it its name. Throws
// DataError.
void complete_checkpoint(const std::filesystem::path& run_folder, const Manifest& manifest);

// The checkpoints of a run, the newest first, whether they can be used or not.
[[nodiscard]] std::vector<std::filesystem::path> list_checkpoints(
    const std::filesystem::path& run_folder);

// Removes what has been left unfinished, by a killed run or by a failure of this one.
void remove_unfinished(const std::filesystem::path& run_folder);

// Renames checkpoints of steps after `last`: the run goes on from there, and what they say will not
// hold. They stay until it has another checkpoint.
void set_aside_later(const std::filesystem::path& run_folder, std::int64_t last);

// Keeps the `keep` newest checkpoints and, if `best` says so, the one with the highest accuracy.
// Removes what set_aside_later() has renamed.
void prune_checkpoints(const std::filesystem::path& run_folder, std::int64_t keep, bool best);

// The one of these, the newest first, with the highest accuracy; empty where none was evaluated.
[[nodiscard]] std::filesystem::path best_of(const std::vector<std::filesystem::path>& checkpoints);

// The manifest of a checkpoint. Throws DataError that names the file when it cannot be used.
[[nodiscard]] Manifest read_manifest(const std::filesystem::path& checkpoint);

// The manifest of a checkpoint as text. Throws DataError when it cannot be read.
[[nodiscard]] std::string read_manifest_text(const std::filesystem::path& checkpoint);

// The bytes of a file of a checkpoint. Throws DataError when it is missing, has another length, or
// does not fit its checksum.
[[nodiscard]] std::vector<std::byte> read_checked(const std::filesystem::path& checkpoint,
                                                  const CheckpointFile& file);

}  // namespace rondo::train
