#pragma once

#include <cstddef>
#include <span>

#include <rondo/tensor/batch_norm.hpp>

#include "buffer.hpp"
#include "engine_impl.hpp"
#include "kernels/kernels.hpp"

namespace rondo::tensor {

/// The constants of normalisation, repeated to rows of `width` floats (see kernels.hpp).
struct NormLanes {
  std::span<float> mean = {};
  std::span<float> factor = {};  ///< scale / sqrt(variance + epsilon)
  std::span<float> shift = {};
};

/// The passes of batch norm, each over the whole batch on the engine's team. Statistics are
/// summed per thread in fixed cuts, then over threads in order.
class BatchNorm::Impl {
 public:
  Impl(Engine::Impl& engine, const BatchNormSpec& spec, SumOverRanks sum_over_ranks);

  [[nodiscard]] const BatchNormSpec& spec() const noexcept { return spec_; }
  [[nodiscard]] const NormLanes& batch() const noexcept { return batch_; }
  [[nodiscard]] const NormLanes& running() const noexcept { return running_; }

  /// Are statistics those of several ranks? Then every rank calls all of the following.
  [[nodiscard]] bool shares() const noexcept { return sum_over_ranks_ != nullptr; }

  /// Mean and variance of x: kept for update_running() and backward; sets batch().
  void measure(const View<const float>& x, const BatchNormParameters& p);
  void update_running(std::span<float> mean, std::span<float> variance) const;
  /// Sets running().
  void adopt_running(std::span<const float> mean, std::span<const float> variance,
                     const BatchNormParameters& p);

  void normalise(const NormLanes& lanes, const View<const float>& x,
                 const View<const float>& residual, const View<float>& y) const;

  /// First backward pass: gradients of scale and shift, and what the second pass subtracts.
  void sum_gradients(const View<const float>& x, const View<const float>& y, const View<float>& dy,
                     const View<const float>& also, std::span<float> scale_gradient,
                     std::span<float> shift_gradient);
  void input_gradients(const View<const float>& x, const View<const float>& dy,
                       const View<float>& dx) const;

 private:
  /// Two sums per channel, over lanes and threads.
  struct Sums {
    double first = 0.0;
    double second = 0.0;
  };

  void sum_moments(const View<const float>& x);
  void take_moments(const View<const float>& x);
  void share_moments(const View<const float>& x);
  void share_gradient_sums();
  /// What the second backward pass subtracts, from sums over the whole batch.
  void set_means(std::size_t channel, const Sums& sums);
  [[nodiscard]] std::span<double> sums_of(int part, std::size_t which) const;
  void clear_sums(int part) const;
  [[nodiscard]] Sums total(std::size_t channel) const;
  void set_lanes(std::span<float> lanes, std::size_t channel, double value) const;
  void set_norm(const NormLanes& lanes, std::size_t channel, double mean, double deviation,
                const BatchNormParameters& p) const;
  [[nodiscard]] NormLanes take_norm();
  [[nodiscard]] std::span<float> take_lanes();

  Engine::Impl& engine_;
  BatchNormSpec spec_;
  SumOverRanks sum_over_ranks_;
  std::size_t channels_;
  std::size_t width_;
  Buffer lane_memory_;
  Buffer sum_memory_;
  Buffer channel_memory_;
  Buffer shared_memory_;  ///< what travels: a count, and two numbers per channel
  std::size_t lanes_taken_ = 0;
  Gate second_gate_ = Gate::open;  ///< what the second backward pass has left to do
  NormLanes batch_;
  NormLanes running_;
  std::span<float> origin_;
  std::span<float> offset_;
  std::span<float> slope_;
  double samples_ = 0.0;        ///< pixels of the last batch, on all ranks that share
  std::span<double> mean_;      ///< of the last batch, per channel
  std::span<double> variance_;  ///< biased
  std::span<double> inverse_;   ///< 1 / sqrt(variance + epsilon)
};

}  // namespace rondo::tensor
