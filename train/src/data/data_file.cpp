#include "data/data_file.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include <fmt/format.h>

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
  if (pending.size() < 2 || pending[0] != 0x1f || pending[1] != 0x8b) return;
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

}  // namespace rondo::train
