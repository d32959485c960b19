// The list of data sets, and what all of them share: files that may be gzipped, read as a stream
// with checks of their length; the mean and standard deviation of images.
//
// Data files come from the network and from other programs. So a length that a header announces is
// not believed: memory is taken as bytes arrive, and a file that is too short or too long is an
// error that names the file, the byte and the remedy.

#include "data/dataset_type.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <zlib.h>

#include <rondo/train/dataset.hpp>

namespace rondo::train {
namespace {

constexpr std::size_t input_bytes = std::size_t{256} * 1024;
constexpr std::size_t growth_bytes = std::size_t{4} * 1024 * 1024;

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

}  // namespace

std::string error_text(int error) { return std::generic_category().message(error); }

void fail_on_file(const std::filesystem::path& file, std::string_view problem,
                  std::string_view remedy) {
  throw DataError(fmt::format("{}: {}; {}", file.string(), problem, remedy));
}

struct DataFile::Stream {
  std::unique_ptr<std::FILE, CloseFile> file;
  std::vector<std::uint8_t> input = std::vector<std::uint8_t>(input_bytes);
  std::span<std::uint8_t> pending;  // read from the file, not yet given out
  z_stream inflater = {};
  bool compressed = false;
  bool finished = false;  // the end of the compressed stream was seen

  ~Stream() {
    if (compressed) inflateEnd(&inflater);
  }
};

DataFile::DataFile(std::filesystem::path path, std::string remedy)
    : path_(std::move(path)), remedy_(std::move(remedy)), stream_(std::make_unique<Stream>()) {
  stream_->file.reset(std::fopen(path_.c_str(), "rb"));
  if (!stream_->file) fail(fmt::format("cannot be opened ({})", error_text(errno)));
  stream_->pending = std::span(stream_->input).first(read_raw(stream_->input));
  const std::span<std::uint8_t> pending = stream_->pending;
  // gzip is recognised by its first two bytes, not by the name of the file.
  if (pending.size() < 2 || pending[0] != 0x1f || pending[1] != 0x8b) return;
  // For zlib: the largest window, and a gzip header.
  constexpr int gzip_window = 15 + 16;
  if (inflateInit2(&stream_->inflater, gzip_window) != Z_OK) fail("zlib cannot be started");
  stream_->compressed = true;
}

DataFile::~DataFile() = default;

void DataFile::fail(std::string_view problem) const { fail_on_file(path_, problem, remedy_); }

std::size_t DataFile::read_raw(std::span<std::uint8_t> bytes) {
  errno = 0;
  const std::size_t count = std::fread(bytes.data(), 1, bytes.size(), stream_->file.get());
  if (std::ferror(stream_->file.get()) != 0) {
    fail(fmt::format("cannot be read ({})", error_text(errno)));
  }
  return count;
}

std::size_t DataFile::read_compressed(std::span<std::uint8_t> bytes) {
  z_stream& inflater = stream_->inflater;
  inflater.next_out = bytes.data();
  inflater.avail_out = static_cast<uInt>(bytes.size());
  // Input is read when all of the last piece is used up; a file that ends before its stream does is
  // truncated.
  while (inflater.avail_out > 0 && !stream_->finished) {
    if (stream_->pending.empty()) {
      stream_->pending = std::span(stream_->input).first(read_raw(stream_->input));
    }
    if (stream_->pending.empty()) {
      fail(fmt::format("is truncated: the gzip stream ends after {} bytes of content",
                       offset_ + bytes.size() - inflater.avail_out));
    }
    inflater.next_in = stream_->pending.data();
    inflater.avail_in = static_cast<uInt>(stream_->pending.size());
    const int status = inflate(&inflater, Z_NO_FLUSH);
    stream_->pending = stream_->pending.last(inflater.avail_in);
    stream_->finished = status == Z_STREAM_END;
    if (status != Z_OK && status != Z_STREAM_END) {
      fail(fmt::format("is damaged: the gzip stream breaks after {} bytes of content",
                       offset_ + bytes.size() - inflater.avail_out));
    }
  }
  return bytes.size() - inflater.avail_out;
}

std::size_t DataFile::read(std::span<std::uint8_t> bytes) {
  std::size_t count = 0;
  if (stream_->compressed) {
    count = read_compressed(bytes);
  } else {
    count = std::min(bytes.size(), stream_->pending.size());
    std::copy_n(stream_->pending.begin(), count, bytes.begin());
    stream_->pending = stream_->pending.subspan(count);
    if (count < bytes.size()) count += read_raw(bytes.subspan(count));
  }
  offset_ += count;
  return count;
}

std::vector<std::uint8_t> DataFile::take(std::size_t count, std::string_view what) {
  std::vector<std::uint8_t> bytes;
  while (bytes.size() < count) {
    const std::size_t done = bytes.size();
    // In pieces, because `count` comes from the file: a forged header must not take gigabytes.
    const std::size_t piece = std::min(count - done, growth_bytes);
    bytes.resize(done + piece);
    const std::size_t got = read(std::span(bytes).last(piece));
    if (got == piece) continue;
    fail(fmt::format("is truncated: {} end at byte {}, {} bytes too early", what, offset_,
                     count - done - got));
  }
  return bytes;
}

void DataFile::expect_end() {
  const std::uint64_t end = offset_;
  std::array<std::uint8_t, 1> next = {};
  // Behind the end of a gzip stream there may be raw bytes left, too.
  if (read(next) > 0 || !stream_->pending.empty() || read_raw(next) > 0) {
    fail(fmt::format("has unexpected bytes behind byte {}, where its content should end", end));
  }
}

namespace {

// The one list of data sets.
constexpr std::array types = {&fashion_mnist, &cifar10, &cifar100, &image_folder, &synthetic};

struct Sums {
  std::uint64_t values = 0;
  std::uint64_t squares = 0;
};

Sums sum_channel(const std::vector<std::uint8_t>& pixels, std::size_t channel,
                 std::size_t channels) {
  Sums sums;
  for (std::size_t i = channel; i < pixels.size(); i += channels) {
    // Sums of integers are exact, so the order does not matter, and all ranks and machines have the
    // same mean.
    const std::uint64_t value = pixels[i];
    sums.values += value;
    sums.squares += value * value;
  }
  return sums;
}

const DatasetType& dataset_type(std::string_view name) {
  for (const DatasetType* type : types) {
    if (type->name == name) return *type;
  }
  throw ConfigError("data.name: no data set '" + std::string(name) +
                    "'; one that a program brought is known to that program alone");
}

// Values of the configuration replace those of the data set.
void replace_normalisation(std::vector<float>& values, const std::vector<double>& given,
                           const char* key) {
  if (given.empty()) return;
  if (given.size() != values.size()) {
    throw ConfigError(fmt::format("{}: has {} numbers, and the images have {} channels", key,
                                  given.size(), values.size()));
  }
  std::ranges::transform(given, values.begin(), [](double x) { return static_cast<float>(x); });
}

}  // namespace

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const DatasetType* type : types) names.emplace_back(type->name);
  return names;
}

DatasetShape dataset_shape(const Experiment::Data& data) {
  return dataset_type(data.name).shape(data);
}

namespace {

// An error then names the folder wherever the run was started: config.toml of a run has the path
// as it was given.
Experiment::Data with_absolute_path(Experiment::Data data) {
  if (!data.path.empty()) data.path = std::filesystem::absolute(data.path).string();
  return data;
}

}  // namespace

Dataset load_dataset(const Experiment::Data& data, const tensor::Shape& model_input,
                     std::int64_t model_classes) {
  const DatasetType& type = dataset_type(data.name);
  DatasetShape shape = type.shape(data);
  // Synthetic images and folders have any size: that of the model, if the configuration says
  // nothing.
  if (shape.image == tensor::Shape{}) shape.image = model_input;
  if (shape.classes == 0) shape.classes = model_classes;
  Dataset dataset = type.load(with_absolute_path(data), shape);
  replace_normalisation(dataset.mean, data.mean, "data.mean");
  replace_normalisation(dataset.stddev, data.stddev, "data.stddev");
  return dataset;
}

void measure_normalisation(Dataset& dataset) {
  const auto channels = static_cast<std::size_t>(dataset.training.shape.c);
  const std::vector<std::uint8_t>& pixels = dataset.training.pixels;
  dataset.mean.assign(channels, 0.0F);
  dataset.stddev.assign(channels, 1.0F);
  const double count = std::max(1.0, static_cast<double>(pixels.size() / channels));
  for (std::size_t c = 0; c < channels; ++c) {
    const Sums sums = sum_channel(pixels, c, channels);
    const double mean = static_cast<double>(sums.values) / count;
    const double variance = static_cast<double>(sums.squares) / count - mean * mean;
    dataset.mean[c] = static_cast<float>(mean / 255.0);
    // A channel that is constant keeps 1: division by its deviation would give NaN.
    if (variance > 1e-6) dataset.stddev[c] = static_cast<float>(std::sqrt(variance) / 255.0);
  }
}

}  // namespace rondo::train
