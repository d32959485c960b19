// Softmax cross-entropy on the calling thread: logits are few beside the activations before them.
// Everything is computed in double, and rounded once.

#include <rondo/tensor/cross_entropy.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "engine_impl.hpp"

namespace rondo::tensor {
namespace {

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

// With t = (1 - s) on the label plus s / classes everywhere, sum(t) = 1, so the loss
// -sum t log p is log(sum exp) - sum t z, and its gradient p - t. Logits are shifted by their
// maximum against overflow.
double loss_of_image(std::span<const float> logits, std::size_t label, double smoothing,
                     float* gradient) {
  const double largest = *std::ranges::max_element(logits);
  const double spread = smoothing / static_cast<double>(logits.size());
  double exponentials = 0.0;
  double weighted = (1.0 - smoothing) * (static_cast<double>(logits[label]) - largest);
  for (const float logit : logits) {
    const double shifted = static_cast<double>(logit) - largest;
    exponentials += std::exp(shifted);
    weighted += spread * shifted;
  }
  if (gradient != nullptr) {
    for (std::size_t k = 0; k < logits.size(); ++k) {
      const double p = std::exp(static_cast<double>(logits[k]) - largest) / exponentials;
      const double target = spread + (k == label ? 1.0 - smoothing : 0.0);
      gradient[k] = static_cast<float>(p - target);
    }
  }
  return std::log(exponentials) - weighted;
}

}  // namespace

Loss softmax_cross_entropy(Engine& engine, View<const float> logits,
                           std::span<const std::int32_t> labels, float smoothing,
                           View<float> gradient) {
  const Shape& shape = logits.shape;
  require_shape("softmax_cross_entropy", "logits", logits, {shape.n, 1, 1, shape.c});
  if (gradient.data != nullptr) {
    require_shape("softmax_cross_entropy", "gradient", gradient, shape);
  }
  require_labels(labels, shape);
  engine.impl().enter();
  Loss loss;
  for (std::int64_t n = 0; n < shape.n; ++n) {
    const std::span image(logits.image(n), static_cast<std::size_t>(shape.c));
    const auto label = static_cast<std::size_t>(labels[static_cast<std::size_t>(n)]);
    const auto top = std::ranges::max_element(image) - image.begin();
    if (static_cast<std::size_t>(top) == label) ++loss.correct;
    loss.sum += loss_of_image(image, label, static_cast<double>(smoothing),
                              gradient.data == nullptr ? nullptr : gradient.image(n));
  }
  return loss;
}

}  // namespace rondo::tensor
