#include "layers/space_geometry.hpp"

#include "model/specs.hpp"

namespace rondo::train {

SpaceGeometry::SpaceGeometry(const ConvolutionLayer& layer, const GridLayer& place, int rank)
    : windows(windows_of(layer)),
      x(place.x.box_of(rank)),
      height(place.x.extents().h),
      forward(forward_halo(place.x, place.y, windows, rank)),
      backward(backward_halo(place.x, place.y, windows, rank)),
      forward_local(forward_windows(forward, windows, x)),
      reads(forward_local.inputs_of(x)) {
  if (backward.needed.empty()) return;
  backward_local = backward_windows(backward, windows);
  reached = backward_local.inputs_of(x);
}

tensor::ConvolutionSpec SpaceGeometry::forward_spec(const ConvolutionLayer& layer) const {
  auto spec = within(spec_of(layer, reads.shape()), forward_local);
  spec.input_gradient = tensor::InputGradient::unused;
  return spec;
}

tensor::ConvolutionSpec SpaceGeometry::data_spec(const ConvolutionLayer& layer) const {
  auto spec = within(spec_of(layer, reached.shape()), backward_local);
  spec.bias = false;
  spec.activation = tensor::Activation::none;
  spec.weight_gradient = tensor::WeightGradient::unused;
  return spec;
}

bool SpaceGeometry::has_one_kernel(const ConvolutionLayer& layer) const {
  if (forward.own.empty() || reached.empty()) return false;
  const auto a = forward_spec(layer);
  const auto b = data_spec(layer);
  return a.input == b.input && a.pad_top == b.pad_top && a.pad_bottom == b.pad_bottom &&
         a.pad_left == b.pad_left && a.pad_right == b.pad_right;
}

}  // namespace rondo::train
