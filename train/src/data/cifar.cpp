// The binary versions of CIFAR-10 and CIFAR-100: records of one or two label bytes and three planes
// (red, green, blue). CIFAR-100 has a coarse label, of 20 classes, in front of the fine one, and
// one file of training images instead of five. The reader is one; a Format says what differs.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <rondo/train/dataset.hpp>

#include "data/dataset_type.hpp"

namespace rondo::train {
namespace {

constexpr std::size_t side = 32;
constexpr std::size_t cifar_colours = 3;
constexpr std::size_t plane_bytes = side * side;
constexpr std::size_t image_bytes = cifar_colours * plane_bytes;

// The differences between the two sets.
struct Format {
  const char* name;
  std::size_t label_bytes;  // of a record; the last one is the label
  std::int64_t classes;
  std::vector<std::string> training_files;
  const char* test_file;
  const char* subfolder;  // of the archive
  const char* remedy;

  [[nodiscard]] std::size_t record_bytes() const { return label_bytes + image_bytes; }
};

const Format& cifar10_format() {
  static const Format format{
      .name = "cifar10",
      .label_bytes = 1,
      .classes = 10,
      .training_files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                         "data_batch_4.bin", "data_batch_5.bin"},
      .test_file = "test_batch.bin",
      .subfolder = "cifar-10-batches-bin",
      .remedy =
          "set data.path to the folder with the binary version of CIFAR-10 "
          "(data_batch_1.bin to data_batch_5.bin and test_batch.bin), unpacked whole"};
  return format;
}

const Format& cifar100_format() {
  static const Format format{
      .name = "cifar100",
      .label_bytes = 2,
      .classes = 100,
      .training_files = {"train.bin"},
      .test_file = "test.bin",
      .subfolder = "cifar-100-binary",
      .remedy =
          "set data.path to the folder with the binary version of CIFAR-100 (train.bin and "
          "test.bin), unpacked whole"};
  return format;
}

// Three planes become pixels of three values.
void append_as_nhwc(std::span<const std::uint8_t> planes, std::vector<std::uint8_t>& pixels) {
  const std::size_t begin = pixels.size();
  pixels.resize(begin + planes.size());
  // The files have planes (chw), batches have pixels (hwc): the change of layout is made once, when
  // the file is read.
  for (std::size_t c = 0; c < cifar_colours; ++c) {
    const std::span<const std::uint8_t> plane = planes.subspan(c * plane_bytes, plane_bytes);
    std::uint8_t* out = pixels.data() + begin + c;
    for (std::size_t i = 0; i < plane_bytes; ++i) out[i * cifar_colours] = plane[i];
  }
}

// Appends the file's images; returns how many there are.
std::int64_t read_records(const Format& format, const std::filesystem::path& path, Images& images) {
  DataFile file(path, format.remedy);
  std::vector<std::uint8_t> record(format.record_bytes());
  std::int64_t count = 0;
  for (;; ++count) {
    const std::size_t got = file.read(record);
    if (got == 0) break;  // expect_end() below looks behind what gzip calls the end
    const std::int64_t offset = count * static_cast<std::int64_t>(record.size());
    if (got < record.size()) {
      file.fail(fmt::format("is truncated: record {} (at byte {}) has {} of {} bytes", count,
                            offset, got, record.size()));
    }
    const std::uint8_t label = record[format.label_bytes - 1];
    // A damaged file is more often noticed by a label than by anything else: pixels can have any
    // value.
    if (label >= format.classes) {
      file.fail(fmt::format("label {} of record {} (at byte {}) is out of range 0..{}", label,
                            count, offset, format.classes - 1));
    }
    images.labels.push_back(label);
    append_as_nhwc(std::span(record).subspan(format.label_bytes), images.pixels);
  }
  if (count == 0) file.fail("is empty");
  file.expect_end();
  images.shape = {images.shape.n + count, side, side, cifar_colours};
  return count;
}

std::filesystem::path find_folder(const Format& format, const std::filesystem::path& folder) {
  const std::string& first = format.training_files.front();
  std::error_code ignored;
  // The folder itself, or the one into which the archive is unpacked.
  for (const auto& candidate : {folder, folder / format.subfolder}) {
    if (std::filesystem::exists(candidate / first, ignored)) return candidate;
  }
  fail_on_file(folder,
               fmt::format("holds no {}, nor does its subfolder {}", first, format.subfolder),
               format.remedy);
}

Dataset read_cifar(const Format& format, const std::filesystem::path& path) {
  const std::filesystem::path folder = find_folder(format, path);
  const std::vector<std::string>& names = format.training_files;
  Dataset dataset;
  dataset.name = format.name;
  dataset.classes = format.classes;
  std::int64_t first_count = 0;
  for (const std::string& name : names) {
    const std::int64_t count = read_records(format, folder / name, dataset.training);
    // The first file tells how large all are together; an empty one has been refused.
    if (first_count == 0) {
      first_count = count;
      dataset.training.pixels.reserve(dataset.training.pixels.size() * names.size());
    }
    // All training files of the set are equally long: a shorter one was cut off at the end of a
    // record.
    if (count != first_count) {
      fail_on_file(
          folder / name,
          fmt::format("holds {} images, but {} holds {}", count, names.front(), first_count),
          format.remedy);
    }
  }
  read_records(format, folder / format.test_file, dataset.test);
  // From the training images alone, as usual: the test set is unknown in training.
  measure_normalisation(dataset);
  return dataset;
}

template <const Format& (*format)()>
DatasetShape cifar_shape(const Experiment::Data&) {
  return {.image = {1, side, side, cifar_colours}, .classes = format().classes};
}

template <const Format& (*format)()>
Dataset load_cifar(const Experiment::Data& data, const DatasetShape&) {
  if (data.path.empty()) {
    throw ConfigError(
        fmt::format("data.path: missing; set it to the folder with {} of the binary "
                    "version of {}, or to its parent",
                    format().training_files.front(), format().name));
  }
  return read_cifar(format(), data.path);
}

}  // namespace

const DatasetType cifar10 = {
    .name = "cifar10", .shape = cifar_shape<cifar10_format>, .load = load_cifar<cifar10_format>};
const DatasetType cifar100 = {
    .name = "cifar100", .shape = cifar_shape<cifar100_format>, .load = load_cifar<cifar100_format>};

}  // namespace rondo::train
