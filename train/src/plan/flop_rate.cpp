#include <stdexcept>
#include <variant>

#include <rondo/train/compute_costs.hpp>

#include "model/specs.hpp"

namespace rondo::train {
namespace {

// Multiplications and additions of one pass; what has no weights counts as nothing.
struct PassFlops {
  tensor::Shape input;

  double operator()(const ConvolutionLayer& layer) const { return of(spec_of(layer, input)); }
  double operator()(const FullyConnectedLayer& layer) const { return of(spec_of(layer, input)); }
  double operator()(const BatchNormLayer& /*layer*/) const { return 0.0; }
  double operator()(const PoolingLayer& /*layer*/) const { return 0.0; }
  double operator()(const GlobalAveragePoolingLayer& /*layer*/) const { return 0.0; }

 private:
  template <typename Spec>
  static double of(const Spec& spec) {
    const tensor::Shape y = spec.output();
    return 2.0 * static_cast<double>(y.n * y.h * y.w) * static_cast<double>(spec.weights());
  }
};

}  // namespace

ComputeCosts::~ComputeCosts() = default;

double pass_flops(const LocalWork& work) { return std::visit(PassFlops{work.input}, work.kind); }

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
