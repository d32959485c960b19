#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include <rondo/train/export.hpp>

namespace rondo::train {

/// Why no file can be written to `path`, and what to do: it is a folder, a device or another
/// thing that is no regular file, or its folder is not there. Empty where nothing is known that
/// speaks against it. Symbolic links are followed.
[[nodiscard]] RONDO_TRAIN_API std::string problem_of_output(const std::filesystem::path& path);

/// A file that takes its place as a whole: whoever reads `path` at the same time, or after a crash
/// of the program or of the machine, finds the file that there was before or the whole new one.
/// Until finish() it lies in the same folder, with `.part` behind its name. A symbolic link stays,
/// and the file that it names is replaced. A failure throws DataError, which names the file and the
/// reason, and ends with `remedy`.
class RONDO_TRAIN_API OutputFile {
 public:
  /// Throws DataError, too, where problem_of_output() has something to say.
  OutputFile(const std::filesystem::path& path, std::string remedy);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  /// Without finish(), nothing is left of what was written.
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  /// Syncs the file, and puts it in its place.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo::train
