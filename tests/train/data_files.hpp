#pragma once

// Tiny data files in the formats that Rondo reads.

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/scratch_folder.hpp"

namespace rondo::test {

using Bytes = std::vector<std::uint8_t>;

inline void append_word(Bytes& bytes, std::uint32_t word) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<std::uint8_t>(word >> shift));
  }
}

// `count` images of height x width; pixel i of the file is i modulo 256.
inline Bytes idx_images(std::uint32_t count, std::uint32_t height, std::uint32_t width) {
  Bytes bytes;
  for (const std::uint32_t word : {0x803U, count, height, width}) append_word(bytes, word);
  for (std::uint32_t i = 0; i < count * height * width; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(i));
  }
  return bytes;
}

inline Bytes idx_labels(const Bytes& labels) {
  Bytes bytes;
  append_word(bytes, 0x801);
  append_word(bytes, static_cast<std::uint32_t>(labels.size()));
  bytes.insert(bytes.end(), labels.begin(), labels.end());
  return bytes;
}

// Three training images of 2x4 pixels, two test images.
inline void write_idx_files(const ScratchFolder& folder) {
  folder.write("train-images-idx3-ubyte", idx_images(3, 2, 4));
  folder.write("train-labels-idx1-ubyte", idx_labels({7, 0, 9}));
  folder.write("t10k-images-idx3-ubyte", idx_images(2, 2, 4));
  folder.write("t10k-labels-idx1-ubyte", idx_labels({1, 2}));
}

inline Bytes gzipped(const Bytes& bytes) {
  z_stream stream = {};
  constexpr int gzip_window = 15 + 16;
  deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, gzip_window, 8, Z_DEFAULT_STRATEGY);
  Bytes input = bytes;
  Bytes output(deflateBound(&stream, static_cast<uLong>(bytes.size())));
  stream.next_in = input.data();
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = output.data();
  stream.avail_out = static_cast<uInt>(output.size());
  deflate(&stream, Z_FINISH);
  output.resize(stream.total_out);
  deflateEnd(&stream);
  return output;
}

// Records whose red plane holds `label`, whose green plane holds 100 and whose blue plane counts.
inline Bytes cifar_records(const Bytes& labels) {
  constexpr std::size_t plane = 1024;
  Bytes bytes;
  for (const std::uint8_t label : labels) {
    bytes.push_back(label);
    bytes.insert(bytes.end(), plane, label);
    bytes.insert(bytes.end(), plane, 100);
    for (std::size_t i = 0; i < plane; ++i) bytes.push_back(static_cast<std::uint8_t>(i));
  }
  return bytes;
}

// The same with a coarse label, `label` / 5, in front of each.
inline Bytes cifar100_records(const Bytes& labels) {
  Bytes bytes;
  for (const std::uint8_t label : labels) {
    const Bytes record = cifar_records({label});
    bytes.push_back(label / 5);
    bytes.insert(bytes.end(), record.begin(), record.end());
  }
  return bytes;
}

// Two images in each training file, one test image.
inline void write_cifar_files(const ScratchFolder& folder, const std::string& prefix = {}) {
  for (std::uint8_t i = 1; i <= 5; ++i) {
    folder.write(prefix + "data_batch_" + std::to_string(i) + ".bin", cifar_records({i, 0}));
  }
  folder.write(prefix + "test_batch.bin", cifar_records({9}));
}

}  // namespace rondo::test
