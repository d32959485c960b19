#pragma once

#include <optional>
#include <vector>

namespace rondo::tools {

/// One step of a learning-rate sweep.
struct RatePoint {
  double learning_rate = 0.0;
  double loss = 0.0;      ///< mean over the step's samples
  double smoothed = 0.0;  ///< weighted mean of the losses so far, later ones more
};

/// The losses of a sweep, smoothed by an exponential mean: that of a single batch jumps.
class SmoothedLoss {
 public:
  /// The mean with `loss` as the newest. Nothing: training has diverged, because the mean is more
  /// than 4 times its least value so far, or NaN or Inf.
  [[nodiscard]] std::optional<double> add(double loss);

 private:
  double sum_ = 0.0;
  double weight_ = 0.0;
  std::optional<double> least_ = {};
};

/// The result of a sweep.
struct RateSweep {
  std::vector<RatePoint> points = {};      ///< up to where training diverged
  std::optional<double> suggestion = {};   ///< where the loss falls fastest; nothing: it does not
  std::optional<double> lowest = {};       ///< the rate at which the smoothed loss was lowest
  std::optional<double> diverged_at = {};  ///< the first rate that is too large; nothing: none was
};

/// Smooths the losses, cuts what follows a divergence, and looks for the steepest descent before
/// the lowest loss. Rates must rise.
[[nodiscard]] RateSweep analyse_rates(const std::vector<double>& rates,
                                      const std::vector<double>& losses);

}  // namespace rondo::tools
