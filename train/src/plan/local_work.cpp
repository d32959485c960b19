#include "plan/local_work.hpp"

#include <algorithm>
#include <optional>
#include <variant>

namespace rondo::train {
namespace {

std::int64_t divided(std::int64_t count, int parts) { return (count + parts - 1) / parts; }

// Inputs that make so many outputs where both ends are padded.
std::int64_t inputs_for(std::int64_t outputs, const Window& window) {
  const std::int64_t padding = window.before + window.after;
  return std::max<std::int64_t>((outputs - 1) * window.stride + window.kernel - padding, 1);
}

void take_part_of_picture(const JobLayer& layer, const LayerSplit& split, tensor::Shape& input) {
  const std::optional<Windows> windows = windows_if_any(layer);
  if (!windows) {
    input.h = divided(layer.x.h, split.h);
    input.w = divided(layer.x.w, split.w);
    return;
  }
  if (split.h > 1) input.h = inputs_for(divided(layer.y.h, split.h), windows->h);
  if (split.w > 1) input.w = inputs_for(divided(layer.y.w, split.w), windows->w);
}

// What a rank has of the channels. Layers without weights have the same part of all.
class ChannelTaker {
 public:
  ChannelTaker(const GridJob& job, const LayerSplit& split, tensor::Shape& input)
      : ranks_(job.grid.pr), split_(split), input_(input) {}

  void operator()(ConvolutionLayer& layer) const {
    input_.c = divided(input_.c, split_.channels.channels);
    layer.filters = divided(layer.filters, split_.channels.filters);
  }
  void operator()(FullyConnectedLayer& layer) const {
    layer.outputs = divided(layer.outputs, ranks_);
  }
  void operator()(BatchNormLayer& /*layer*/) const { follow(); }
  void operator()(PoolingLayer& /*layer*/) const { follow(); }
  void operator()(GlobalAveragePoolingLayer& /*layer*/) const { follow(); }

 private:
  void follow() const { input_.c = divided(input_.c, ranks_); }

  int ranks_;
  const LayerSplit& split_;
  tensor::Shape& input_;
};

}  // namespace

LocalWork local_work(const GridJob& job, const JobLayer& layer, const LayerSplit& split) {
  LocalWork work{.layer = layer.spec.name,
                 .kind = layer.spec.kind,
                 .input = layer.x,
                 .input_gradient = layer.input_gradient};
  const bool by_sample = split.kind == SplitKind::sample;
  work.input.n = divided(layer.x.n, by_sample ? job.grid.ranks() : job.grid.pc);
  if (split.kind == SplitKind::space) take_part_of_picture(layer, split, work.input);
  if (split.kind == SplitKind::channel) std::visit(ChannelTaker(job, split, work.input), work.kind);
  return work;
}

}  // namespace rondo::train
