#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::train {

// "FILE: problem; remedy", as a DataError.
[[noreturn]] void fail_on_file(const std::filesystem::path& file, std::string_view problem,
                               std::string_view remedy);

// What the system calls an error of errno.
[[nodiscard]] std::string error_text(int error);

// Reads a file from front to back, decompressing it when it begins like a gzip file.
class DataFile {
 public:
  // `remedy` ends the message of every DataError about this file.
  DataFile(std::filesystem::path path, std::string remedy);
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;
  ~DataFile();

  // The next bytes; fewer than asked for only at the end of the file.
  std::size_t read(std::span<std::uint8_t> bytes);

  // The next `count` bytes; fails when the file ends before. Memory grows with what is really
  // there, so that a wrong `count` cannot ask for all of it.
  std::vector<std::uint8_t> take(std::size_t count, std::string_view what);

  // Fails when something is left.
  void expect_end();

  [[noreturn]] void fail(std::string_view problem) const;

 private:
  struct Stream;

  std::size_t read_raw(std::span<std::uint8_t> bytes);
  std::size_t read_compressed(std::span<std::uint8_t> bytes);

  std::filesystem::path path_;
  std::string remedy_;
  std::unique_ptr<Stream> stream_;
  std::uint64_t offset_ = 0;  // bytes given out so far
};

}  // namespace rondo::train
