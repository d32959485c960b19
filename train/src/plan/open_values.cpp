#include "plan/open_values.hpp"

#include <algorithm>
#include <stdexcept>

namespace rondo::train {
namespace {

// By value: the last layer that reads it; of the last value none does, so that it stays open.
std::vector<std::size_t> last_readers(const Model& model) {
  std::vector<std::size_t> last(model.layers.size() + 1, 0);
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    for (const ValueId value : model.layers[i].inputs) last[value] = i;
  }
  last.back() = model.layers.size();
  return last;
}

std::size_t slot_of(ValueId value, const std::vector<ValueId>& open) {
  return static_cast<std::size_t>(std::ranges::find(open, value) - open.begin());
}

}  // namespace

OpenLayouts OpenStep::apply(OpenLayouts state, int y) const noexcept {
  OpenLayouts after = 0;
  for (std::size_t slot = 0; slot < next.size(); ++slot) {
    const std::optional<std::size_t>& from = next[slot];
    after |= from ? open_value(layout_in(state, *from), copy_in(state, *from), slot)
                  : open_value(y, no_copy, slot);
  }
  return after;
}

std::vector<OpenStep> open_steps(const Model& model) {
  const std::vector<std::size_t> last = last_readers(model);
  std::vector<OpenStep> steps;
  std::vector<ValueId> open = {0};
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const std::vector<ValueId>& inputs = model.layers[i].inputs;
    OpenStep step{.x = slot_of(inputs[0], open)};
    if (inputs.size() > 1) step.residual = slot_of(inputs[1], open);
    std::vector<ValueId> after;
    for (const ValueId value : open) {
      if (last[value] <= i) continue;
      step.next.emplace_back(slot_of(value, open));
      after.push_back(value);
    }
    if (last[i + 1] > i) {
      step.next.emplace_back(std::nullopt);
      after.push_back(i + 1);
    }
    if (after.size() > most_open_values) {
      throw std::invalid_argument("plan: behind " + model.layers[i].name +
                                  " more than 4 values are still to be read");
    }
    steps.push_back(std::move(step));
    open = std::move(after);
  }
  return steps;
}

}  // namespace rondo::train
