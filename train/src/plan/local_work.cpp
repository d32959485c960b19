#include "plan/local_work.hpp"

#include <algorithm>

namespace rondo::train {
namespace {

std::int64_t divided(std::int64_t count, int parts) { return (count + parts - 1) / parts; }

// Inputs that make so many outputs where both ends are padded.
std::int64_t inputs_for(std::int64_t outputs, std::int64_t kernel, std::int64_t stride,
                        std::int64_t padding) {
  return std::max<std::int64_t>((outputs - 1) * stride + kernel - 2 * padding, 1);
}

template <typename Kind>
void take_part_of_picture(const Kind& /*kind*/, const JobLayer& layer, const LayerSplit& split,
                          tensor::Shape& input) {
  input.h = divided(layer.x.h, split.h);
  input.w = divided(layer.x.w, split.w);
}

void take_part(std::int64_t kernel, std::int64_t stride, std::int64_t padding,
               const JobLayer& layer, const LayerSplit& split, tensor::Shape& input) {
  if (split.h > 1) input.h = inputs_for(divided(layer.y.h, split.h), kernel, stride, padding);
  if (split.w > 1) input.w = inputs_for(divided(layer.y.w, split.w), kernel, stride, padding);
}

void take_part_of_picture(const ConvolutionLayer& kind, const JobLayer& layer,
                          const LayerSplit& split, tensor::Shape& input) {
  take_part(kind.kernel, kind.stride, kind.padding, layer, split, input);
}

void take_part_of_picture(const PoolingLayer& kind, const JobLayer& layer, const LayerSplit& split,
                          tensor::Shape& input) {
  take_part(kind.window, kind.stride, kind.padding, layer, split, input);
}

// Layers that follow a split by channel have a part of the channels.
template <typename Kind>
void take_channels(Kind& /*kind*/, const GridJob& job, const LayerSplit& /*split*/,
                   tensor::Shape& input) {
  input.c = divided(input.c, job.grid.pr);
}

void take_channels(ConvolutionLayer& kind, const GridJob& /*job*/, const LayerSplit& split,
                   tensor::Shape& input) {
  input.c = divided(input.c, split.channels.channels);
  kind.filters = divided(kind.filters, split.channels.filters);
}

void take_channels(FullyConnectedLayer& kind, const GridJob& job, const LayerSplit& /*split*/,
                   tensor::Shape& /*input*/) {
  kind.outputs = divided(kind.outputs, job.grid.pr);
}

}  // namespace

LocalWork local_work(const GridJob& job, const JobLayer& layer, const LayerSplit& split) {
  LocalWork work{.layer = layer.spec.name,
                 .kind = layer.spec.kind,
                 .input = layer.x,
                 .input_gradient = layer.input_gradient};
  const bool by_sample = split.kind == SplitKind::sample;
  work.input.n = divided(layer.x.n, by_sample ? job.grid.ranks() : job.grid.pc);
  std::visit(
      [&](auto& kind) {
        if (split.kind == SplitKind::space) take_part_of_picture(kind, layer, split, work.input);
        if (split.kind == SplitKind::channel) take_channels(kind, job, split, work.input);
      },
      work.kind);
  return work;
}

}  // namespace rondo::train
