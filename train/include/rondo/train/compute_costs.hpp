#pragma once

#include <cstddef>
#include <string>

#include <rondo/tensor/tensor.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/model.hpp>

namespace rondo::train {

/// A layer as one rank runs it: `kind` has the filters or outputs that it computes, `input` the
/// part of the input that it reads (a gathered input is whole). Where it has a part of an image,
/// `input` has as many rows and columns as give its outputs with padding on all sides.
struct LocalWork {
  std::string layer = {};  ///< its name in the model
  LayerKind kind = {};
  tensor::Shape input = {};
  bool input_gradient = true;  ///< does anybody need the gradient of its input?
};

/// Seconds of a layer in a training step. Layers without weights have no backward_weights.
struct WorkSeconds {
  double forward = 0.0;
  double backward_weights = 0.0;
  double backward_data = 0.0;

  [[nodiscard]] constexpr double total() const noexcept {
    return forward + backward_weights + backward_data;
  }

  [[nodiscard]] friend constexpr WorkSeconds operator*(double factor,
                                                       const WorkSeconds& seconds) noexcept {
    return {.forward = factor * seconds.forward,
            .backward_weights = factor * seconds.backward_weights,
            .backward_data = factor * seconds.backward_data};
  }
};

/// The time that computing takes. The planner asks for it; nothing is measured meanwhile.
class RONDO_TRAIN_API ComputeCosts {
 public:
  ComputeCosts() = default;
  ComputeCosts(const ComputeCosts&) = delete;
  ComputeCosts& operator=(const ComputeCosts&) = delete;
  virtual ~ComputeCosts();

  /// Work on no samples takes no time.
  [[nodiscard]] virtual WorkSeconds seconds(const LocalWork& work) const = 0;
  /// The optimizer's pass over so many parameters.
  [[nodiscard]] virtual double update_seconds(std::size_t parameters) const = 0;
};

/// Flops of one direction of a convolution or fully connected layer: 2 per weight and output
/// position; 0 for others.
[[nodiscard]] RONDO_TRAIN_API double pass_flops(const LocalWork& work);

/// Convolutions and fully connected layers at so many flops per second; all else is free.
class RONDO_TRAIN_API FlopRate final : public ComputeCosts {
 public:
  /// Throws std::invalid_argument unless `flops` is greater than 0; infinity makes all free.
  explicit FlopRate(double flops);

  [[nodiscard]] WorkSeconds seconds(const LocalWork& work) const override;
  [[nodiscard]] double update_seconds(std::size_t parameters) const override;

 private:
  double flops_;
};

}  // namespace rondo::train
