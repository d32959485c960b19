// CIFAR-10's binary version: records of one label byte and three planes (red, green, blue).

#include <array>
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

constexpr std::int64_t cifar_classes = 10;
constexpr std::size_t side = 32;
constexpr std::size_t colours = 3;
constexpr std::size_t plane_bytes = side * side;
constexpr std::size_t record_bytes = 1 + colours * plane_bytes;
constexpr int training_files = 5;

constexpr const char* cifar10_remedy =
    "set data.path to the folder with the binary version of CIFAR-10 (data_batch_1.bin to "
    "data_batch_5.bin and test_batch.bin), unpacked whole";

void append_as_nhwc(std::span<const std::uint8_t> planes, std::vector<std::uint8_t>& pixels) {
  const std::size_t begin = pixels.size();
  pixels.resize(begin + planes.size());
  for (std::size_t c = 0; c < colours; ++c) {
    const std::span<const std::uint8_t> plane = planes.subspan(c * plane_bytes, plane_bytes);
    std::uint8_t* out = pixels.data() + begin + c;
    for (std::size_t i = 0; i < plane_bytes; ++i) out[i * colours] = plane[i];
  }
}

// Appends the file's images; returns how many there are.
std::int64_t read_records(const std::filesystem::path& path, Images& images) {
  DataFile file(path, cifar10_remedy);
  std::array<std::uint8_t, record_bytes> record = {};
  std::int64_t count = 0;
  for (;; ++count) {
    const std::size_t got = file.read(record);
    if (got == 0) break;
    const std::int64_t offset = count * static_cast<std::int64_t>(record_bytes);
    if (got < record_bytes) {
      file.fail(fmt::format("is truncated: record {} (at byte {}) has {} of {} bytes", count,
                            offset, got, record_bytes));
    }
    if (record[0] >= cifar_classes) {
      file.fail(fmt::format("label {} of record {} (at byte {}) is out of range 0..{}", record[0],
                            count, offset, cifar_classes - 1));
    }
    images.labels.push_back(record[0]);
    append_as_nhwc(std::span(record).subspan(1), images.pixels);
  }
  if (count == 0) file.fail("is empty");
  images.shape = {images.shape.n + count, side, side, colours};
  return count;
}

std::filesystem::path find_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& candidate : {folder, folder / "cifar-10-batches-bin"}) {
    if (std::filesystem::exists(candidate / "data_batch_1.bin", ignored)) return candidate;
  }
  fail_on_file(folder, "holds no data_batch_1.bin, nor does its subfolder cifar-10-batches-bin",
               cifar10_remedy);
}

}  // namespace

Dataset read_cifar10(const std::filesystem::path& path) {
  const std::filesystem::path folder = find_folder(path);
  Dataset dataset;
  dataset.name = "cifar10";
  dataset.classes = cifar_classes;
  std::int64_t first_count = 0;
  for (int i = 1; i <= training_files; ++i) {
    const std::filesystem::path file = folder / fmt::format("data_batch_{}.bin", i);
    const std::int64_t count = read_records(file, dataset.training);
    if (i == 1) {
      first_count = count;
      dataset.training.pixels.reserve(dataset.training.pixels.size() * training_files);
    }
    if (count != first_count) {
      fail_on_file(
          file, fmt::format("holds {} images, but data_batch_1.bin holds {}", count, first_count),
          cifar10_remedy);
    }
  }
  read_records(folder / "test_batch.bin", dataset.test);
  measure_normalisation(dataset);
  return dataset;
}

namespace {

DatasetShape cifar10_shape(const Experiment::Data&) {
  return {.image = {1, side, side, colours}, .classes = cifar_classes};
}

Dataset load_cifar10(const Experiment::Data& data, const DatasetShape&) {
  if (data.path.empty()) {
    throw ConfigError(
        "data.path: missing; set it to the folder with data_batch_1.bin of CIFAR-10's binary "
        "version, or to its parent");
  }
  return read_cifar10(data.path);
}

}  // namespace

const DatasetType cifar10 = {.name = "cifar10", .shape = cifar10_shape, .load = load_cifar10};

}  // namespace rondo::train
