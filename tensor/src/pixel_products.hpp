#pragma once

#include <cstdint>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/fully_connected.hpp>

#include "weighted_layer.hpp"

namespace rondo::tensor {

/// The kernels of a fully connected layer; y has that type.
[[nodiscard]] LayerKernels fully_connected_kernels(const FullyConnectedSpec& spec, DataType y,
                                                   const Engine::Impl& on);

/// A convolution by one pixel, as products of every pixel that it reads with the filters: for a
/// release of oneDNN that cannot describe such a convolution. With a stride the pixels are gathered
/// first.
class PixelProducts {
 public:
  /// Is this convolution computed so?
  [[nodiscard]] static bool replaces(const ConvolutionSpec& spec);

  /// The convolution of the gathered pixels.
  [[nodiscard]] static ConvolutionSpec gathered(const ConvolutionSpec& spec);

  /// `spec` is gathered.
  [[nodiscard]] static LayerKernels kernels(const ConvolutionSpec& spec, const Engine::Impl& on);

  /// Bytes for the pixels that were gathered; 0 without a stride.
  [[nodiscard]] static std::size_t bytes(const ConvolutionSpec& spec);

  PixelProducts(Engine::Impl& engine, const ConvolutionSpec& spec);

  [[nodiscard]] bool gathers() const noexcept { return spec_.stride > 1; }

  /// The pixels of x that the convolution reads; x itself without a stride.
  [[nodiscard]] ConstAnyView gather(ConstAnyView x);
  /// Where the gradient of these pixels is to be written.
  [[nodiscard]] AnyView gradient(AnyView dx);
  /// Writes that gradient to dx, and zeros to the pixels that nothing reads.
  void scatter(AnyView dx);

 private:
  template <typename Use>
  void for_each_pixel(const Use& use) const;
  [[nodiscard]] AnyView pixels(DataType type) const;

  Engine::Impl& engine_;
  ConvolutionSpec spec_;
  Buffer buffer_;
};

}  // namespace rondo::tensor
