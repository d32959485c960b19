// Loops over whole tensors: ReLU backward, sums of gradients, conversion between fp32 and bf16,
// biases. Each thread takes its share of the pixels, in fixed cuts, so that bits do not depend on
// timing. They are as fast as memory; what is left to choose is how often each tensor is read.
//
// The loss, softmax cross-entropy, runs on the calling thread: logits are few beside the
// activations before them. It is computed in double and rounded once.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include <rondo/tensor/elementwise.hpp>

#include "engine_impl.hpp"
#include "kernels/kernels.hpp"

namespace rondo::tensor {
namespace {

// Runs loop(from, into, count) over both views on the team.
template <typename Loop, typename From, typename Into>
void run(Engine::Impl& engine, Loop loop, const View<const From>& from, const View<Into>& into) {
  engine.enter();
  for_each_part(engine.threads(), [&](int part) {
    for_each_image(from.shape, part, engine.threads(), Order::forward, [&](const Pixels& pixels) {
      loop(from.data + pixels.first, into.data + pixels.first, pixels.count);
    });
  });
}

void require_channels(const char* call, std::size_t given, const Shape& shape) {
  if (static_cast<std::int64_t>(given) == shape.c) return;
  throw std::invalid_argument(std::string(call) + ": " + std::to_string(given) + " elements for " +
                              std::to_string(shape.c) + " channels");
}

// One loop for each combination, so that the compiler can use vectors. NaN stays NaN.
template <bool biased, bool rectified, typename T>
void finish(const float* bias, std::size_t channels, T* y, std::size_t count) {
  for (T* pixel = y; pixel != y + count; pixel += channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      const float given = to_float(pixel[c]);
      const float sum = biased ? given + bias[c] : given;
      pixel[c] = from_float<T>(rectified && sum < 0.0F ? 0.0F : sum);
    }
  }
}

// So many channels are summed at once: a cache line of each pixel.
constexpr std::int64_t channels_at_once = 16;

// In the order of the pixels, so that the bits depend on the values alone.
template <typename T>
void sum_channels(const View<const T>& from, std::int64_t first, std::int64_t count, float* sums) {
  std::array<double, channels_at_once> total{};
  const std::int64_t pixels = from.shape.h * from.shape.w;
  for (std::int64_t n = 0; n < from.shape.n; ++n) {
    const T* pixel = from.image(n) + first;
    for (std::int64_t i = 0; i < pixels; ++i, pixel += from.shape.c) {
      for (std::int64_t c = 0; c < count; ++c) {
        total[static_cast<std::size_t>(c)] += static_cast<double>(to_float(pixel[c]));
      }
    }
  }
  std::transform(total.begin(), total.begin() + count, sums,
                 [](double sum) { return static_cast<float>(sum); });
}

// A number is NaN or infinite when all bits of its exponent are set. Integers are compared, and
// nothing ends the loop early, so that the compiler can use vectors.
template <typename Bits, typename T>
bool none_has(Bits exponent, std::span<const T> values) noexcept {
  Bits found = 0;
  for (const T value : values) {
    found |= static_cast<Bits>((std::bit_cast<Bits>(value) & exponent) == exponent);
  }
  return found == 0;
}

}  // namespace

bool all_finite(std::span<const float> values) noexcept {
  return none_has<std::uint32_t>(0x7f800000U, values);
}

bool all_finite(std::span<const Bfloat16> values) noexcept {
  return none_has<std::uint16_t>(0x7f80U, values);
}

void relu(Engine& engine, ConstAnyView x, AnyView y, float most) {
  require_shape("relu", "y", y, x.shape, x.type);
  require_shape("relu", "x", x, x.shape, x.type);
  with_type(x.type, [&]<typename T>(T /*of*/) {
    const auto loop = kernels().of<T>().relu;
    run(
        engine.impl(),
        [=](const T* from, T* into, std::size_t count) { loop(from, into, count, most); },
        x.as<T>(), y.as<T>());
  });
}

void backward_relu(Engine& engine, ConstAnyView y, AnyView dy, float most) {
  require_shape("backward_relu", "dy", dy, y.shape, y.type);
  require_shape("backward_relu", "y", y, y.shape, y.type);
  with_type(y.type, [&]<typename T>(T /*of*/) {
    const auto loop = kernels().of<T>().backward_relu;
    run(
        engine.impl(),
        [=](const T* from, T* into, std::size_t count) { loop(from, into, count, most); },
        y.as<T>(), dy.as<T>());
  });
}

void add(Engine& engine, ConstAnyView from, AnyView into) {
  require_shape("add", "into", into, from.shape, from.type);
  require_shape("add", "from", from, from.shape, from.type);
  with_type(from.type, [&]<typename T>(T /*of*/) {
    run(engine.impl(), kernels().of<T>().add, from.as<T>(), into.as<T>());
  });
}

void convert(Engine& engine, ConstAnyView from, AnyView into) {
  require_shape("convert", "into", into, from.shape, into.type);
  require_shape("convert", "from", from, from.shape, from.type);
  if (from.type == into.type) {
    // Equal types are copied; memcpy may not get a null pointer, which an empty tensor has.
    const auto bytes = static_cast<std::size_t>(from.shape.size()) * size_of(from.type);
    if (bytes > 0) std::memcpy(into.data, from.data, bytes);
  } else if (into.type == DataType::bf16) {
    run(engine.impl(), kernels().narrow, from.as<float>(), into.as<Bfloat16>());
  } else {
    run(engine.impl(), kernels().widen, from.as<Bfloat16>(), into.as<float>());
  }
}

void add_bias(Engine& engine, std::span<const float> bias, Activation activation, AnyView y) {
  require_shape("add_bias", "y", y, y.shape, y.type);
  if (!bias.empty()) require_channels("add_bias", bias.size(), y.shape);
  const bool rectified = activation == Activation::relu;
  if (bias.empty() && !rectified) return;
  // Without a bias and without a ReLU there is nothing to do, so three loops are enough.
  Engine::Impl& on = engine.impl();
  on.enter();
  with_type(y.type, [&]<typename T>(T /*of*/) {
    const auto loop = bias.empty() ? finish<false, true, T>
                      : rectified  ? finish<true, true, T>
                                   : finish<true, false, T>;
    T* const into = y.as<T>().data;
    for_each_part(on.threads(), [&](int part) {
      for_each_image(y.shape, part, on.threads(), Order::forward, [&](const Pixels& pixels) {
        loop(bias.data(), static_cast<std::size_t>(y.shape.c), into + pixels.first, pixels.count);
      });
    });
  });
}

// Threads take channels, not pixels: so no sums of threads need be added.
void sum_pixels(Engine& engine, ConstAnyView from, std::span<float> sums) {
  require_shape("sum_pixels", "from", from, from.shape, from.type);
  require_channels("sum_pixels", sums.size(), from.shape);
  const std::int64_t channels = from.shape.c;
  // A thread reads all pixels, but only its blocks of channels of each: whole cache lines, so that
  // no line is read by two threads where the channels are a multiple of 16.
  const std::int64_t blocks = (channels + channels_at_once - 1) / channels_at_once;
  Engine::Impl& on = engine.impl();
  on.enter();
  with_type(from.type, [&]<typename T>(T /*of*/) {
    for_each_part(on.threads(), [&](int part) {
      const Cut mine = cut(blocks, part, on.threads());
      for (std::int64_t block = mine.first; block < mine.last; ++block) {
        const std::int64_t first = block * channels_at_once;
        sum_channels(from.as<T>(), first, std::min(channels_at_once, channels - first),
                     sums.data() + first);
      }
    });
  });
}

namespace {

// The class that an image shows, or two of them.
struct Target {
  std::size_t label = 0;
  std::size_t other = 0;
  double share = 1.0;  // of `label`

  [[nodiscard]] double on(std::size_t k) const {
    return (k == label ? share : 0.0) + (k == other ? 1.0 - share : 0.0);
  }
};

void require_labels(std::span<const std::int32_t> labels, const Shape& shape) {
  if (static_cast<std::int64_t>(labels.size()) != shape.n) {
    throw std::invalid_argument("softmax_cross_entropy: " + std::to_string(labels.size()) +
                                " labels for " + std::to_string(shape.n) + " images");
  }
  const auto wrong = std::ranges::find_if(
      labels, [&](std::int32_t label) { return label < 0 || label >= shape.image(); });
  if (wrong == labels.end()) return;
  throw std::invalid_argument("softmax_cross_entropy: label " + std::to_string(*wrong) +
                              " of image " + std::to_string(wrong - labels.begin()) +
                              " is outside 0.." + std::to_string(shape.image() - 1));
}

// With t = (1 - s) on the label, or shared by two, plus s / classes everywhere, sum(t) = 1, so the
// loss -sum t log p is log(sum exp) - sum t z, and its gradient p - t. Logits are shifted by their
// maximum against overflow.
double loss_of_image(std::span<const float> logits, const Target& target, double smoothing,
                     float* gradient) {
  // NaN among the logits makes the loss NaN, which the trainer looks for.
  const double largest = *std::ranges::max_element(logits);
  const double spread = smoothing / static_cast<double>(logits.size());
  double exponentials = 0.0;
  const auto shifted_of = [&](std::size_t k) { return static_cast<double>(logits[k]) - largest; };
  double weighted = target.share * shifted_of(target.label);
  if (target.share < 1.0) weighted += (1.0 - target.share) * shifted_of(target.other);
  weighted *= 1.0 - smoothing;
  for (const float logit : logits) {
    const double shifted = static_cast<double>(logit) - largest;
    exponentials += std::exp(shifted);
    // Without smoothing a logit of -Inf, which no other follows, is no part of the loss.
    if (spread > 0.0) weighted += spread * shifted;
  }
  if (gradient != nullptr) {
    for (std::size_t k = 0; k < logits.size(); ++k) {
      const double p = std::exp(static_cast<double>(logits[k]) - largest) / exponentials;
      gradient[k] = static_cast<float>(p - (spread + (1.0 - smoothing) * target.on(k)));
    }
  }
  return std::log(exponentials) - weighted;
}

}  // namespace

Loss softmax_cross_entropy(Engine& engine, View<const float> logits,
                           std::span<const std::int32_t> labels, float smoothing,
                           View<float> gradient, const MixedLabels& mixed) {
  const Shape& shape = logits.shape;
  require_shape("softmax_cross_entropy", "logits", logits, {shape.n, 1, 1, shape.c});
  if (gradient.data != nullptr) {
    require_shape("softmax_cross_entropy", "gradient", gradient, shape);
  }
  require_labels(labels, shape);
  if (!mixed.others.empty()) require_labels(mixed.others, shape);
  const std::span others = mixed.others.empty() ? labels : mixed.others;
  engine.impl().enter();
  Loss loss;
  for (std::int64_t n = 0; n < shape.n; ++n) {
    const std::span image(logits.image(n), static_cast<std::size_t>(shape.c));
    const auto index = static_cast<std::size_t>(n);
    const Target target{.label = static_cast<std::size_t>(labels[index]),
                        .other = static_cast<std::size_t>(others[index]),
                        .share = mixed.others.empty() ? 1.0 : mixed.share};
    // The first one of equal logits counts as the answer.
    const auto top = std::ranges::max_element(image) - image.begin();
    const std::size_t most = target.share >= 0.5 ? target.label : target.other;
    if (static_cast<std::size_t>(top) == most) ++loss.correct;
    loss.sum += loss_of_image(image, target, static_cast<double>(smoothing),
                              gradient.data == nullptr ? nullptr : gradient.image(n));
  }
  return loss;
}

}  // namespace rondo::tensor
