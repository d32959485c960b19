// Pooling whose pictures may be split in space. Windows that cross a cut are computed by the rank
// that holds their output, from x with its halo; backward gives it gradients of the halo, too,
// which go home and are added there. So ties go where the unsplit kernel puts them, and an average
// counts what the unsplit one counts: padding is left at the picture's borders alone.

#include <algorithm>
#include <memory>
#include <optional>

#include <rondo/tensor/pooling.hpp>

#include "grid/halo_return.hpp"
#include "grid/local_windows.hpp"
#include "layers/grid_kernels.hpp"
#include "layers/layer_kernel.hpp"
#include "layers/needed_part.hpp"
#include "model/specs.hpp"

namespace rondo::train {
namespace {

class PoolingInSpace final : public OneForwardKernel {
 public:
  PoolingInSpace(const GridContext& context, const PoolingLayer& layer, const GridLayer& place)
      : PoolingInSpace(
            context, layer, place,
            forward_halo(place.x, place.y, windows_of(layer), context.communicators.rank()),
            forward_needs(place.x, place.y, windows_of(layer))) {}

  void backward_parameters(const BackwardOperands& /*operands*/) override {}

  void backward_input(const BackwardOperands& operands) override {
    float* dx = operands.dx.data;
    if (dx == nullptr) return;
    if (x_.reads_own()) {
      if (kernel_) kernel_->backward(operands.dy, operands.dx);
      home_->start(dx);
    } else {
      if (kernel_) kernel_->backward(operands.dy, gradient_.view());
      std::fill_n(dx, own_.size(), 0.0F);
      home_->start(gradient_.data(), dx);
    }
    home_->finish(dx);
  }

  [[nodiscard]] std::string implementation() const override {
    return kernel_ ? kernel_->implementation() : std::string();
  }

 private:
  PoolingInSpace(const GridContext& context, const PoolingLayer& layer, const GridLayer& place,
                 const Halo& halo, const std::vector<Box>& needs)
      : own_(place.x.box_of(context.communicators.rank())),
        reads_(forward_windows(halo, windows_of(layer), own_).inputs_of(own_)),
        x_(context, place.x, needs, reads_) {
    if (context.trains()) {
      home_.emplace(context.communicators.all(),
                    halo_return(place.x, needs, context.communicators.rank()), reads_, own_,
                    context.memory, Arrival::adds);
    }
    if (halo.own.empty()) return;
    auto spec =
        within(spec_of(layer, reads_.shape()), forward_windows(halo, windows_of(layer), own_));
    if (!context.trains()) {
      spec.input_gradient = tensor::InputGradient::unused;
    } else if (!x_.reads_own()) {
      gradient_ = tensor::Tensor(reads_.shape(), context.engine.layer_memory());
    }
    kernel_.emplace(context.engine, spec);
  }

  void forward(const ForwardOperands& operands) override {
    x_.start(operands.x);
    const auto x = x_.finish();
    if (kernel_) kernel_->forward(x, operands.y);
  }

  Box own_;  ///< of x and dx
  Box reads_;
  NeededPart x_;
  std::optional<Exchange> home_;           ///< none: no gradient is wanted
  tensor::Tensor gradient_;                ///< of x with its halo
  std::optional<tensor::Pooling> kernel_;  ///< none: no output is ours
};

}  // namespace

std::unique_ptr<LayerKernel> make_pooling_in_space(const GridContext& context,
                                                   const PoolingLayer& layer,
                                                   const GridLayer& place) {
  if (place.x.parts().h * place.x.parts().w > 1) {
    return std::make_unique<PoolingInSpace>(context, layer, place);
  }
  const tensor::Shape x = place.x.box_of(context.communicators.rank()).shape();
  return make_layer_kernel(context.engine, layer, x, true, context.purpose);
}

}  // namespace rondo::train
