// Files that are written aside, synced, and renamed to their place.
//
// A device or a pipe has no contents to be replaced: renaming would put a regular file in the place
// of the node, so both are refused. A symbolic link would be replaced by the file as well; so links
// are followed first, and the new file is written beside the one that the last link names.

#include <rondo/train/output_file.hpp>

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include <rondo/train/dataset.hpp>

#include "data/dataset_type.hpp"
#include "weights/durable_file.hpp"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;

// The path that `path` leads to by all symbolic links at its end, whether that exists or not. Links
// that lead in a circle are left as they are: whoever opens them gets an error.
fs::path behind_links(fs::path path) {
  constexpr int most_links = 40;  // the kernel's own limit
  for (int link = 0; link < most_links; ++link) {
    std::error_code error;
    const fs::path target = fs::read_symlink(path, error);
    if (error) break;
    path = path.parent_path() / target;  // an absolute target stands alone
  }
  return path;
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

}  // namespace

// A path that cannot be looked at, as in an unreadable folder, is left to the attempt to write.
std::string problem_of_output(const fs::path& path) {
  const fs::path file = behind_links(path);
  std::error_code error;
  // The status is that of the path as given: /dev/stdout leads to no path where it is a pipe.
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) {
    return fmt::format("{}: is a folder; give the name of a file", path.string());
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    return fmt::format("{}: is a device, a pipe or a socket; give the name of a regular file",
                       path.string());
  }
  if (!fs::exists(folder_of(file), error) && !error) {
    return fmt::format(
        "{}: cannot be written, because there is no folder {}; make it, or choose another",
        path.string(), folder_of(file).string());
  }
  return {};
}

struct OutputFile::State {
  State(fs::path place, std::string advice)
      : file(std::move(place)),
        aside(file.string() + ".part"),
        remedy(std::move(advice)),
        stream(aside, remedy.c_str()) {}

  fs::path file;
  // The name is fixed, not random: what a program that was killed has left is overwritten the next
  // time.
  fs::path aside;
  std::string remedy;
  DurableFile stream;
  bool finished = false;
};

OutputFile::OutputFile(const fs::path& path, std::string remedy) {
  const std::string problem = problem_of_output(path);
  if (!problem.empty()) throw DataError(problem);
  state_ = std::make_unique<State>(behind_links(path), std::move(remedy));
}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (!state_->finished) fs::remove(state_->aside, ignored);
}

void OutputFile::write(std::span<const std::byte> bytes) { state_->stream.write(bytes); }

void OutputFile::finish() {
  state_->stream.sync();
  std::error_code error;
  fs::rename(state_->aside, state_->file, error);
  if (error) {
    fail_on_file(state_->file, fmt::format("cannot be renamed ({})", error.message()),
                 state_->remedy);
  }
  state_->finished = true;
  sync_folder(folder_of(state_->file), state_->remedy.c_str());
}

}  // namespace rondo::train
