// The running statistics of batch norm, where several ranks of a replica measure the same channels
// of other pixels. Each keeps its own running values; where those of the whole are needed, as for
// an evaluation or of a checkpoint, they are averaged, weighted by how much of the initial values
// each rank has left behind.

#include "executor/shared_statistics.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>

#include "executor/lowering.hpp"

namespace rondo::train {
namespace {

double initial_value(const Parameter& statistic) {
  return statistic.initial == Initial::ones ? 1.0 : 0.0;
}

std::vector<Parameter> statistics_of(const ParameterLayout& layout, const std::string& layer) {
  std::vector<Parameter> statistics;
  std::ranges::copy_if(layout.statistics, std::back_inserter(statistics),
                       [&](const Parameter& statistic) { return statistic.layer() == layer; });
  return statistics;
}

}  // namespace

SharedStatistics::SharedStatistics(const Model& model, const GridChoice& choice,
                                   const ParameterLayout& layout, int position)
    : layout_size_(layout.statistic_count) {
  if (choice.batch_norm != BatchNormScope::rank) return;  // they measure together
  const int ranks = choice.grid.pr;
  const Lowering lowering = lower(model, choice.splits, ranks, ranks);  // an image for every part
  for (std::size_t node = 0; node < lowering.graph.nodes.size(); ++node) {
    if (!lowering.graph.nodes[node].batch_norm) continue;
    const Partition& x = lowering.layouts[node].x;
    const Parts& parts = x.parts();
    if (parts.n * parts.h * parts.w == 1) continue;
    const LayerSpec& layer = model.layers[*lowering.graph.nodes[node].layer];
    layers_.push_back({.statistics = statistics_of(layout, layer.name),
                       .kept = 1.0F - layer.kind->traits().momentum,
                       .has_pixels = !x.box_of(position).empty(),
                       .parts = parts.n,
                       .part = x.block_of(position) / (parts.h * parts.w * parts.c),
                       .slices = parts.c});
  }
}

void SharedStatistics::start(std::span<float> statistics) const {
  std::ranges::fill(statistics.subspan(layout_size_), 1.0F);
}

bool SharedStatistics::Layer::measures(std::int64_t images) const {
  return has_pixels && !even_range(images, parts, part).empty();
}

void SharedStatistics::start_from_taken(std::span<const std::int64_t> numbers,
                                        std::span<float> statistics) const {
  auto left = statistics.subspan(layout_size_).begin();
  for (const Layer& layer : layers_) {
    const bool measures =
        std::ranges::any_of(numbers, [&](std::int64_t images) { return layer.measures(images); });
    *left++ = measures ? 0.0F : 1.0F;
    if (measures) continue;
    for (const Parameter& statistic : layer.statistics) {
      std::ranges::fill(statistics.subspan(statistic.offset, statistic.size()),
                        static_cast<float>(initial_value(statistic)));
    }
  }
}

void SharedStatistics::count(std::int64_t images, std::span<float> statistics) const {
  auto left = statistics.begin() + static_cast<std::ptrdiff_t>(layout_size_);
  for (const Layer& layer : layers_) {
    if (layer.measures(images)) *left *= layer.kept;
    ++left;
  }
}

std::set<int> SharedStatistics::slices() const {
  std::set<int> all;
  for (const Layer& layer : layers_) all.insert(layer.slices);
  return all;
}

std::vector<float> SharedStatistics::left(int slices, std::span<const float> statistics) const {
  std::vector<float> left;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].slices == slices) left.push_back(statistics[layout_size_ + i]);
  }
  return left;
}

// Gives for every layer the share that was measured, then the measured values.
std::vector<double> SharedStatistics::measured(int slices,
                                               std::span<const float> statistics) const {
  std::vector<double> measured;
  auto next = statistics.subspan(layout_size_).begin();
  for (const Layer& layer : layers_) {
    // `left` is the share of the initial value that is still in the running one: (1 - momentum) to
    // the power of the batches seen, or 0 where they were taken from elsewhere. What was measured
    // is the value without that share.
    const double left = *next++;
    if (layer.slices != slices) continue;
    measured.push_back(1.0 - left);
    for (const Parameter& statistic : layer.statistics) {
      const double initial = left * initial_value(statistic);
      for (const float value : statistics.subspan(statistic.offset, statistic.size())) {
        measured.push_back(value - initial);
      }
    }
  }
  return measured;
}

void SharedStatistics::put_back(int slices, std::span<const double> sums,
                                std::span<const float> least, std::span<float> statistics) const {
  auto next = sums.begin();
  auto next_left = least.begin();
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    if (layer.slices != slices) continue;
    statistics[layout_size_ + i] = *next_left;
    const double left = *next_left++;
    const double weight = *next++;
    for (const Parameter& statistic : layer.statistics) {
      for (float& value : statistics.subspan(statistic.offset, statistic.size())) {
        const double sum = *next++;
        if (weight == 0.0) continue;  // nobody has measured
        value = static_cast<float>(left * initial_value(statistic) + (1.0 - left) * sum / weight);
      }
    }
  }
}

void SharedStatistics::average(transport::Communicator& ranks, int slices,
                               std::span<float> statistics) const {
  std::vector<double> sums = measured(slices, statistics);
  ranks.allreduce(std::span(sums)).wait();
  std::vector<float> least = left(slices, statistics);
  ranks.allreduce(std::span(least), transport::ReduceOp::min).wait();
  put_back(slices, sums, least, statistics);
}

// As average() above, of each slice in turn: its ranks are those of equal positions modulo their
// number.
void SharedStatistics::average(std::span<const SharedStatistics> ranks,
                               std::span<std::vector<float>> statistics) {
  for (const int slices : ranks.front().slices()) {
    for (int first = 0; first < slices; ++first) average(ranks, statistics, slices, first);
  }
}

void SharedStatistics::average(std::span<const SharedStatistics> ranks,
                               std::span<std::vector<float>> statistics, int slices, int slice) {
  const auto first = static_cast<std::size_t>(slice);
  const auto step = static_cast<std::size_t>(slices);
  std::vector<double> sums = ranks[first].measured(slices, statistics[first]);
  std::vector<float> least = ranks[first].left(slices, statistics[first]);
  for (std::size_t rank = first + step; rank < ranks.size(); rank += step) {
    const std::vector<double> own = ranks[rank].measured(slices, statistics[rank]);
    std::ranges::transform(sums, own, sums.begin(), std::plus<>());
    const std::vector<float> left = ranks[rank].left(slices, statistics[rank]);
    std::ranges::transform(least, left, least.begin(),
                           [](float a, float b) { return std::min(a, b); });
  }
  for (std::size_t rank = first; rank < ranks.size(); rank += step) {
    ranks[rank].put_back(slices, sums, least, statistics[rank]);
  }
}

}  // namespace rondo::train
