#include "plan/memory.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "executor/backward_plan.hpp"
#include "model/layer_traits.hpp"
#include "plan/layer_cost.hpp"
#include "plan/word_bytes.hpp"

namespace rondo::train {
namespace {

std::uint64_t divided(std::uint64_t count, std::uint64_t parts) {
  return (count + parts - 1) / parts;
}

std::uint64_t parameter_words(const Model& model, Strategy strategy, int pr, int pc,
                              const PlanOptions& options) {
  std::map<std::string, int> parts;  // by layer
  for (const WeightLayer& layer : weight_layers(model)) {
    const FormSplit split = split_of(layer, strategy, pr, pc, options);
    parts[layer.name] = split.domain ? 1 : split.pr;
  }
  std::uint64_t words = 0;
  for (const ParameterGroup& group : layout_of(model).groups) {
    const auto found = parts.find(group.name);
    words += divided(group.size, found == parts.end() ? 1U : static_cast<unsigned>(found->second));
  }
  return words;
}

// Which values are whole on every rank of a column: all on a grid; in `integrated` those that
// fully connected layers read and write.
std::vector<bool> whole_values(const Model& model, Strategy strategy) {
  const bool all = strategy != Strategy::domain && strategy != Strategy::integrated;
  std::vector<bool> whole(model.layers.size() + 1, all);
  if (strategy != Strategy::integrated) return whole;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (!is_fully_connected(model.layers[i])) continue;
    whole[model.layers[i].inputs[0]] = true;
    whole[i + 1] = true;
  }
  return whole;
}

// Words of every value on a rank.
std::vector<std::uint64_t> value_words(const Model& model, Strategy strategy, int pc,
                                       const PlanOptions& options) {
  const std::vector<tensor::Shape> shapes = shapes_of(model, 1);
  const std::vector<bool> whole = whole_values(model, strategy);
  const auto batch = static_cast<std::uint64_t>(options.batch);
  const auto pieces = static_cast<std::uint64_t>(options.pieces);
  std::vector<std::uint64_t> words;
  for (std::size_t value = 0; value < shapes.size(); ++value) {
    const auto image = static_cast<std::uint64_t>(shapes[value].image());
    const auto columns = static_cast<std::uint64_t>(pc);
    const auto ranks = static_cast<std::uint64_t>(options.ranks);
    if (whole[value]) {
      words.push_back(divided(batch, columns * pieces) * image);
    } else if (ranks <= batch) {
      words.push_back(divided(batch, ranks * pieces) * image);
    } else {  // less than a sample, of each of a column's
      const std::uint64_t samples = divided(batch, columns);
      words.push_back(divided(batch * image * divided(samples, pieces), ranks * samples));
    }
  }
  return words;
}

// The executor's buffers for gradients, each as large as the largest value whose gradient it holds.
std::uint64_t gradient_words(const Model& model, const std::vector<std::uint64_t>& values) {
  const BackwardPlan plan = plan_backward(model);
  std::vector<std::uint64_t> buffers(plan.elements.size(), 0);
  buffers[plan.logits] = values.back();
  for (const BackwardStep& step : plan.steps) {
    if (!step.dx) continue;
    std::uint64_t& buffer = buffers[*step.dx];
    buffer = std::max(buffer, values[model.layers[step.node].inputs[0]]);
  }
  return std::reduce(buffers.begin(), buffers.end());
}

}  // namespace

std::uint64_t bytes_per_rank(const Model& model, Strategy strategy, int pr, int pc,
                             const PlanOptions& options) {
  const auto copies = 2U + static_cast<std::uint64_t>(options.optimizer_words);
  const std::vector<std::uint64_t> values = value_words(model, strategy, pc, options);
  const std::uint64_t words = copies * parameter_words(model, strategy, pr, pc, options) +
                              std::reduce(values.begin(), values.end()) +
                              gradient_words(model, values);
  return word_bytes * words;
}

}  // namespace rondo::train
