// Batch normalisation by our own loops (kernels/): the checks of a call, then the passes, each over
// the whole batch on the engine's team. Statistics are summed per thread in fixed cuts, then over
// threads in order, so that bits depend on the number of threads alone.
//
// Every pass reads each activation once, because batch norm is as fast as memory. Forward takes two
// passes: the moments of x, then y. Backward takes two as well: the sums over dy and dy (x - mean),
// which give the gradients of shift and scale, then dx. The second pass of each goes from the last
// image to the first, so that it begins with what the first has left in the caches. Where ranks
// share statistics, only the sums of a first pass travel, in double: the second pass needs no other
// rank.

#include <rondo/tensor/batch_norm.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include <rondo/tensor/kernel_memory.hpp>

#include "engine_impl.hpp"
#include "kernels/kernels.hpp"

namespace rondo::tensor {

/// The constants of normalisation, repeated to rows of `width` floats (see kernels.hpp).
struct NormLanes {
  std::span<float> mean = {};
  std::span<float> factor = {};  ///< scale / sqrt(variance + epsilon)
  std::span<float> shift = {};
};

namespace {

constexpr const char* forward_call = "BatchNorm::forward";
constexpr const char* backward_call = "BatchNorm::backward";

// All per-channel arguments (scale, shift, running values, their gradients) are checked alike.
void require_channels(const char* call, const char* what, std::size_t size, const Shape& shape) {
  if (static_cast<std::int64_t>(size) == shape.c) return;
  throw std::invalid_argument(std::string(call) + ": " + what + " has " + std::to_string(size) +
                              " elements for " + std::to_string(shape.c) + " channels");
}

// x may have fewer images than the layer was made for.
Shape required_shape(const BatchNormSpec& spec, const ConstAnyView& x, const char* call) {
  const Shape shape = spec.input.with_n(std::min(x.shape.n, spec.input.n));
  require_shape(call, "x", x, shape, spec.type);
  return shape;
}

void require_forward(const BatchNormSpec& spec, const ConstAnyView& x, const ConstAnyView& residual,
                     const BatchNormParameters& p, std::size_t means, std::size_t variances,
                     const AnyView& y) {
  const Shape shape = required_shape(spec, x, forward_call);
  require_shape(forward_call, "y", y, shape, spec.type);
  if (spec.residual) {
    require_shape(forward_call, "residual", residual, shape, spec.type);
  } else if (residual.data != nullptr) {
    throw std::invalid_argument("BatchNorm::forward: a residual, but the spec has none");
  }
  require_channels(forward_call, "scale", p.scale.size(), shape);
  require_channels(forward_call, "shift", p.shift.size(), shape);
  require_channels(forward_call, "the running mean", means, shape);
  require_channels(forward_call, "the running variance", variances, shape);
}

// A row holds whole vectors of 16 and whole pixels, and enough floats to overlap additions.
std::size_t row_width(std::size_t channels) {
  constexpr std::size_t vector = 16;
  constexpr std::size_t enough = 64;
  const std::size_t smallest = std::lcm(channels, vector);
  return smallest * ((enough + smallest - 1) / smallest);
}

template <typename T>
const T* at(const View<const T>& view, const Pixels& pixels) {
  return view.data == nullptr ? nullptr : view.data + pixels.first;
}

// Arrays of a row's width that a layer keeps: mean, factor and shift of the batch and of the
// running values, the origin of the moments, and the offset and slope of backward. Then arrays of
// one number per channel: mean, variance and inverse deviation.
constexpr std::size_t lane_arrays = 9;
constexpr std::size_t channel_arrays = 3;

std::size_t lane_bytes(std::size_t channels) {
  return lane_arrays * row_width(channels) * sizeof(float);
}
// Two sums per lane for each thread, so that no thread waits for another.
std::size_t sum_bytes(std::size_t channels, int threads) {
  return static_cast<std::size_t>(threads) * 2 * row_width(channels) * sizeof(double);
}
std::size_t channel_bytes(std::size_t channels) {
  return channel_arrays * channels * sizeof(double);
}
// Bytes of the numbers that ranks add up: the pixels of each, and two sums per channel.
std::size_t shared_bytes(std::size_t channels) { return (1 + 2 * channels) * sizeof(double); }

/// An optional argument; where it is not given its type means nothing.
template <typename T>
View<const T> as_if_given(const ConstAnyView& view) {
  return view.data == nullptr ? View<const T>() : view.as<T>();
}

double pixels_of(const Shape& shape) { return static_cast<double>(shape.n * shape.h * shape.w); }

}  // namespace

// No kernel of oneDNN's is involved: the sizes follow from the channels, whatever the other extents
// are.
KernelMemory memory_of(Engine& engine, const BatchNormSpec& spec, bool shared) {
  if (spec.input.c <= 0) throw std::invalid_argument("BatchNorm: its input has no channels");
  const auto channels = static_cast<std::size_t>(spec.input.c);
  return {.own = lane_bytes(channels) + sum_bytes(channels, engine.threads()) +
                 channel_bytes(channels) + (shared ? shared_bytes(channels) : 0)};
}

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
  void measure(const ConstAnyView& x, const BatchNormParameters& p);
  void update_running(std::span<float> mean, std::span<float> variance) const;
  /// Sets running().
  void adopt_running(std::span<const float> mean, std::span<const float> variance,
                     const BatchNormParameters& p);

  void normalise(const NormLanes& lanes, const ConstAnyView& x, const ConstAnyView& residual,
                 const AnyView& y) const;

  /// First backward pass: gradients of scale and shift, and what the second pass subtracts.
  void sum_gradients(const ConstAnyView& x, const ConstAnyView& y, const AnyView& dy,
                     const ConstAnyView& also, std::span<float> scale_gradient,
                     std::span<float> shift_gradient);
  void input_gradients(const ConstAnyView& x, const ConstAnyView& dy, const AnyView& dx) const;

 private:
  /// Two sums per channel, over lanes and threads.
  struct Sums {
    double first = 0.0;
    double second = 0.0;
  };

  // The passes for one type; T is float or Bfloat16.
  template <typename T>
  void sum_moments(const View<const T>& x);
  template <typename T>
  void normalise_as(const NormLanes& lanes, const View<const T>& x, const View<const T>& residual,
                    const View<T>& y) const;
  template <typename T>
  void sum_gradients_as(const View<const T>& x, const View<const T>& y, const View<T>& dy,
                        const View<const T>& also);
  template <typename T>
  void input_gradients_as(const View<const T>& x, const View<const T>& dy, const View<T>& dx) const;

  void take_moments(const Shape& x);
  void share_moments(const Shape& x);
  void share_gradient_sums();
  /// Sets what the second backward pass subtracts, from sums over the whole batch.
  void set_means(std::size_t channel, const Sums& sums);
  [[nodiscard]] std::span<double> sums_of(int part, std::size_t which) const;
  void clear_sums(int part) const;
  [[nodiscard]] Sums total(std::size_t channel) const;
  void set_lanes(std::span<float> lanes, std::size_t channel, double value) const;
  void set_norm(const NormLanes& lanes, std::size_t channel, double mean, double inverse,
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

BatchNorm::Impl::Impl(Engine::Impl& engine, const BatchNormSpec& spec, SumOverRanks sum_over_ranks)
    : engine_(engine),
      spec_(spec),
      sum_over_ranks_(std::move(sum_over_ranks)),
      channels_(static_cast<std::size_t>(spec.input.c)),
      width_(row_width(channels_)),
      lane_memory_(engine.layer_memory(), lane_bytes(channels_)),
      sum_memory_(engine.layer_memory(), sum_bytes(channels_, engine.threads())),
      channel_memory_(engine.layer_memory(), channel_bytes(channels_)),
      shared_memory_(engine.layer_memory(), shares() ? shared_bytes(channels_) : 0),
      batch_(take_norm()),
      running_(take_norm()),
      origin_(take_lanes()),
      offset_(take_lanes()),
      slope_(take_lanes()) {
  const auto per_channel = channel_memory_.as<double>();
  std::ranges::fill(per_channel, 0.0);
  mean_ = per_channel.subspan(0, channels_);
  variance_ = per_channel.subspan(channels_, channels_);
  inverse_ = per_channel.subspan(2 * channels_, channels_);
}

std::span<float> BatchNorm::Impl::take_lanes() {
  // Arrays are dealt out in the order in which the members are made; lane_arrays says how many
  // there are.
  const auto lanes = lane_memory_.as<float>().subspan(width_ * lanes_taken_++, width_);
  std::ranges::fill(lanes, 0.0F);
  return lanes;
}

NormLanes BatchNorm::Impl::take_norm() {
  return {.mean = take_lanes(), .factor = take_lanes(), .shift = take_lanes()};
}

// Every thread has sums of its own: nobody waits, and the order of additions is fixed.
std::span<double> BatchNorm::Impl::sums_of(int part, std::size_t which) const {
  const auto index = 2 * static_cast<std::size_t>(part) + which;
  return sum_memory_.as<double>().subspan(index * width_, width_);
}

void BatchNorm::Impl::clear_sums(int part) const {
  std::ranges::fill(sums_of(part, 0), 0.0);
  std::ranges::fill(sums_of(part, 1), 0.0);
}

// Over the lanes of a channel, then over threads, in order.
BatchNorm::Impl::Sums BatchNorm::Impl::total(std::size_t channel) const {
  Sums total;
  for (int part = 0; part < engine_.threads(); ++part) {
    for (std::size_t lane = channel; lane < width_; lane += channels_) {
      total.first += sums_of(part, 0)[lane];
      total.second += sums_of(part, 1)[lane];
    }
  }
  return total;
}

// A constant of one channel stands in each of its lanes, so that loops read rows of constants.
void BatchNorm::Impl::set_lanes(std::span<float> lanes, std::size_t channel, double value) const {
  for (std::size_t lane = channel; lane < width_; lane += channels_) {
    lanes[lane] = static_cast<float>(value);
  }
}

void BatchNorm::Impl::set_norm(const NormLanes& lanes, std::size_t channel, double mean,
                               double inverse, const BatchNormParameters& p) const {
  set_lanes(lanes.mean, channel, mean);
  set_lanes(lanes.factor, channel, static_cast<double>(p.scale[channel]) * inverse);
  set_lanes(lanes.shift, channel, static_cast<double>(p.shift[channel]));
}

// The moments are taken about the first pixel, not about zero: where the mean is large beside the
// deviation, E[x^2] - E[x]^2 would cancel.
template <typename T>
void BatchNorm::Impl::sum_moments(const View<const T>& x) {
  engine_.enter();
  for (std::size_t c = 0; c < channels_; ++c) {
    set_lanes(origin_, c, x.shape.n == 0 ? 0.0 : static_cast<double>(to_float(x.data[c])));
  }
  const Loops<T>& loops = kernels().of<T>();
  for_each_part(engine_.threads(), [&](int part) {
    clear_sums(part);
    for_each_image(x.shape, part, engine_.threads(), Order::forward, [&](const Pixels& pixels) {
      loops.sum_moments({.x = x.data + pixels.first,
                         .count = pixels.count,
                         .origin = origin_.data(),
                         .width = width_,
                         .sums = sums_of(part, 0).data(),
                         .squares = sums_of(part, 1).data()});
    });
  });
}

// Without other ranks: from the sums about the first pixel.
void BatchNorm::Impl::take_moments(const Shape& x) {
  samples_ = pixels_of(x);
  for (std::size_t c = 0; c < channels_; ++c) {
    const Sums sums = total(c);
    // The shifted moments: E[x] = o + E[x - o], and Var[x] = E[(x - o)^2] - E[x - o]^2 for any
    // origin o. Without pixels this is 0 / 0, but forward has returned before.
    const double from_origin = sums.first / samples_;
    mean_[c] = static_cast<double>(origin_[c]) + from_origin;
    variance_[c] = sums.second / samples_ - from_origin * from_origin;
  }
}

// Ranks have different origins, so that what they add is about zero.
void BatchNorm::Impl::share_moments(const Shape& x) {
  const auto shared = shared_memory_.as<double>();
  const double own = pixels_of(x);
  shared[0] = own;
  for (std::size_t c = 0; c < channels_; ++c) {
    const Sums sums = total(c);
    const auto origin = static_cast<double>(origin_[c]);
    // From sums about the origin to sums about zero: sum(x) = sum(x - o) + n o, and sum(x^2) =
    // sum((x - o)^2) + 2 o sum(x - o) + n o^2.
    shared[1 + c] = sums.first + own * origin;
    shared[1 + channels_ + c] = sums.second + origin * (2.0 * sums.first + own * origin);
  }
  sum_over_ranks_(shared);
  samples_ = shared[0];
  for (std::size_t c = 0; c < channels_ && samples_ > 0.0; ++c) {
    mean_[c] = shared[1 + c] / samples_;
    variance_[c] = shared[1 + channels_ + c] / samples_ - mean_[c] * mean_[c];
  }
}

// The first pass of forward. Rounding can make a variance slightly negative.
void BatchNorm::Impl::measure(const ConstAnyView& x, const BatchNormParameters& p) {
  with_type(spec_.type, [&]<typename T>(T /*of*/) { sum_moments(x.as<T>()); });
  if (shares()) {
    share_moments(x.shape);
  } else {
    take_moments(x.shape);
  }
  for (std::size_t c = 0; c < channels_; ++c) {
    if (variance_[c] < 0.0) variance_[c] = 0.0;  // NaN stays
    inverse_[c] = 1.0 / std::sqrt(variance_[c] + static_cast<double>(spec_.epsilon));
    set_norm(batch_, c, mean_[c], inverse_[c], p);
  }
}

// The running variance is unbiased, as PyTorch's is. Where no rank had an image nothing changes.
void BatchNorm::Impl::update_running(std::span<float> mean, std::span<float> variance) const {
  if (samples_ == 0.0) return;
  const auto momentum = static_cast<double>(spec_.momentum);
  const double unbiased = samples_ > 1.0 ? samples_ / (samples_ - 1.0) : 1.0;
  const auto mix = [&](float& into, double value) {
    into = static_cast<float>((1.0 - momentum) * static_cast<double>(into) + momentum * value);
  };
  for (std::size_t c = 0; c < channels_; ++c) {
    mix(mean[c], mean_[c]);
    mix(variance[c], variance_[c] * unbiased);
  }
}

// For inference: the constants follow from the running values alone.
void BatchNorm::Impl::adopt_running(std::span<const float> mean, std::span<const float> variance,
                                    const BatchNormParameters& p) {
  for (std::size_t c = 0; c < channels_; ++c) {
    const double inverse =
        1.0 / std::sqrt(static_cast<double>(variance[c]) + static_cast<double>(spec_.epsilon));
    set_norm(running_, c, static_cast<double>(mean[c]), inverse, p);
  }
}

// The second pass of forward, from the last image to the first.
void BatchNorm::Impl::normalise(const NormLanes& lanes, const ConstAnyView& x,
                                const ConstAnyView& residual, const AnyView& y) const {
  with_type(spec_.type, [&]<typename T>(T /*of*/) {
    normalise_as(lanes, x.as<T>(), as_if_given<T>(residual), y.as<T>());
  });
}

template <typename T>
void BatchNorm::Impl::normalise_as(const NormLanes& lanes, const View<const T>& x,
                                   const View<const T>& residual, const View<T>& y) const {
  engine_.enter();
  const Loops<T>& loops = kernels().of<T>();
  for_each_part(engine_.threads(), [&](int part) {
    for_each_image(x.shape, part, engine_.threads(), Order::backward, [&](const Pixels& pixels) {
      loops.normalise({.x = x.data + pixels.first,
                       .residual = at(residual, pixels),
                       .y = y.data + pixels.first,
                       .count = pixels.count,
                       .mean = lanes.mean.data(),
                       .factor = lanes.factor.data(),
                       .shift = lanes.shift.data(),
                       .width = width_,
                       .rectified = spec_.activation == Activation::relu});
    });
  });
}

// The first pass of backward. Without a residual the gate of the ReLU is computed again from x,
// which is read anyway; the second pass then does so too, unless the gated gradient was written to
// dy.
template <typename T>
void BatchNorm::Impl::sum_gradients_as(const View<const T>& x, const View<const T>& y,
                                       const View<T>& dy, const View<const T>& also) {
  engine_.enter();
  // With a residual the ReLU's input cannot be computed from x alone, so that the output y has to
  // tell where the gate was open.
  const Gate gate = spec_.activation == Activation::none ? Gate::open
                    : spec_.residual                     ? Gate::output
                                                         : Gate::recomputed;
  second_gate_ = gate == Gate::recomputed && also.data == nullptr ? gate : Gate::open;
  const Loops<T>& loops = kernels().of<T>();
  for_each_part(engine_.threads(), [&](int part) {
    clear_sums(part);
    for_each_image(x.shape, part, engine_.threads(), Order::forward, [&](const Pixels& pixels) {
      loops.sum_gradients({.x = x.data + pixels.first,
                           .y = y.data + pixels.first,
                           .dy = dy.data + pixels.first,
                           .also = at(also, pixels),
                           .count = pixels.count,
                           .mean = batch_.mean.data(),
                           .factor = batch_.factor.data(),
                           .shift = batch_.shift.data(),
                           .width = width_,
                           .gate = gate,
                           .sums = sums_of(part, 0).data(),
                           .products = sums_of(part, 1).data()});
    });
  });
}

void BatchNorm::Impl::sum_gradients(const ConstAnyView& x, const ConstAnyView& y, const AnyView& dy,
                                    const ConstAnyView& also, std::span<float> scale_gradient,
                                    std::span<float> shift_gradient) {
  with_type(spec_.type, [&]<typename T>(T /*of*/) {
    sum_gradients_as(x.as<T>(), y.as<T>(), dy.as<T>(), as_if_given<T>(also));
  });
  for (std::size_t c = 0; c < channels_; ++c) {
    const Sums sums = total(c);
    // With xn = (x - mean) * inverse: d shift = sum(dy), d scale = sum(dy * xn).
    shift_gradient[c] = static_cast<float>(sums.first);
    scale_gradient[c] = static_cast<float>(sums.second * inverse_[c]);
    set_means(c, sums);
  }
  if (shares()) share_gradient_sums();
}

// Sets what the second backward pass subtracts: the mean of dy, and that of dy times normalised x.
void BatchNorm::Impl::set_means(std::size_t channel, const Sums& sums) {
  set_lanes(offset_, channel, sums.first / samples_);
  set_lanes(slope_, channel, sums.second * inverse_[channel] * inverse_[channel] / samples_);
}

// dx depends on the sums of all ranks; the gradients of scale and shift stay those of this rank.
void BatchNorm::Impl::share_gradient_sums() {
  const auto shared = shared_memory_.as<double>().first(2 * channels_);
  for (std::size_t c = 0; c < channels_; ++c) {
    const Sums sums = total(c);
    shared[c] = sums.first;
    shared[channels_ + c] = sums.second;
  }
  sum_over_ranks_(shared);
  for (std::size_t c = 0; c < channels_; ++c) {
    set_means(c, {.first = shared[c], .second = shared[channels_ + c]});
  }
}

// The second pass of backward.
void BatchNorm::Impl::input_gradients(const ConstAnyView& x, const ConstAnyView& dy,
                                      const AnyView& dx) const {
  with_type(spec_.type,
            [&]<typename T>(T /*of*/) { input_gradients_as(x.as<T>(), dy.as<T>(), dx.as<T>()); });
}

template <typename T>
void BatchNorm::Impl::input_gradients_as(const View<const T>& x, const View<const T>& dy,
                                         const View<T>& dx) const {
  const Loops<T>& loops = kernels().of<T>();
  for_each_part(engine_.threads(), [&](int part) {
    for_each_image(x.shape, part, engine_.threads(), Order::backward, [&](const Pixels& pixels) {
      loops.input_gradients({.x = x.data + pixels.first,
                             .dy = dy.data + pixels.first,
                             .dx = dx.data + pixels.first,
                             .count = pixels.count,
                             .mean = batch_.mean.data(),
                             .factor = batch_.factor.data(),
                             .shift = batch_.shift.data(),
                             .offset = offset_.data(),
                             .slope = slope_.data(),
                             .width = width_,
                             .gate = second_gate_});
    });
  });
}

BatchNorm::BatchNorm(Engine& engine, const BatchNormSpec& spec, SumOverRanks sum_over_ranks) {
  const auto [n, h, w, c] = spec.input;
  if (n < 0 || h <= 0 || w <= 0 || c <= 0) {
    throw std::invalid_argument("BatchNorm: the extents of its input must be positive");
  }
  impl_ = std::make_unique<Impl>(engine.impl(), spec, std::move(sum_over_ranks));
}

BatchNorm::BatchNorm(BatchNorm&&) noexcept = default;
BatchNorm& BatchNorm::operator=(BatchNorm&&) noexcept = default;
BatchNorm::~BatchNorm() = default;

const BatchNormSpec& BatchNorm::spec() const noexcept { return impl_->spec(); }

// A rank without images takes part if statistics are shared: the others wait for its sums.
void BatchNorm::forward_training(ConstAnyView x, ConstAnyView residual, BatchNormParameters p,
                                 std::span<float> running_mean, std::span<float> running_variance,
                                 AnyView y) {
  require_forward(spec(), x, residual, p, running_mean.size(), running_variance.size(), y);
  if (x.shape.n == 0 && !impl_->shares()) return;
  impl_->measure(x, p);
  impl_->update_running(running_mean, running_variance);
  impl_->normalise(impl_->batch(), x, residual, y);
}

void BatchNorm::forward_inference(ConstAnyView x, ConstAnyView residual, BatchNormParameters p,
                                  std::span<const float> running_mean,
                                  std::span<const float> running_variance, AnyView y) {
  require_forward(spec(), x, residual, p, running_mean.size(), running_variance.size(), y);
  if (x.shape.n == 0) return;
  impl_->adopt_running(running_mean, running_variance, p);
  impl_->normalise(impl_->running(), x, residual, y);
}

void BatchNorm::backward(ConstAnyView x, ConstAnyView y, BatchNormParameters p, AnyView dy,
                         AnyView dx, std::span<float> scale_gradient,
                         std::span<float> shift_gradient, ConstAnyView also) {
  const Shape shape = required_shape(spec(), x, backward_call);
  require_shape(backward_call, "y", y, shape, spec().type);
  require_shape(backward_call, "dy", dy, shape, spec().type);
  require_shape(backward_call, "dx", dx, shape, spec().type);
  if (also.data != nullptr) require_shape(backward_call, "also", also, shape, spec().type);
  require_channels(backward_call, "scale", p.scale.size(), shape);
  require_channels(backward_call, "scale_gradient", scale_gradient.size(), shape);
  require_channels(backward_call, "shift_gradient", shift_gradient.size(), shape);
  if (shape.n == 0 && !impl_->shares()) {
    std::ranges::fill(scale_gradient, 0.0F);
    std::ranges::fill(shift_gradient, 0.0F);
    return;
  }
  // The first pass may write to dy (see SumGradients), and the second reads what it has left there;
  // so dx may lie over dy, which the executor makes use of.
  impl_->sum_gradients(x, y, dy, also, scale_gradient, shift_gradient);
  impl_->input_gradients(x, dy, dx);
}

}  // namespace rondo::tensor
