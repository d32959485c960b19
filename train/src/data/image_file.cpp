// Decodes JPEG, PNG and PPM. A file's header is read first: it says how large the image is, and so
// which part of it is wanted and, for JPEG, at which scale the inverse cosine transform may give it
// at once: at 1/2, 1/4 or 1/8 it computes and stores so much less. The parts of a JPEG above,
// beside and below the wanted one are not transformed to pixels, as far as the library can leave
// them out. resample() brings the rest to the wanted size.
//
// Files may come from anywhere. So the number of pixels is checked before memory for them is taken,
// the scans of a progressive JPEG are counted (each is a pass over the whole image), and an image
// that ends early is an error, not an image with a grey rest.

#include <rondo/train/image.hpp>

// jpeglib.h wants size_t and FILE declared before it.
#include <cstdio>

#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <rondo/train/dataset.hpp>

#include "data/dataset_type.hpp"
#include "data/resample.hpp"

// Where libjpeg-turbo can leave out pixels; before 2.1 it did so with errors.
#if defined(LIBJPEG_TURBO_VERSION_NUMBER) && LIBJPEG_TURBO_VERSION_NUMBER >= 2001000
#define RONDO_TRAIN_CAN_SKIP
#endif

namespace rondo::train {
namespace {

constexpr std::int64_t most_pixels = 64'000'000;
constexpr std::int64_t colours = 3;
constexpr int most_scans = 200;  // usual are up to 20
constexpr std::uintmax_t most_bytes = std::uintmax_t{256} << 20U;
// Ends every message about an image. A caller that can leave images out adds that to it.
constexpr std::string_view broken_remedy = "replace or remove the file";

[[noreturn]] void fail(const std::string& name, std::string_view problem) {
  fail_on_file(name, problem, broken_remedy);
}

// `most_per_byte` is how many pixels one byte of the format can stand for.
void check_size(const std::string& name, std::int64_t height, std::int64_t width, std::size_t bytes,
                std::int64_t most_per_byte) {
  const bool possible =
      height >= 1 && width >= 1 && height <= most_pixels && width <= most_pixels / height;
  if (!possible) {
    fail(name,
         fmt::format("announces {} x {} pixels in its header; possible are 1 to {} million in all",
                     height, width, most_pixels / 1'000'000));
  }
  if (height * width / most_per_byte > static_cast<std::int64_t>(bytes)) {
    fail(name, fmt::format("announces {} x {} pixels in its header, which {} bytes cannot hold",
                           height, width, bytes));
  }
}

// A rectangle of an original, or of a reduced copy of it.
struct Rectangle {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// The pixels that lie in the window, or partly so: no other one has a part in the result.
Rectangle pixels_of(const ImageWindow& window, std::int64_t height, std::int64_t width) {
  const auto range = [](double begin, double extent, std::int64_t pixels) {
    const auto first = std::clamp<std::int64_t>(std::llround(std::floor(begin)), 0, pixels - 1);
    const auto last =
        std::clamp<std::int64_t>(std::llround(std::ceil(begin + extent)), first + 1, pixels);
    return std::pair(first, last - first);
  };
  const auto [top, rows] = range(window.top, window.height, height);
  const auto [left, columns] = range(window.left, window.width, width);
  return {.top = top, .left = left, .height = rows, .width = columns};
}

// Where the pixels of a decoded image lie while one is decoded. A thread keeps its memory, unless
// an image was unusually large.
std::vector<std::uint8_t>& scratch() {
  thread_local std::vector<std::uint8_t> memory;
  return memory;
}

std::uint8_t* scratch_of(std::size_t bytes) {
  if (scratch().size() < bytes) scratch().resize(bytes);
  return scratch().data();
}

struct ScratchReturned {
  ScratchReturned() = default;
  ScratchReturned(const ScratchReturned&) = delete;
  ScratchReturned& operator=(const ScratchReturned&) = delete;
  ~ScratchReturned() {
    if (scratch().capacity() > kept_for_decoding) std::vector<std::uint8_t>().swap(scratch());
  }
};

// Takes the decoded rows, or asks where to put them: of a window at any scale, or of everything.
class Target {
 public:
  virtual ~Target() = default;
  // May the decoder reduce an original of this size, and by which power of 2?
  virtual int begin(std::int64_t height, std::int64_t width) = 0;
  // The image is decoded at this size, three channels. Returns which pixels are wanted.
  virtual Rectangle wanted(std::int64_t height, std::int64_t width) = 0;
  // The decoder gives the wanted rows, with these columns: the wanted ones, and maybe more.
  virtual void columns(std::int64_t left, std::int64_t width) = 0;
  // Where row `row`, counted from the first wanted one, goes.
  virtual std::uint8_t* row(std::int64_t row) = 0;
};

// All of the image, as it is.
class Everything : public Target {
 public:
  int begin(std::int64_t, std::int64_t) override { return 1; }
  Rectangle wanted(std::int64_t height, std::int64_t width) override {
    image.shape = {1, height, width, colours};
    image.pixels.resize(static_cast<std::size_t>(image.shape.size()));
    return {.height = height, .width = width};
  }
  void columns(std::int64_t, std::int64_t) override {}
  std::uint8_t* row(std::int64_t row) override {
    return image.pixels.data() + row * image.shape.w * colours;
  }

  Image image = {};
};

// The window that `frame` chooses, which is resampled to `out` at the end.
class PartTarget : public Target {
 public:
  PartTarget(const Framing& frame, tensor::View<std::uint8_t> out) : frame_(frame), out_(out) {}

  // The most by which both sides can shrink and still have as many pixels as `out`.
  int begin(std::int64_t height, std::int64_t width) override {
    height_ = height;
    width_ = width;
    window_ = frame_(height, width);
    reduction_ = 1;
    while (reduction_ < 8 && window_.height >= static_cast<double>(2 * reduction_ * out_.shape.h) &&
           window_.width >= static_cast<double>(2 * reduction_ * out_.shape.w)) {
      reduction_ *= 2;
    }
    return reduction_;
  }

  Rectangle wanted(std::int64_t height, std::int64_t width) override {
    // The window shrinks by the same factor as the image did in decoding, if at all. Sizes are
    // rounded up, and the last pixels stand for some beyond the original's edge, too.
    const bool is_whole = height == height_ && width == width_;
    const double scale = is_whole ? 1.0 : 1.0 / reduction_;
    window_ = {.top = window_.top * scale,
               .left = window_.left * scale,
               .height = window_.height * scale,
               .width = window_.width * scale};
    const Rectangle wanted = pixels_of(window_, height, width);
    // The rows count from the first wanted one, as if there were none before it.
    window_.top -= static_cast<double>(wanted.top);
    height_ = wanted.height;
    width_ = width;
    return wanted;
  }

  void columns(std::int64_t left, std::int64_t width) override {
    left_ = left;
    shape_ = {1, height_, width, colours};
    pixels_ = scratch_of(static_cast<std::size_t>(shape_.size()));
  }

  std::uint8_t* row(std::int64_t row) override { return pixels_ + row * shape_.w * colours; }

  void finish() const {
    resample(
        StoredPixels{
            .pixels = {pixels_, shape_}, .left = left_, .height = height_, .width = width_},
        window_, out_);
  }

 private:
  const Framing& frame_;
  tensor::View<std::uint8_t> out_;
  // Sizes of the original; then of the decoded part, where only wanted rows count.
  std::int64_t height_ = 0;
  std::int64_t width_ = 0;
  ImageWindow window_ = {};
  int reduction_ = 1;      // as the decoder may have it, or not
  std::int64_t left_ = 0;  // the first column in memory
  tensor::Shape shape_ = {};
  std::uint8_t* pixels_ = nullptr;
};

// JPEG. The library reports an error by a function that must not return. It jumps back to where the
// library was called, over C code alone; the exception is thrown there.
class JpegDecoder {
 public:
  JpegDecoder(std::span<const std::uint8_t> bytes, const std::string& name) : name_(name) {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_.client_data = this;
    errors_.error_exit = [](j_common_ptr jpeg) { self(jpeg).jump_with_message(); };
    errors_.emit_message = [](j_common_ptr jpeg, int level) { self(jpeg).note(level); };
    progress_.progress_monitor = [](j_common_ptr jpeg) { self(jpeg).count_scans(); };
    guarded([&] {
      jpeg_create_decompress(&jpeg_);
      jpeg_.progress = &progress_;
      jpeg_mem_src(&jpeg_, bytes.data(), bytes.size());
      jpeg_read_header(&jpeg_, TRUE);
    });
    // One bit for each block of 8 x 8 pixels, where colour has a quarter of the blocks.
    check_size(name_, jpeg_.image_height, jpeg_.image_width, bytes.size(), 8 * 64);
  }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // Wanted rows go directly to their final place. Rows behind the last wanted one are left:
  // destroying the decoder drops them.
  void decode(Target& target) {
    const bool printed = jpeg_.num_components == 4;
    jpeg_.out_color_space = printed ? JCS_CMYK : JCS_RGB;
    jpeg_.scale_num = 1;
    jpeg_.scale_denom = static_cast<unsigned>(target.begin(jpeg_.image_height, jpeg_.image_width));
    guarded([&] { jpeg_start_decompress(&jpeg_); });
    const Rectangle wanted = target.wanted(jpeg_.output_height, jpeg_.output_width);
    const std::int64_t left = leave_columns(wanted);
    target.columns(left, jpeg_.output_width);
    row_.resize(std::size_t{jpeg_.output_width} * (printed ? 4 : 3));
    leave_rows(wanted.top);
    if (printed) {
      for (std::int64_t row = 0; row < wanted.height; ++row) {
        guarded([&] { read_row(row_.data()); });
        to_rgb(target.row(row));
      }
    } else {
      guarded([&] {
        for (std::int64_t row = 0; row < wanted.height; ++row) read_row(target.row(row));
      });
    }
  }

 private:
  static JpegDecoder& self(j_common_ptr jpeg) {
    return *static_cast<JpegDecoder*>(jpeg->client_data);
  }

  // Calls the library. Nothing that a step has made needs a destructor, so the jump skips none.
  template <class Step>
  void guarded(const Step& step) {
    if (setjmp(jump_) != 0) fail_as_noted();
    step();
  }

  [[noreturn]] void fail_as_noted() const {
    fail(name_, fmt::format("is no whole JPEG image ({})", message_.data()));
  }

  [[noreturn]] void jump_with_message() {
    errors_.format_message(reinterpret_cast<j_common_ptr>(&jpeg_), message_.data());
    std::longjmp(jump_, 1);
  }

  // Warnings (negative levels) end the decoding if they mean missing data. Others, such as bytes
  // that do not belong there, are harmless, and common in real collections.
  void note(int level) {
    const bool ends_early =
        errors_.msg_code == JWRN_JPEG_EOF || errors_.msg_code == JWRN_HIT_MARKER;
    if (level < 0 && ends_early) jump_with_message();
  }

  // Called now and then during a pass.
  void count_scans() {
    if (jpeg_.input_scan_number <= most_scans) return;
    fmt::format_to_n(message_.data(), message_.size() - 1, "more than {} scans", most_scans);
    std::longjmp(jump_, 1);
  }

  void read_row(std::uint8_t* out) {
    JSAMPROW row = out;
    jpeg_read_scanlines(&jpeg_, &row, 1);
  }

  // What is left out needs no inverse cosine transform, but its bits are read: the next ones lie
  // behind them. Only libjpeg-turbo can do that. Images whose scans each hold a share of all pixels
  // are decoded whole: that spares little there, and has been tried the least.
  [[nodiscard]] bool can_leave_out() {
#ifdef RONDO_TRAIN_CAN_SKIP
    return jpeg_has_multiple_scans(&jpeg_) == FALSE && jpeg_.num_components != 4;
#else
    return false;
#endif
  }

  // Makes rows begin and end near the wanted pixels; returns where they begin. At an edge colours
  // are interpolated with fewer neighbours than within the image, so there is a margin.
  [[nodiscard]] std::int64_t leave_columns([[maybe_unused]] const Rectangle& wanted) {
    JDIMENSION left = 0;
#ifdef RONDO_TRAIN_CAN_SKIP
    constexpr std::int64_t margin = 8;
    const std::int64_t last = wanted.left + wanted.width + margin;
    left = static_cast<JDIMENSION>(std::max<std::int64_t>(wanted.left - margin, 0));
    JDIMENSION width = std::min(static_cast<JDIMENSION>(last), jpeg_.output_width) - left;
    if (!can_leave_out() || width == jpeg_.output_width) return 0;
    // It moves both to where blocks begin.
    guarded([&] { jpeg_crop_scanline(&jpeg_, &left, &width); });
#endif
    return left;
  }

  void leave_rows(std::int64_t count) {
#ifdef RONDO_TRAIN_CAN_SKIP
    if (can_leave_out()) {
      guarded([&] { jpeg_skip_scanlines(&jpeg_, static_cast<JDIMENSION>(count)); });
      return;
    }
#endif
    guarded([&] {
      for (std::int64_t row = 0; row < count; ++row) read_row(row_.data());
    });
  }

  // Adobe's programs store the amounts of ink inverted, as others do not.
  void to_rgb(std::uint8_t* out) const {
    const int flip = jpeg_.saw_Adobe_marker != 0 ? 0 : 255;
    for (std::size_t x = 0; x < jpeg_.output_width; ++x) {
      const int light = row_[4 * x + 3] ^ flip;
      for (std::size_t c = 0; c < 3; ++c) {
        *out++ = static_cast<std::uint8_t>((row_[4 * x + c] ^ flip) * light / 255);
      }
    }
  }

  const std::string& name_;
  // Frees what the library has taken, also where the constructor throws.
  struct Decompressor : jpeg_decompress_struct {
    ~Decompressor() { jpeg_destroy_decompress(this); }
  };

  Decompressor jpeg_ = {};
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr progress_ = {};
  std::jmp_buf jump_ = {};
  std::array<char, JMSG_LENGTH_MAX> message_ = {};
  std::vector<std::uint8_t> row_;  // one that is not wanted, or not RGB yet
};

// PNG: any kind becomes 8-bit RGB. It is decoded whole, and the wanted rows are copied out of it.
// The colours are those that are stored, as torchvision's loader gives them: no gamma is carried
// out, and transparency is dropped. The library's simplified interface would be shorter, but it
// gives wrong pixels for interlaced images of 16 bits, and it writes behind its buffer before
// libpng 1.6.51.
class PngDecoder {
 public:
  PngDecoder(std::span<const std::uint8_t> bytes, const std::string& name)
      : name_(name), rest_(bytes) {
    guarded([&] {
      png_.reader = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, jump_with_message,
                                           [](png_structp, png_const_charp) {});
      png_.info = png_create_info_struct(png_.reader);
      png_set_read_fn(png_.reader, this, read_bytes);
      // Chunks that do not change the stored colours are not looked at.
      png_set_keep_unknown_chunks(png_.reader, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      png_read_info(png_.reader, png_.info);
    });
    height_ = png_get_image_height(png_.reader, png_.info);
    width_ = png_get_image_width(png_.reader, png_.info);
    // Zlib packs at most 1,032 bytes into one, and a byte can hold 8 pixels.
    check_size(name_, height_, width_, bytes.size(), 8 * 1032);
  }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  void decode(Target& target) {
    static_cast<void>(target.begin(height_, width_));
    const std::int64_t row_bytes = width_ * colours;
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(height_ * row_bytes));
    guarded([&] {
      png_set_expand(png_.reader);
      png_set_scale_16(png_.reader);
      png_set_strip_alpha(png_.reader);
      png_set_gray_to_rgb(png_.reader);
      const int passes = png_set_interlace_handling(png_.reader);
      png_read_update_info(png_.reader, png_.info);
      for (std::int64_t i = 0; i < passes * height_; ++i) {
        png_read_row(png_.reader, pixels.data() + i % height_ * row_bytes, nullptr);
      }
    });
    const Rectangle wanted = target.wanted(height_, width_);
    target.columns(0, width_);
    for (std::int64_t row = 0; row < wanted.height; ++row) {
      std::copy_n(pixels.data() + (wanted.top + row) * row_bytes, row_bytes, target.row(row));
    }
  }

 private:
  // As in JpegDecoder.
  template <class Step>
  void guarded(const Step& step) {
    if (setjmp(jump_) != 0) {
      fail(name_, fmt::format("is no whole PNG image ({})", message_.data()));
    }
    step();
  }

  [[noreturn]] static void jump_with_message(png_structp png, png_const_charp message) {
    auto& self = *static_cast<PngDecoder*>(png_get_error_ptr(png));
    fmt::format_to_n(self.message_.data(), self.message_.size() - 1, "{}", message);
    std::longjmp(self.jump_, 1);
  }

  static void read_bytes(png_structp png, png_bytep to, png_size_t count) {
    auto& rest = static_cast<PngDecoder*>(png_get_io_ptr(png))->rest_;
    if (count > rest.size()) png_error(png, "read beyond end of data");
    std::copy_n(rest.data(), count, to);
    rest = rest.subspan(count);
  }

  const std::string& name_;
  std::span<const std::uint8_t> rest_;
  std::int64_t height_ = 0;
  std::int64_t width_ = 0;
  // As in JpegDecoder.
  struct Reader {
    png_structp reader = nullptr;
    png_infop info = nullptr;
    Reader() = default;
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader() { png_destroy_read_struct(&reader, &info, nullptr); }
  };

  Reader png_;
  std::jmp_buf jump_ = {};
  std::array<char, 128> message_ = {};
};

// PPM: "P6", width, height and the largest value as text, then bytes. PGM: "P5" and one byte for a
// pixel. Lines that begin with # are comments.
class PpmDecoder {
 public:
  PpmDecoder(std::span<const std::uint8_t> bytes, const std::string& name)
      : bytes_(bytes.subspan(2)), name_(name), channels_(bytes[1] == '5' ? 1 : colours) {
    width_ = read_number();
    height_ = read_number();
    check_size(name_, height_, width_, bytes.size(), 1);
    if (read_number() != 255) fail(name_, "is a PPM or PGM image whose largest value is not 255");
    if (!bytes_.empty()) bytes_ = bytes_.subspan(1);
    const auto wanted = static_cast<std::size_t>(height_ * width_ * channels_);
    if (bytes_.size() >= wanted) return;
    fail(name_, fmt::format("is no whole PPM or PGM image: {} of {} bytes", bytes_.size(), wanted));
  }

  void decode(Target& target) const {
    static_cast<void>(target.begin(height_, width_));
    const Rectangle wanted = target.wanted(height_, width_);
    target.columns(0, width_);
    for (std::int64_t row = 0; row < wanted.height; ++row) {
      const std::uint8_t* from = bytes_.data() + (wanted.top + row) * width_ * channels_;
      std::uint8_t* to = target.row(row);
      for (std::int64_t i = 0; i < width_ * colours; ++i) to[i] = from[i * channels_ / colours];
    }
  }

 private:
  void skip_blanks() {
    bool comment = false;
    while (!bytes_.empty()) {
      const std::uint8_t byte = bytes_.front();
      if (byte == '#') comment = true;
      if (!comment && std::isspace(byte) == 0) return;
      if (byte == '\n') comment = false;
      bytes_ = bytes_.subspan(1);
    }
  }

  // At most nine digits, so that products of two are no problem.
  std::int64_t read_number() {
    skip_blanks();
    std::int64_t number = 0;
    int digits = 0;
    while (!bytes_.empty() && std::isdigit(bytes_.front()) != 0 && digits < 9) {
      number = 10 * number + (bytes_.front() - '0');
      bytes_ = bytes_.subspan(1);
      ++digits;
    }
    if (digits == 0) fail(name_, "has a damaged PPM or PGM header");
    return number;
  }

  std::span<const std::uint8_t> bytes_;
  const std::string& name_;
  std::int64_t channels_;
  std::int64_t width_ = 0;
  std::int64_t height_ = 0;
};

template <std::size_t count>
bool begins_with(std::span<const std::uint8_t> bytes, const std::array<std::uint8_t, count>& mark) {
  return bytes.size() >= count && std::equal(mark.begin(), mark.end(), bytes.begin());
}

// By its first bytes: names of files are often wrong.
void decode(std::span<const std::uint8_t> bytes, const std::string& name, Target& target) {
  if (begins_with<2>(bytes, {0xff, 0xd8})) {
    JpegDecoder(bytes, name).decode(target);
  } else if (begins_with<4>(bytes, {0x89, 'P', 'N', 'G'})) {
    PngDecoder(bytes, name).decode(target);
  } else if (begins_with<2>(bytes, {'P', '6'}) || begins_with<2>(bytes, {'P', '5'})) {
    PpmDecoder(bytes, name).decode(target);
  } else {
    fail(name, bytes.empty() ? "is empty" : "is no JPEG, PNG, PPM or PGM image");
  }
}

}  // namespace

void decode_image(std::span<const std::uint8_t> bytes, const std::string& name,
                  const Framing& frame, tensor::View<std::uint8_t> out) {
  const ScratchReturned returned;
  PartTarget part(frame, out);
  decode(bytes, name, part);
  part.finish();
}

namespace {

// What is wrong with a data set is alike for all ranks. Other reasons are of a host, and of a
// moment.
[[noreturn]] void fail_to_read(const std::filesystem::path& file, const std::error_code& reason) {
  const std::string problem = fmt::format("cannot be read ({})", reason.message());
  const bool is_of_set =
      reason == std::errc::is_a_directory || reason == std::errc::too_many_symbolic_link_levels;
  if (is_of_set) fail_on_file(file, problem, broken_remedy);
  throw UnreadableFile(
      fmt::format("{}: {}; make it readable on this host", file.string(), problem));
}

}  // namespace

// A file's size is known before it is read, so memory is taken once; a pipe or a device has none.
std::vector<std::uint8_t> read_file(const std::filesystem::path& file) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (error == std::errc::no_such_file_or_directory) {
    throw UnreadableFile(file.string() + ": there is no such file; check its path");
  }
  if (error) fail_to_read(file, error);
  if (size > most_bytes) {
    fail_on_file(file, fmt::format("has {} bytes, too many for an image", size), broken_remedy);
  }
  std::vector<std::uint8_t> bytes(size);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(file.c_str(), "rb"),
                                                               std::fclose);
  const std::size_t got =
      stream ? std::fread(bytes.data(), 1, bytes.size(), stream.get()) : std::size_t{0};
  if (!stream || std::ferror(stream.get()) != 0) {
    fail_to_read(file, std::error_code(errno, std::generic_category()));
  }
  bytes.resize(got);
  return bytes;
}

Image read_image(const std::filesystem::path& file) {
  Everything everything;
  decode(read_file(file), file.string(), everything);
  return std::move(everything.image);
}

}  // namespace rondo::train
