#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <rondo/tensor/tensor.hpp>
#include <rondo/train/export.hpp>

namespace rondo::train {

/// The part of an original image that becomes a training image, in pixels of the original. It lies
/// within the original.
struct ImageWindow {
  double top = 0.0;
  double left = 0.0;
  double height = 0.0;
  double width = 0.0;
};

/// Chooses the window of an original image of `height` x `width` pixels.
using Framing = std::function<ImageWindow(std::int64_t height, std::int64_t width)>;

/// Images that do not lie in memory: the files of a folder, or what a program reads or makes.
///
/// A Loader calls read() for a few batches ahead on several threads, so that only those images are
/// in memory. An ImageSource never changes: reading one image twice gives the same pixels.
class RONDO_TRAIN_API ImageSource {
 public:
  ImageSource() = default;
  ImageSource(const ImageSource&) = delete;
  ImageSource& operator=(const ImageSource&) = delete;
  virtual ~ImageSource() = default;

  /// Writes image `image` into `out`, {1, height, width, channels}. `frame` chooses the wanted part
  /// of the original: what random_resized_crop draws, else the centre that data.centre_crop says;
  /// resample() scales it to the size of `out`. A source whose images are all of that size may copy
  /// them and leave `frame` alone. Throws DataError when the image is broken. Called by several
  /// threads at once.
  virtual void read(std::int64_t image, const Framing& frame,
                    tensor::View<std::uint8_t> out) const = 0;

  /// How many bytes a thread that reads images keeps between two of them, at the most: what
  /// train.memory_limit counts for it.
  [[nodiscard]] virtual std::size_t bytes_per_thread() const { return 0; }

  /// Ranks compare this text before they train: it is equal where all images and labels are.
  [[nodiscard]] virtual std::string digest() const = 0;
};

/// Writes `window` of `image` into `out`, larger or smaller, by linear interpolation; where it gets
/// smaller, all pixels that a new one covers have a part in it. Both are one image with the same
/// number of channels.
RONDO_TRAIN_API void resample(tensor::View<const std::uint8_t> image, const ImageWindow& window,
                              tensor::View<std::uint8_t> out);

/// The window in the centre whose shorter side is `share` of the original's shorter side, and whose
/// sides are in the relation of `height` to `width`.
[[nodiscard]] RONDO_TRAIN_API ImageWindow centre_window(std::int64_t original_height,
                                                        std::int64_t original_width, double share,
                                                        std::int64_t height, std::int64_t width);

/// One image in memory.
struct Image {
  tensor::Shape shape = {};               ///< {1, height, width, channels}
  std::vector<std::uint8_t> pixels = {};  ///< NHWC
};

/// The whole image of a JPEG, PNG, PPM or PGM file, in red, green and blue. Which of them it is,
/// its first bytes tell. Colours are those that are stored: the gamma and the transparency of a
/// PNG, and a rotation that a camera has noted, are not carried out. Throws DataError for a broken
/// file, and for more than 64 million pixels.
[[nodiscard]] RONDO_TRAIN_API Image read_image(const std::filesystem::path& file);

/// A thread that decodes images keeps its memory for the next one up to so many bytes; what a
/// larger image took goes back.
inline constexpr std::size_t kept_for_decoding = std::size_t{16} << 20U;

/// The same of a file's bytes, reduced: decodes what `frame` chooses, and scales it to the size of
/// `out`, which has three channels. A JPEG is decoded at a half, a quarter or an eighth of its size
/// where that is enough. `name` is what messages call it.
RONDO_TRAIN_API void decode_image(std::span<const std::uint8_t> bytes, const std::string& name,
                                  const Framing& frame, tensor::View<std::uint8_t> out);

}  // namespace rondo::train
