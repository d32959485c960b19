#include "base/iteration.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace rondo::sync {

Iteration::Iteration(std::string_view scheme, std::span<const Layer> layers)
    : scheme_(scheme), layers_(layers), final_(layers.size(), 0) {}

void Iteration::begin(const Step& step) {
  expect_between("begin()");
  if (step.global_samples == 0) {
    throw std::invalid_argument(
        named("step " + std::to_string(step.index) + " has no samples on any rank"));
  }
  step_ = step;
  open_ = true;
  std::ranges::fill(final_, std::uint8_t{0});
}

void Iteration::layer_final(std::size_t layer) {
  expect_open("gradients_final()");
  if (layer >= final_.size()) {
    throw std::invalid_argument(named("there is no layer " + std::to_string(layer)));
  }
  if (std::exchange(final_[layer], std::uint8_t{1}) != 0) {
    throw std::invalid_argument(named("layer " + layers_[layer].name +
                                      " is final for the second time in step " +
                                      std::to_string(step_.index)));
  }
}

void Iteration::expect_complete() const {
  expect_open("finish()");
  const auto missing = std::ranges::find(final_, std::uint8_t{0});
  if (missing == final_.end()) return;
  const auto layer = static_cast<std::size_t>(missing - final_.begin());
  throw std::logic_error(
      named("finish() before the gradients of layer " + layers_[layer].name + " are final"));
}

void Iteration::expect_between(std::string_view call) const {
  if (!open_) return;
  throw std::logic_error(
      named(std::string(call) + " in the middle of step " + std::to_string(step_.index)));
}

void Iteration::expect_open(std::string_view call) const {
  if (!open_) throw std::logic_error(named(std::string(call) + " before begin()"));
}

std::string Iteration::named(std::string_view text) const {
  return std::string(scheme_) + ": " + std::string(text);
}

}  // namespace rondo::sync
