#pragma once

#include <span>
#include <vector>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/train/halo.hpp>

namespace rondo::train {

/// Forward of a convolution in two steps: the rows of y that need no halo while it travels, then
/// those above and below.
///
/// Only for one image that is cut between rows: then any rows of it are dense memory, and all
/// kernels read and write where the whole one would. With more images oneDNN would have every
/// part of them copied, or be called for each of them apart; copying what the rank has itself,
/// which it does anyway, hides the halo there.
class InteriorFirst {
 public:
  /// Is that so, and does the work in parts cost next to nothing? At least half of the rows must be
  /// inner ones, and the weights, which every part reads anew, no more than four times `held`.
  ///
  /// Measured on one core, AVX-512, two parts against one kernel, 3x3: 64 channels and 256 rows of
  /// 512, or 112 of 224, and 128 and 28 of 56: within 1 %; 256 and 14 of 28 (weights 6 times x):
  /// 1 % slower; 512 and 8 of 16 (36 times): 9 %; 512 and 4 of 7 (165 times): 20 %.
  [[nodiscard]] static bool pays(const Halo& halo, const Box& held, const Box& reads,
                                 std::int64_t weights) noexcept;

  /// `whole` computes all of halo.own from `reads`, of which the rank holds `held`; the parts share
  /// its weights. Images have `height` rows.
  InteriorFirst(tensor::Convolution& whole, const Halo& halo, const Windows& windows,
                std::int64_t height, const Box& held, const Box& reads);

  /// From the rank's own part of x.
  void inner(const tensor::ConstAnyView& held, std::span<const float> bias,
             const tensor::AnyView& y);
  /// From x with its halo.
  void border(const tensor::ConstAnyView& read, std::span<const float> bias,
              const tensor::AnyView& y);

 private:
  struct Rows {
    Range inputs = {};  ///< rows of what is given
    Range outputs = {};
    tensor::Convolution kernel;

    void run(const tensor::ConstAnyView& x, std::span<const float> bias, const tensor::AnyView& y);
  };
  struct Maker;

  std::vector<Rows> inner_;   ///< one
  std::vector<Rows> border_;  ///< up to two: none without a halo, where rows of x are left out
};

}  // namespace rondo::train
