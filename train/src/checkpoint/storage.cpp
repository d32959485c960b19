// Checkpoints on disk.
//
// A checkpoint is written in a folder of another name, step-N.unfinished. Every file is synced; the
// manifest is the last of them; then the folder gets its name, and the folder above it is synced.
// Whenever a run is killed, a folder step-N is therefore a whole checkpoint. One that is removed
// loses its manifest first, so that what is left of it is never taken for a checkpoint.
//
// Rank 0 alone lists, completes and removes checkpoints. All ranks write their parts into the same
// folder, and read them from there, so it lies on a file system that all nodes share.

#include "checkpoint/storage.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include <rondo/train/dataset.hpp>

#include "data/dataset_type.hpp"
#include "weights/checksum.hpp"
#include "weights/durable_file.hpp"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* manifest_name = "manifest.json";
constexpr std::string_view prefix = "step-";
constexpr const char* suffix = ".unfinished";
constexpr const char* aside_suffix = ".left";
constexpr std::size_t piece_bytes = std::size_t{64} << 20U;
constexpr const char* write_remedy =
    "give the run a folder that all ranks can write to, with enough space";
constexpr const char* read_remedy = "use another checkpoint, or begin anew";

// The step of a folder's name; none of any other name.
std::optional<std::int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(prefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [last, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc{} || last != end || step < 0) return std::nullopt;
  return step;
}

// The paths of a folder's files and folders, as far as they can be read.
std::vector<fs::path> paths_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    paths.push_back(entry->path());
  }
  return paths;
}

// A checkpoint's name with this behind it.
bool has_suffix(const fs::path& path, const char* ending) {
  return path.extension() == ending && step_of(path.stem());
}

bool is_unfinished(const fs::path& path) { return has_suffix(path, suffix); }

void remove_checkpoint(const fs::path& folder) noexcept {
  std::error_code ignored;  // what cannot be removed takes room, and does no harm
  // The target of a link lies outside of the run, and stays.
  if (fs::is_symlink(folder, ignored)) {
    fs::remove(folder, ignored);
    return;
  }
  // First, so that a checkpoint that is half removed is not taken for a whole one.
  fs::remove(folder / manifest_name, ignored);
  fs::remove_all(folder, ignored);
}

// Below any accuracy for one that was not evaluated, or cannot be read.
double accuracy_of(const fs::path& folder) {
  try {
    return read_manifest(folder).accuracy.value_or(-1.0);
  } catch (const DataError&) {
    return -1.0;
  }
}

}  // namespace

fs::path checkpoints_in(const fs::path& run_folder) { return run_folder / "checkpoints"; }

fs::path checkpoint_folder(const fs::path& run_folder, std::int64_t step) {
  return checkpoints_in(run_folder) / fmt::format("{}{}", prefix, step);
}

fs::path unfinished_folder(const fs::path& run_folder, std::int64_t step) {
  return checkpoint_folder(run_folder, step).concat(suffix);
}

void make_unfinished_folder(const fs::path& run_folder, std::int64_t step) {
  for (const fs::path& folder : {checkpoints_in(run_folder), unfinished_folder(run_folder, step)}) {
    std::error_code error;
    fs::create_directory(folder, error);
    if (error) {
      fail_on_file(folder, fmt::format("cannot be made ({})", error.message()), write_remedy);
    }
  }
}

// In pieces, each of which is synced: so the file grows as fast as the disk takes it, ranks that
// wait for this one see that it goes on, and a stop takes no longer than a piece.
void write_durably(const fs::path& file, std::span<const std::byte> bytes,
                   const std::stop_token& stop) {
  DurableFile output(file, write_remedy);
  do {
    const std::span<const std::byte> piece = bytes.first(std::min(bytes.size(), piece_bytes));
    output.write(piece);
    output.sync();
    bytes = bytes.subspan(piece.size());
  } while (!bytes.empty() && !stop.stop_requested());
}

// A file that vanishes while it is looked at has changed, too.
std::string state_of_checkpoints(const fs::path& run_folder) {
  std::vector<fs::path> paths = paths_in(checkpoints_in(run_folder));
  for (std::size_t i = 0, folders = paths.size(); i < folders; ++i) {
    if (!is_unfinished(paths[i])) continue;
    const std::vector<fs::path> files = paths_in(paths[i]);
    paths.insert(paths.end(), files.begin(), files.end());
  }
  std::ranges::sort(paths);
  std::string state;
  for (const fs::path& path : paths) {
    std::error_code ignored;
    const auto bytes = fs::is_regular_file(path, ignored) ? fs::file_size(path, ignored) : 0;
    const auto time = fs::last_write_time(path, ignored).time_since_epoch().count();
    state += fmt::format("{} {} {}\n", path.string(), bytes, time);
  }
  return state;
}

void sync_logs(std::span<const fs::path> logs) {
  for (const fs::path& log : logs) {
    std::error_code ignored;
    if (&log == &logs.front() || fs::exists(log, ignored)) sync_file(log, write_remedy);
  }
}

namespace {

// There may be one of that name: a run that was resumed at its end saves its last step again, and
// one that could not be used was left behind. Both exchange their names at once, so that a whole
// checkpoint has the name at any time; but not every file system can do that.
void give_name(const fs::path& unfinished, const fs::path& finished) {
  if (::renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, finished.c_str(), RENAME_EXCHANGE) == 0) {
    sync_folder(finished.parent_path(), write_remedy);
    remove_checkpoint(unfinished);
    return;
  }
  remove_checkpoint(finished);
  std::error_code error;
  fs::rename(unfinished, finished, error);
  if (error) {
    fail_on_file(unfinished, fmt::format("cannot be renamed ({})", error.message()), write_remedy);
  }
}

}  // namespace

void complete_checkpoint(const fs::path& run_folder, const Manifest& manifest) {
  const fs::path unfinished = unfinished_folder(run_folder, manifest.step);
  const fs::path finished = checkpoint_folder(run_folder, manifest.step);
  const std::string text = to_json(manifest);
  write_durably(unfinished / manifest_name, std::as_bytes(std::span(text)));
  sync_folder(unfinished, write_remedy);
  give_name(unfinished, finished);
  sync_folder(checkpoints_in(run_folder), write_remedy);
  sync_folder(run_folder, write_remedy);  // it may have the folder of checkpoints since now
}

std::vector<fs::path> list_checkpoints(const fs::path& run_folder) {
  std::vector<fs::path> folders = paths_in(checkpoints_in(run_folder));
  std::erase_if(folders, [](const fs::path& path) { return !step_of(path); });
  std::ranges::sort(folders, std::greater<>(), [](const fs::path& path) { return *step_of(path); });
  return folders;
}

bool has_checkpoint(const fs::path& run_folder) { return !list_checkpoints(run_folder).empty(); }

void remove_unfinished(const fs::path& run_folder) {
  for (const fs::path& path : paths_in(checkpoints_in(run_folder))) {
    if (is_unfinished(path)) remove_checkpoint(path);
  }
}

void set_aside_later(const fs::path& run_folder, std::int64_t last) {
  bool renamed = false;
  for (const fs::path& folder : list_checkpoints(run_folder)) {
    if (*step_of(folder) <= last) continue;
    const fs::path aside = fs::path(folder).concat(aside_suffix);
    remove_checkpoint(aside);  // of an earlier time
    std::error_code error;
    fs::rename(folder, aside, error);
    if (error) {
      fail_on_file(folder, fmt::format("cannot be renamed ({})", error.message()), write_remedy);
    }
    renamed = true;
  }
  // Before metrics.jsonl is cut: what these say of it will not hold.
  if (renamed) sync_folder(checkpoints_in(run_folder), write_remedy);
}

// The newest of several that are equally good: the list begins with it.
fs::path best_of(const std::vector<fs::path>& checkpoints) {
  fs::path best;
  double highest = -1.0;
  for (const fs::path& checkpoint : checkpoints) {
    const double accuracy = accuracy_of(checkpoint);
    if (accuracy > highest) best = checkpoint;
    highest = std::max(highest, accuracy);
  }
  return best;
}

void prune_checkpoints(const fs::path& run_folder, std::int64_t keep, bool best) {
  // They were left when the run was resumed at an earlier step. Now there is a newer one.
  for (const fs::path& path : paths_in(checkpoints_in(run_folder))) {
    if (has_suffix(path, aside_suffix)) remove_checkpoint(path);
  }
  const std::vector<fs::path> folders = list_checkpoints(run_folder);
  const fs::path best_one = best ? best_of(folders) : fs::path();
  // The newest `keep` stay, and the best one besides.
  for (std::size_t i = static_cast<std::size_t>(keep); i < folders.size(); ++i) {
    if (folders[i] != best_one) remove_checkpoint(folders[i]);
  }
}

namespace {

// `path` is a folder that users have named. Empty where a checkpoint may have been there.
std::string why_no_checkpoint(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return "there is no such folder";
  if (!fs::is_directory(path, ignored)) return "is a file, and a checkpoint is a folder";
  if (path.filename() == checkpoints_in({})) return "is the folder of a run's checkpoints";
  if (!list_checkpoints(path).empty()) return "is the folder of a run, and no checkpoint";
  const bool is_run = fs::exists(path / "config.toml", ignored);
  return is_run ? "the run has no checkpoints" : "";
}

}  // namespace

Manifest read_manifest(const fs::path& checkpoint) {
  const std::string text = read_manifest_text(checkpoint);
  try {
    return parse_manifest(text);
  } catch (const std::invalid_argument& error) {
    // A damaged manifest is a matter of the disk, not of the caller's arguments.
    fail_on_file(checkpoint, error.what(), read_remedy);
  }
}

std::string read_manifest_text(const fs::path& checkpoint) {
  const fs::path path = checkpoint / manifest_name;
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream.is_open()) {
    const int failure = errno;
    const std::string why = why_no_checkpoint(checkpoint);
    if (why.empty() && failure == ENOENT) fail_on_file(path, "is missing", read_remedy);
    if (why.empty()) {
      const std::string reason = std::generic_category().message(failure);
      fail_on_file(path, fmt::format("cannot be read ({})", reason), read_remedy);
    }
    fail_on_file(checkpoint, why,
                 "give the folder of a run that has checkpoints, or RUN/checkpoints/step-N");
  }
  std::ostringstream text;
  text << stream.rdbuf();  // throws nothing, as iterators would
  if (text.bad()) fail_on_file(path, "cannot be read", read_remedy);
  return text.str();
}

std::vector<std::byte> read_checked(const fs::path& checkpoint, const CheckpointFile& file) {
  const fs::path path = checkpoint / file.name;
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) fail_on_file(path, fmt::format("cannot be read ({})", error.message()), read_remedy);
  // The size first: a truncated file is named as such, and no memory is taken for one that has
  // grown.
  if (size != file.bytes) {
    fail_on_file(path, fmt::format("has {} bytes, and not {}", size, file.bytes), read_remedy);
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  std::ifstream stream(path, std::ios::binary);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!stream || checksum_of(bytes) != file.checksum) {
    fail_on_file(path, "does not fit its checksum", read_remedy);
  }
  return bytes;
}

}  // namespace rondo::train
