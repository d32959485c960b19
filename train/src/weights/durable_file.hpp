#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

namespace rondo::train {

/// Which file of the machine it is, under whatever name: device and inode.
using FileIdentity = std::pair<dev_t, ino_t>;

/// Nothing where there is no such file, or it cannot be examined.
[[nodiscard]] std::optional<FileIdentity> identity_of(const std::filesystem::path& path) noexcept;

/// A file that is written and, after sync(), on the disk. A failure throws DataError, which names
/// the file and the reason, and ends with `remedy`. Closed at the end.
class DurableFile {
 public:
  /// An empty file; one that there was is overwritten, but not one that somebody else is writing
  /// in this way. `remedy` is lent.
  DurableFile(std::filesystem::path path, const char* remedy);
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;
  ~DurableFile();

  void write(std::span<const std::byte> bytes);
  /// Waits until the disk has all that was written.
  void sync();

 private:
  [[noreturn]] void fail(const char* problem) const;

  std::filesystem::path path_;
  const char* remedy_;
  int descriptor_;
};

/// Waits until the disk has what was written to `file`, by whomever. Throws DataError, as above.
void sync_file(const std::filesystem::path& file, const char* remedy);

/// Waits until the disk has the names of all files in `folder`, where its file system can say so.
/// Throws DataError, as above.
void sync_folder(const std::filesystem::path& folder, const char* remedy);

}  // namespace rondo::train
