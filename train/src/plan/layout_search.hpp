#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/grid_job.hpp"
#include "plan/layer_options.hpp"
#include "plan/relayout_table.hpp"

namespace rondo::train {

// How one layer runs in the best way that was found.
struct ChosenOption {
  LayerOption option = {};
  double redistribution = 0.0;  // seconds, of what the layer reads
};

struct FoundLayouts {
  std::vector<ChosenOption> layers = {};
  double closing = 0.0;     // seconds of bringing the logits together
  double seconds = 0.0;     // of all
  std::uint64_t words = 0;  // of all options, the model's input and redistributed values
};

// The fastest choice of an option for each layer whose words are at most `most_words` (0: any
// number); none if there is no such choice. Dynamic programming over the layers in order.
[[nodiscard]] std::optional<FoundLayouts> search_layouts(
    const GridJob& job, const std::vector<ValueLayout>& layouts, const RelayoutTable& relayouts,
    const std::vector<std::vector<LayerOption>>& options, std::uint64_t most_words);

}  // namespace rondo::train
