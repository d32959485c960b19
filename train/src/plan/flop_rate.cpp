#include <stdexcept>
#include <type_traits>
#include <variant>

#include <rondo/train/compute_costs.hpp>

#include "model/specs.hpp"

namespace rondo::train {

ComputeCosts::~ComputeCosts() = default;

double pass_flops(const LocalWork& work) {
  return std::visit(
      [&]<typename Kind>(const Kind& kind) {
        constexpr bool convolution = std::is_same_v<Kind, ConvolutionLayer>;
        if constexpr (convolution || std::is_same_v<Kind, FullyConnectedLayer>) {
          const auto spec = spec_of(kind, work.input);
          const tensor::Shape y = spec.output();
          const std::int64_t weights = spec.weights();
          return 2.0 * static_cast<double>(y.n * y.h * y.w) * static_cast<double>(weights);
        } else {
          return 0.0;
        }
      },
      work.kind);
}

FlopRate::FlopRate(double flops) : flops_(flops) {
  if (!(flops > 0.0)) throw std::invalid_argument("flop rate: must be greater than 0");
}

WorkSeconds FlopRate::seconds(const LocalWork& work) const {
  const double pass = pass_flops(work) / flops_;
  return {
      .forward = pass, .backward_weights = pass, .backward_data = work.input_gradient ? pass : 0.0};
}

double FlopRate::update_seconds(std::size_t /*parameters*/) const { return 0.0; }

}  // namespace rondo::train
