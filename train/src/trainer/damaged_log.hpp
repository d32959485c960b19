#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace rondo::train {

/// A file of lines. A file that cannot be read is an error, and not empty: the run would be taken
/// for one that has not begun.
class LineReader {
 public:
  /// Throws DataError, as next(), but not where there is no such file: it has no lines.
  explicit LineReader(std::filesystem::path file);

  /// With the end of the line, which a line that was cut has not; false behind the last one.
  bool next(std::string& line);

 private:
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  std::ifstream stream_;
};

/// All lines of a file; nothing where there is no such file. Throws DataError, as LineReader.
[[nodiscard]] std::string contents_of(const std::filesystem::path& file);

/// How metrics.jsonl was when a checkpoint was made.
struct LogPart {
  std::uint64_t bytes = 0;    ///< how long it was
  std::string checksum = {};  ///< of these bytes; empty in checkpoints of older programs
  std::int64_t step = 0;      ///< of the checkpoint
};

/// Checksum of the first so many bytes of a file, or of all that it has.
[[nodiscard]] std::string checksum_of_beginning(const std::filesystem::path& file,
                                                std::uint64_t bytes);

/// Whether the file begins as it was; where the checkpoint has no checksum, with whole events
/// alone.
[[nodiscard]] bool is_whole(const std::filesystem::path& log, const LogPart& part);

/// A damaged log, taken apart.
struct SortedLog {
  std::string events = {};   ///< lines that can be read, of steps up to the checkpoint's
  std::string damaged = {};  ///< lines that cannot
  std::vector<std::size_t> damaged_lines = {};  ///< which they are, from 1
};
[[nodiscard]] SortedLog sort_lines(const std::filesystem::path& log, const LogPart& part);

/// "line 3", or "lines 3, 5 and 2 more".
[[nodiscard]] std::string text_of_lines(const std::vector<std::size_t>& lines);

}  // namespace rondo::train
