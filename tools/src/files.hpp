#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

namespace rondo::tools {

/// An open file descriptor, closed at the end.
class Descriptor {
 public:
  Descriptor() noexcept = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  /// -1 when there is none.
  [[nodiscard]] int value() const noexcept { return fd_; }
  /// Leaves it open, for somebody else to close.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  void close() noexcept {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

/// False when the path cannot be examined, too; opening or making it later reports the reason.
[[nodiscard]] bool is_there(const std::filesystem::path& path) noexcept;

/// Throws train::DataError with the reason in errno.
[[noreturn]] void fail_to_read(const std::filesystem::path& file);

/// The contents of a file; empty when there is none. Throws UsageError for a folder, and
/// train::DataError where the file cannot be read.
[[nodiscard]] std::string read_file(const std::filesystem::path& file);

/// For a file that the user names. Throws UsageError where it cannot be written: a folder, a device
/// or a file of a run is there, or its folder is not.
void expect_output(const std::filesystem::path& file);

/// Writes `text` to a new file and renames it to `file`: a reader sees the old contents or the
/// new. Throws UsageError where none can be written, and train::DataError, which ends with
/// `advice`, where writing fails.
void replace_file(const std::filesystem::path& file, const std::string& text,
                  const std::string& advice);

}  // namespace rondo::tools
