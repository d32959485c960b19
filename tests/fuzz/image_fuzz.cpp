// Image files from anywhere: decoding ends with an image or with a DataError, whatever the bytes
// are. For libFuzzer; the test runs a fixed number of inputs. The first byte of an input chooses
// the size of the image that is wanted, and the part of the original that it shows.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rondo/train/dataset.hpp>
#include <rondo/train/image.hpp>

// The name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rondo::train;
  if (size == 0) return 0;
  const std::int64_t height = 1 + data[0] % 8;
  const std::int64_t width = 1 + data[0] / 8;
  const double share = data[0] % 2 == 0 ? 1.0 : 0.25;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(height * width * 3));
  const Framing centre = [&](std::int64_t original_height, std::int64_t original_width) {
    return centre_window(original_height, original_width, share, height, width);
  };
  try {
    decode_image(std::span(data, size).subspan(1), "fuzz", centre,
                 {pixels.data(), {1, height, width, 3}});
  } catch (const DataError&) {  // what it is refused with
  }
  return 0;
}
