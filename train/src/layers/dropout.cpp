// Dropout without a stored mask. Which elements are dropped is drawn by a counter-based generator
// for (seed, layer, step, element), where the element is counted in the value of the whole global
// batch: forward and backward draw the same, and so do any number of ranks, micro-batches and
// threads, whichever part of the value a rank holds.

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/team.hpp>
#include <rondo/train/partition.hpp>

#include "data/random.hpp"
#include "layers/layer_type.hpp"

namespace rondo::train {
namespace {

// A part of a value, and where it lies in the whole.
struct DroppedPart {
  tensor::Shape whole = {};
  Box box = {};
};

class DropoutKernel final : public LayerKernel {
 public:
  DropoutKernel(tensor::Engine& engine, double probability, const DroppedPart& part)
      : engine_(engine),
        dropped_below_(std::floor(probability * 0x1p32)),
        // Kept elements are scaled up in training, so that inference has nothing to do.
        scale_(static_cast<float>(1.0 / (1.0 - probability))),
        part_(part) {}

  void forward_training(const ForwardOperands& operands, std::span<float> /*statistics*/) override {
    drop(operands.random, operands.x, operands.y);
  }

  void forward_inference(const ForwardOperands& operands,
                         std::span<const float> /*statistics*/) override {
    tensor::convert(engine_, operands.x, operands.y);  // copies: their type is the same
  }

  void backward_parameters(const BackwardOperands& /*operands*/) override {}

  void backward_input(const BackwardOperands& operands) override {
    if (operands.dx.data != nullptr) drop(operands.random, operands.dy, operands.dx);
  }

 private:
  // `into` may be `from`.
  void drop(const RandomKey& key, const tensor::ConstAnyView& from,
            const tensor::AnyView& into) const {
    tensor::with_type(into.type, [&]<typename T>(T /*of*/) {
      drop_pixels(key, from.as<T>().data, into.as<T>().data);
    });
  }

  template <typename T>
  void drop_pixels(const RandomKey& key, const T* from, T* into) const {
    const std::int64_t channels = part_.box.c.size();
    const std::int64_t pixels = channels == 0 ? 0 : part_.box.size() / channels;
    tensor::for_each_share(engine_, pixels, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t pixel = first; pixel < last; ++pixel) {
        // Rows of channels are dense both in the part and in the whole, so elements are numbered
        // row by row.
        const std::int64_t at = pixel * channels;
        drop_row(key, element_of(key, pixel), channels, from + at, into + at);
      }
    });
  }

  // The number of a pixel's first channel among the elements of the global batch.
  [[nodiscard]] std::int64_t element_of(const RandomKey& key, std::int64_t pixel) const noexcept {
    const Box& box = part_.box;
    const tensor::Shape& whole = part_.whole;
    const std::int64_t w = box.w.first + pixel % box.w.size();
    const std::int64_t h = box.h.first + pixel / box.w.size() % box.h.size();
    const std::int64_t n = key.first_sample + box.n.first + pixel / (box.w.size() * box.h.size());
    return ((n * whole.h + h) * whole.w + w) * whole.c + box.c.first;
  }

  // Four elements share a draw, by their number in the whole.
  template <typename T>
  void drop_row(const RandomKey& key, std::int64_t element, std::int64_t count, const T* from,
                T* into) const {
    std::array<std::uint32_t, 4> words{};
    for (std::int64_t i = 0; i < count; ++i) {
      const auto number = static_cast<std::uint64_t>(element + i);
      if (i == 0 || number % 4 == 0) {
        words = draw(key.layer, static_cast<std::uint32_t>(key.step), number / 4, Purpose::dropout);
      }
      const bool dropped = static_cast<double>(words[number % 4]) < dropped_below_;
      into[i] = tensor::from_float<T>(dropped ? 0.0F : scale_ * tensor::to_float(from[i]));
    }
  }

  tensor::Engine& engine_;
  double dropped_below_;  // of the 2^32 values of a random word
  float scale_;
  DroppedPart part_;
};

class Dropout final : public LayerType {
 public:
  explicit Dropout(const DropoutLayer& layer) : probability_(layer.probability) {}

  std::string text() const override { return fmt::format("dropout {}", probability_); }
  // A predictor leaves the layer out (only_trains).
  LayerTraits traits() const noexcept override {
    return {.in_place = true, .only_trains = true, .any_type = true};
  }

  tensor::Shape output(const tensor::Shape& input) const override {
    if (probability_ >= 0.0 && probability_ < 1.0) return input;
    throw std::invalid_argument(
        fmt::format("drops with probability {}, which must lie in [0, 1)", probability_));
  }

  std::unique_ptr<LayerKernel> kernel(tensor::Engine& engine, const tensor::Shape& input,
                                      bool /*input_gradient*/,
                                      KernelPurpose /*purpose*/) const override {
    return std::make_unique<DropoutKernel>(engine, probability_, DroppedPart{input, whole(input)});
  }

  std::unique_ptr<LayerKernel> grid_kernel(const KernelContext& context, const NodeLayout& layout,
                                           bool /*input_gradient*/) const override {
    return std::make_unique<DropoutKernel>(
        context.engine, probability_,
        DroppedPart{layout.x.extents(), layout.x.box_of(context.rank())});
  }

 private:
  double probability_;
};

}  // namespace

std::shared_ptr<const LayerType> make_layer_type(const DropoutLayer& layer) {
  return std::make_shared<Dropout>(layer);
}

DescribedKind describe_dropout() {
  return {.name = "dropout",
          .keys = {"probability"},
          .make = [](const Experiment::Layer& layer) -> LayerKind {
            return DropoutLayer{.probability = layer.probability};
          }};
}

}  // namespace rondo::train
