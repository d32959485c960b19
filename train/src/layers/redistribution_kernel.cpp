#include <memory>
#include <optional>

#include "grid/exchange.hpp"
#include "layers/grid_kernels.hpp"

namespace rondo::train {
namespace {

Exchange exchange_of(const GridContext& context, const Partition& from, const Partition& to) {
  const int rank = context.communicators.rank();
  return {context.communicators.all(), redistribution(from, to, rank), from.box_of(rank),
          to.box_of(rank), context.memory};
}

/// Gradients go back as values came: a rank that holds a copy of a value holds its whole gradient,
/// so none are added up.
class RedistributionKernel final : public OneForwardKernel {
 public:
  RedistributionKernel(const GridContext& context, const Partition& from, const Partition& to)
      : there_(exchange_of(context, from, to)) {
    if (context.trains()) back_.emplace(exchange_of(context, to, from));
  }

  void backward_parameters(const BackwardOperands& /*operands*/) override {}
  void backward_input(const BackwardOperands& operands) override {
    if (operands.dx.data == nullptr) return;  // the model's input: nobody wants its gradient
    back_->start(operands.dy.data, operands.dx.data);
    back_->finish(operands.dx.data);
  }

 private:
  void forward(const ForwardOperands& operands) override {
    there_.start(operands.x.data, operands.y.data);
    there_.finish(operands.y.data);
  }

  Exchange there_;
  std::optional<Exchange> back_;  ///< none: no gradient is wanted
};

}  // namespace

std::unique_ptr<LayerKernel> make_redistribution(const GridContext& context, const Partition& from,
                                                 const Partition& to) {
  return std::make_unique<RedistributionKernel>(context, from, to);
}

}  // namespace rondo::train
