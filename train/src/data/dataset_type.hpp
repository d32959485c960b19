#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/train/dataset.hpp>

namespace rondo::train {

// One kind of data set: what data.name says, and how it is read. A new kind is one source file that
// defines one of these, and one line in dataset_type.cpp.
struct DatasetType {
  std::string_view name;
  // What is known of its images without reading a file. Throws ConfigError.
  DatasetShape (*shape)(const Experiment::Data& data);
  // `shape` is what shape() says, with the model's own numbers where it says none. Throws
  // DataError, or ConfigError when a key of [data] is missing or wrong.
  Dataset (*load)(const Experiment::Data& data, const DatasetShape& shape);
};

extern const DatasetType fashion_mnist;
extern const DatasetType cifar10;
extern const DatasetType cifar100;
extern const DatasetType image_folder;
extern const DatasetType synthetic;

// The values that data.name may have.
[[nodiscard]] std::vector<std::string> dataset_names();

// Sets mean and stddev to those of the training images. The sums are of integers, and so are
// exact: every rank finds the same bits. A channel without variation gets the deviation 1.
void measure_normalisation(Dataset& dataset);

// "FILE: problem; remedy", as a DataError.
[[noreturn]] void fail_on_file(const std::filesystem::path& file, std::string_view problem,
                               std::string_view remedy);

// A file that cannot be read here and now, whatever is in it: other hosts may read it.
class UnreadableFile : public DataError {
 public:
  using DataError::DataError;
};

// All bytes of an image file. Throws DataError; UnreadableFile where the reason is the host's.
[[nodiscard]] std::vector<std::uint8_t> read_file(const std::filesystem::path& file);

// The system's text for an error of errno.
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
