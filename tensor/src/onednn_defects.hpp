#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/tensor/convolution.hpp>

namespace rondo::tensor::onednn {

/// A release of oneDNN, without its patch level.
struct Version {
  int major = 0;
  int minor = 0;
  [[nodiscard]] auto operator<=>(const Version&) const noexcept = default;
};

/// The release that this process runs with.
[[nodiscard]] Version version() noexcept;

/// Have all tests of tensor and train passed with this release without the test of its kernels,
/// with every instruction set? Kernels of any other release are tested when a layer is made; see
/// onednn_self_test.hpp.
[[nodiscard]] bool is_tried(Version release) noexcept;

enum class Pass : std::uint8_t { forward, backward_data, backward_weights };

/// A kernel of oneDNN that computes wrong results for some convolutions, or is slower than the next
/// one that it has.
struct Defect {
  /// `fatal`: for some shapes the process ends, so no test runs it.
  enum class Kind : std::uint8_t { wrong, fatal, slow };
  Kind kind = Kind::wrong;
  Pass pass = Pass::forward;
  std::string_view kernel;  ///< the beginning of its name
  Version first, last;      ///< the releases that were seen to have it, and those between
  bool (*concerns)(const ConvolutionSpec& spec) = nullptr;
  std::string_view effect;  ///< "oneDNN's kernel ... EFFECT"
  std::string_view remedy;  ///< for who cannot get another kernel
  ConvolutionSpec example;  ///< a convolution that shows it
};

/// All that are known. A test shows each of them where it exists.
[[nodiscard]] std::span<const Defect> defects() noexcept;

/// The defect of this kernel for that convolution; null when none is known. A release that was not
/// tried is taken to have the defects of all others.
[[nodiscard]] const Defect* defect_of(Pass pass, std::string_view kernel,
                                      const ConvolutionSpec& spec,
                                      Version release = version()) noexcept;

/// May reorders of this release drop elements? In 3.7 those of some blocked layouts with padding do
/// (oneDNN's issue 3280); a release that was not tried is taken to do so, too. Which ones do, a
/// trial tells: reorders_correctly().
[[nodiscard]] bool may_drop_elements(Version release = version()) noexcept;

/// Does describing this convolution end the process, on CPUs without AMX? 3.7 divides by zero for
/// kernels of one pixel and certain numbers of channels and filters.
[[nodiscard]] bool ends_the_process(const ConvolutionSpec& spec,
                                    Version release = version()) noexcept;

/// The taps of a filter, as kh * KW + kw, that read nothing but padding: their gradient is zero. In
/// bf16 oneDNN 2.6 leaves there what the memory held, where an image is narrower than the stride,
/// so Convolution writes the zeros. Empty in fp32.
[[nodiscard]] std::vector<std::size_t> taps_in_padding(const ConvolutionSpec& spec);

}  // namespace rondo::tensor::onednn
