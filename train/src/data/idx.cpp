// The idx format of MNIST: a big-endian magic number whose last byte is the number of dimensions,
// the extents, then bytes. Fashion-MNIST has the same format and names of files, and so either can
// lie in `data.path`.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <rondo/train/dataset.hpp>

#include "data/dataset_type.hpp"

namespace rondo::train {
namespace {

constexpr const char* default_folder = "/usr/share/datasets/fashion-mnist";
constexpr std::int64_t fashion_side = 28;
constexpr std::int64_t idx_classes = 10;
constexpr std::uint32_t images_magic = 0x00000803;
constexpr std::uint32_t labels_magic = 0x00000801;
constexpr std::uint32_t largest_image_extent = 4096;

constexpr const char* idx_remedy =
    "install Debian's package dataset-fashion-mnist, or set data.path to a folder with whole "
    "train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz], and t10k- likewise";

std::filesystem::path find_file(const std::filesystem::path& folder, const std::string& name) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    fail_on_file(folder, "no such folder", idx_remedy);
  }
  for (const std::string& candidate : {name, name + ".gz"}) {
    if (std::filesystem::exists(folder / candidate, ignored)) return folder / candidate;
  }
  fail_on_file(folder / name, "no such file, nor one with .gz", idx_remedy);
}

// Big-endian, whatever this machine is.
std::uint32_t read_word(DataFile& file) {
  const std::vector<std::uint8_t> bytes = file.take(4, "its idx header does");
  std::uint32_t word = 0;
  for (const std::uint8_t byte : bytes) word = word << 8 | byte;
  return word;
}

void expect_magic(DataFile& file, std::uint32_t expected) {
  const std::uint32_t magic = read_word(file);
  if (magic == expected) return;
  file.fail(fmt::format("begins with {:08x} instead of {:08x}", magic, expected));
}

Images read_images(const std::filesystem::path& path) {
  DataFile file(path, idx_remedy);
  expect_magic(file, images_magic);
  const std::uint32_t count = read_word(file);
  const std::uint32_t height = read_word(file);
  const std::uint32_t width = read_word(file);
  const auto usable = [](std::uint32_t extent) {
    return extent > 0 && extent <= largest_image_extent;
  };
  // A forged header must not announce a product that overflows.
  if (count == 0 || !usable(height) || !usable(width)) {
    file.fail(
        fmt::format("announces {} images of {}x{} pixels in its header", count, height, width));
  }
  Images images;
  images.shape = {count, height, width, 1};
  images.pixels = file.take(static_cast<std::size_t>(images.shape.size()), "the pixels");
  file.expect_end();
  return images;
}

std::vector<std::int32_t> read_labels(const std::filesystem::path& path) {
  DataFile file(path, idx_remedy);
  expect_magic(file, labels_magic);
  const std::uint32_t count = read_word(file);
  const std::vector<std::uint8_t> bytes = file.take(count, "the labels");
  file.expect_end();
  // The labels begin behind the header of 8 bytes, which the message counts in.
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] < idx_classes) continue;
    file.fail(fmt::format("label {} of record {} (byte {}) is out of range 0..{}", bytes[i], i,
                          i + 8, idx_classes - 1));
  }
  return {bytes.begin(), bytes.end()};
}

Images read_pair(const std::filesystem::path& folder, const std::string& prefix) {
  Images images = read_images(find_file(folder, prefix + "-images-idx3-ubyte"));
  const std::filesystem::path labels = find_file(folder, prefix + "-labels-idx1-ubyte");
  images.labels = read_labels(labels);
  if (images.labels.size() != static_cast<std::size_t>(images.shape.n)) {
    fail_on_file(labels,
                 fmt::format("holds {} labels for {} images", images.labels.size(), images.shape.n),
                 idx_remedy);
  }
  return images;
}

}  // namespace

Dataset read_idx(const std::filesystem::path& folder) {
  Dataset dataset;
  dataset.name = "fashion-mnist";
  dataset.classes = idx_classes;
  dataset.training = read_pair(folder, "train");
  dataset.test = read_pair(folder, "t10k");
  const tensor::Shape& shape = dataset.training.shape;
  if (dataset.test.shape.with_n(shape.n) != shape) {
    fail_on_file(folder,
                 fmt::format("training images are {}x{}, test images {}x{}", shape.h, shape.w,
                             dataset.test.shape.h, dataset.test.shape.w),
                 idx_remedy);
  }
  measure_normalisation(dataset);
  return dataset;
}

namespace {

DatasetShape fashion_mnist_shape(const Experiment::Data&) {
  return {.image = {1, fashion_side, fashion_side, 1}, .classes = idx_classes};
}

Dataset load_fashion_mnist(const Experiment::Data& data, const DatasetShape&) {
  return read_idx(data.path.empty() ? default_folder : data.path);
}

}  // namespace

const DatasetType fashion_mnist = {
    .name = "fashion-mnist", .shape = fashion_mnist_shape, .load = load_fashion_mnist};

}  // namespace rondo::train
