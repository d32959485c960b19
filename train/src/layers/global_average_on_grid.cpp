// The mean of every channel. Where pictures are split in space, sums over the pixels of each rank
// meet within the group.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <vector>

#include <rondo/transport/plan.hpp>

#include "grid/replica.hpp"
#include "layers/grid_kernels.hpp"
#include "layers/layer_kernel.hpp"

namespace rondo::train {
namespace {

class GlobalAverageInSpace final : public OneForwardKernel {
 public:
  GlobalAverageInSpace(const GridContext& context, const GridLayer& place)
      : own_(place.x.box_of(context.communicators.rank())),
        pixels_(static_cast<float>(place.x.extents().h * place.x.extents().w)),
        counts_(replica_of(place.x, context.communicators.rank()) == 0),
        sums_(static_cast<std::size_t>(own_.n.size() * own_.c.size()), context.memory),
        meet_(context.communicators.group().plan_allreduce(std::span<float>(sums_))) {}

  void backward_parameters(const BackwardOperands& /*operands*/) override {}

  void backward_input(const BackwardOperands& operands) override {
    float* dx = operands.dx.data;
    if (dx == nullptr) return;
    const std::int64_t channels = own_.c.size();
    for (std::int64_t n = 0; n < own_.n.size(); ++n) {
      const float* dy = operands.dy.data + n * channels;
      for (std::int64_t pixel = 0; pixel < own_.h.size() * own_.w.size(); ++pixel) {
        for (std::int64_t c = 0; c < channels; ++c) dx[c] = dy[c] / pixels_;
        dx += channels;
      }
    }
  }

 private:
  void add_pixels(const float* x) {
    const std::int64_t channels = own_.c.size();
    float* sums = sums_.data();
    for (std::int64_t n = 0; n < own_.n.size(); ++n) {
      for (std::int64_t pixel = 0; pixel < own_.h.size() * own_.w.size(); ++pixel) {
        for (std::int64_t c = 0; c < channels; ++c) sums[c] += x[c];
        x += channels;
      }
      sums += channels;
    }
  }

  void forward(const ForwardOperands& operands) override {
    std::ranges::fill(sums_, 0.0F);
    if (counts_) add_pixels(operands.x.data);
    meet_.start().wait();
    std::ranges::transform(sums_, operands.y.data, [this](float sum) { return sum / pixels_; });
  }

  Box own_;  ///< of x
  float pixels_;
  bool counts_;                   ///< its pixels: one of the ranks that hold them does
  std::pmr::vector<float> sums_;  ///< of own pixels, then of all: [n, c]
  transport::Plan meet_;
};

}  // namespace

std::unique_ptr<LayerKernel> make_global_average_on_grid(const GridContext& context,
                                                         const GridLayer& place) {
  const Parts& parts = place.x.parts();
  const int rank = context.communicators.rank();
  if (parts.h * parts.w == 1) {
    return make_layer_kernel(context.engine, GlobalAveragePoolingLayer(),
                             place.x.box_of(rank).shape(), true, context.purpose);
  }
  const Box x = place.x.box_of(rank);
  const Box means = {.n = x.n, .h = {0, 1}, .w = {0, 1}, .c = x.c};
  if (parts.c > 1 || parts.n != context.communicators.grid().pc || place.y.box_of(rank) != means) {
    throw std::invalid_argument(
        "a global average of pictures split in space needs all channels of its group's samples "
        "on every rank; bring its input into another layout first");
  }
  return std::make_unique<GlobalAverageInSpace>(context, place);
}

}  // namespace rondo::train
