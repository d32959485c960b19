// Data files that are cut or changed anywhere: always a DataError or a data set, never a crash.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>

#include "support/scratch_folder.hpp"
#include "train/data_files.hpp"
#include "train/error_text.hpp"

namespace rondo::train::damaged_files_test {
namespace {

using rondo::test::Bytes;
using rondo::test::error_text;

constexpr std::array idx_names = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                  "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

Bytes idx_content(std::size_t file) {
  const std::array contents = {rondo::test::idx_images(3, 2, 4), rondo::test::idx_labels({7, 0, 9}),
                               rondo::test::idx_images(2, 2, 4), rondo::test::idx_labels({1, 2})};
  return contents.at(file);
}

// Pixels, labels and shapes agree.
void expect_sound(const Dataset& dataset) {
  for (const Images* images : {&dataset.training, &dataset.test}) {
    EXPECT_EQ(images->pixels.size(), static_cast<std::size_t>(images->shape.size()));
    EXPECT_EQ(images->labels.size(), static_cast<std::size_t>(images->shape.n));
    for (const std::int32_t label : images->labels) {
      EXPECT_GE(label, 0);
      EXPECT_LT(label, dataset.classes);
    }
  }
}

// Cuts `whole` at every length; every cut file must be refused by name.
void expect_every_cut_refused(const rondo::test::ScratchFolder& folder, const std::string& name,
                              const Bytes& whole) {
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto end = whole.begin() + static_cast<std::ptrdiff_t>(length);
    folder.write(name, Bytes(whole.begin(), end));
    const std::string text = error_text<DataError>([&] { return read_idx(folder.path()); });
    ASSERT_NE(text.find(name), std::string::npos) << length << " bytes: " << text;
  }
}

TEST(DamagedFilesTest, IdxFilesCutAnywhereAreRefused) {
  for (std::size_t file = 0; file < idx_names.size(); ++file) {
    const rondo::test::ScratchFolder folder;
    rondo::test::write_idx_files(folder);

    expect_every_cut_refused(folder, idx_names.at(file), idx_content(file));
  }
}

TEST(DamagedFilesTest, GzippedIdxFilesCutAnywhereAreRefused) {
  for (std::size_t file = 0; file < idx_names.size(); ++file) {
    const rondo::test::ScratchFolder folder;
    rondo::test::write_idx_files(folder);
    std::filesystem::remove(folder.path() / idx_names.at(file));

    expect_every_cut_refused(folder, std::string(idx_names.at(file)) + ".gz",
                             rondo::test::gzipped(idx_content(file)));
  }
}

// Any change of one byte gives an error, or images that hold together.
TEST(DamagedFilesTest, IdxFilesChangedAnywhereAreRefusedOrSound) {
  for (const bool zipped : {false, true}) {
    for (std::size_t file = 0; file < idx_names.size(); ++file) {
      const rondo::test::ScratchFolder folder;
      rondo::test::write_idx_files(folder);
      std::filesystem::remove(folder.path() / idx_names.at(file));
      const std::string name = std::string(idx_names.at(file)) + (zipped ? ".gz" : "");
      const Bytes whole = zipped ? rondo::test::gzipped(idx_content(file)) : idx_content(file);
      for (std::size_t place = 0; place < whole.size(); ++place) {
        Bytes changed = whole;
        changed[place] ^= 0x81;
        folder.write(name, changed);
        try {
          expect_sound(read_idx(folder.path()));
        } catch (const DataError&) {  // the other good answer
        }
      }
    }
  }
}

// A CIFAR file is six kilobytes: cut at both ends of each record, and at places drawn between.
TEST(DamagedFilesTest, CifarFilesCutAnywhereAreRefused) {
  const rondo::test::ScratchFolder folder;
  rondo::test::write_cifar_files(folder);
  const Bytes whole = rondo::test::cifar_records({3, 0});
  std::mt19937 random(1);

  std::vector<std::size_t> lengths = {0, 1, 2, 1024, 1025, 3072, 3073, 3074, 6145};
  for (int i = 0; i < 60; ++i) lengths.push_back(random() % whole.size());

  for (const std::size_t length : lengths) {
    const auto end = whole.begin() + static_cast<std::ptrdiff_t>(length);
    folder.write("data_batch_3.bin", Bytes(whole.begin(), end));
    const std::string text = error_text<DataError>([&] { return read_cifar10(folder.path()); });
    ASSERT_NE(text.find("data_batch_3.bin"), std::string::npos) << length << " bytes: " << text;
  }
}

TEST(DamagedFilesTest, RandomBytesAreNoImages) {
  const rondo::test::ScratchFolder folder;
  rondo::test::write_idx_files(folder);
  rondo::test::write_cifar_files(folder);
  std::mt19937 random(2);

  for (int round = 0; round < 50; ++round) {
    Bytes noise(random() % 5000);
    for (std::uint8_t& byte : noise) byte = static_cast<std::uint8_t>(random());
    folder.write("train-images-idx3-ubyte", noise);
    folder.write("test_batch.bin", noise);

    error_text<DataError>([&] { return read_idx(folder.path()); });
    error_text<DataError>([&] { return read_cifar10(folder.path()); });
  }
}

}  // namespace
}  // namespace rondo::train::damaged_files_test
