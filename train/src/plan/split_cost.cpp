#include "plan/split_cost.hpp"

#include "plan/halo_cost.hpp"

namespace rondo::train {
namespace {

// Words of a group of ranks, on average.
double words_of(const GridJob& job, const tensor::Shape& value) {
  return static_cast<double>(value.size()) / job.grid.pc;
}

double by_channel_seconds(const GridJob& job, const JobLayer& layer, ChannelGrid channels) {
  // Those that share a block of channels are adjacent, where blocks are in order.
  const Group gathering{.size = channels.filters, .stride = 1};
  const Group scattering{.size = channels.channels, .stride = channels.filters};
  const double x = words_of(job, layer.x) / channels.channels;
  const double y = words_of(job, layer.y) / channels.filters;
  const double of_x = collective_seconds(x, gathering, job.options);
  const double of_y = collective_seconds(y, scattering, job.options);
  return (layer.input_gradient ? 2.0 : 1.0) * of_x + 2.0 * of_y;
}

double by_output_seconds(const GridJob& job, const JobLayer& layer) {
  const double y = collective_seconds(words_of(job, layer.y), job.group(), job.options);
  if (!layer.input_gradient) return y;
  return y + 2.0 * collective_seconds(words_of(job, layer.x), job.group(), job.options);
}

}  // namespace

double exchange_seconds(const GridJob& job, const JobLayer& layer, const LayerSplit& split) {
  if (split.kind == SplitKind::space) return halo_seconds(job, layer, split);
  if (split.kind != SplitKind::channel) return 0.0;
  if (layer.is_fully_connected()) return by_output_seconds(job, layer);
  return layer.is_convolution() ? by_channel_seconds(job, layer, split.channels) : 0.0;
}

double reduction_seconds(const GridJob& job, const JobLayer& layer, const LayerSplit& split) {
  if (!layer.has_split()) return 0.0;
  const auto words = static_cast<double>(weights_of(layer)) / weight_parts(job, split);
  const bool repeated = split.kind == SplitKind::group || split.kind == SplitKind::channel;
  return 2.0 * collective_seconds(words, repeated ? job.across() : job.all(), job.options);
}

std::int64_t gathered_words(const GridJob& job, const JobLayer& layer, const LayerSplit& split) {
  if (split.kind != SplitKind::channel || !layer.is_convolution()) return 0;
  const std::int64_t parts = std::int64_t{job.grid.pc} * job.options.pieces;
  const std::int64_t samples = (layer.x.n + parts - 1) / parts;
  std::int64_t words = 0;
  if (split.channels.filters > 1) words += samples * layer.x.image() / split.channels.channels;
  if (split.channels.channels > 1) words += samples * layer.y.image() / split.channels.filters;
  return words;
}

int weight_parts(const GridJob& job, const LayerSplit& split) {
  return split.kind == SplitKind::channel ? job.grid.pr : 1;
}

}  // namespace rondo::train
