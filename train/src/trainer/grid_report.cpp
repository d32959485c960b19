#include "trainer/grid_report.hpp"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "config/split_text.hpp"
#include "executor/lowering.hpp"
#include "layers/layer_type.hpp"

namespace rondo::train {
namespace {

constexpr double kib = 1024.0;

double kib_of(std::uint64_t words) { return static_cast<double>(words * sizeof(float)) / kib; }

}  // namespace

std::vector<std::string> grid_report(const Model& model, const GridChoice& choice,
                                     std::int64_t global_batch) {
  if (choice.grid.pr == 1) return {};
  const std::vector<std::uint64_t> activations =
      activation_words(model, choice.splits, choice.grid, global_batch);
  const std::vector<std::uint64_t> gradients = gradient_words(model, choice.splits, choice.grid);
  const std::vector<ParameterBlock> groups = layout_of(model).blocks;
  std::vector<std::string> lines{fmt::format("grid {} groups of {} ranks, which split every layer",
                                             choice.grid.pc, choice.grid.pr),
                                 fmt::format("{:<24} {:<20} {:>16} {:>15}", "layer", "split",
                                             "activations KiB", "gradients KiB")};
  std::uint64_t all_activations = 0;
  std::uint64_t since_last = 0;  // of layers without weights, told with the next that has some
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    since_last += activations[i];
    all_activations += activations[i];
    const LayerSpec& layer = model.layers[i];
    if (!has_weights(layer)) continue;
    const auto group = std::ranges::find(groups, layer.name, &ParameterBlock::name);
    const auto index = static_cast<std::size_t>(group - groups.begin());
    lines.push_back(fmt::format("{:<24} {:<20} {:>16.1f} {:>15.1f}", layer.name,
                                to_text(choice.splits[i]), kib_of(since_last),
                                kib_of(gradients[index])));
    since_last = 0;
  }
  std::uint64_t all_gradients = 0;
  for (const std::uint64_t words : gradients) all_gradients += words;
  lines.push_back(fmt::format("{:<24} {:<20} {:>16.1f} {:>15.1f}", "all, by all ranks, a step", "",
                              kib_of(all_activations), kib_of(all_gradients)));
  return lines;
}

}  // namespace rondo::train
