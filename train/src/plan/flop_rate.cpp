#include <stdexcept>

#include <rondo/train/compute_costs.hpp>

#include "layers/layer_type.hpp"

namespace rondo::train {
ComputeCosts::~ComputeCosts() = default;

double pass_flops(const LocalWork& work) { return work.kind->flops(work.input); }

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
