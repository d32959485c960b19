#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include <rondo/tensor/tensor.hpp>
#include <rondo/train/compute_costs.hpp>
#include <rondo/train/halo.hpp>
#include <rondo/train/partition.hpp>
#include <rondo/train/plan_best.hpp>

#include "grid/layout.hpp"
#include "layers/layer_type.hpp"
#include "plan/message_costs.hpp"

namespace rondo::train {

// The positions in a replica that stand for all: the first 16, the middle one and the last. The
// boxes of the others are alike.
[[nodiscard]] std::set<int> positions_looked_at(int ranks);

// The messages to the rank that receives most when a value changes its layout. A few ranks of the
// last replica stand for all: it has most samples.
[[nodiscard]] Messages redistribution_of(const ValueLayout& from, const ValueLayout& to,
                                         const tensor::Shape& extents, const ProcessGrid& grid);

// What is searched on one grid.
struct GridJob {
  const Model& model;
  const PlanOptions& options;
  ProcessGrid grid = {};
  std::vector<tensor::Shape> shapes = {};  // of all values, for the micro-batch of all ranks
  bool counts_ports = false;               // LayerOption::port

  // Elements of fp32 that take as many bytes as so many activations.
  [[nodiscard]] double in_f32(double elements) const noexcept {
    return train::in_f32(elements, options.type);
  }
  [[nodiscard]] ProcessGroup replica() const noexcept { return {.size = grid.pr, .stride = 1}; }
  [[nodiscard]] ProcessGroup across() const noexcept {
    return {.size = grid.pc, .stride = grid.pr};
  }
};

// Samples that all ranks together compute in one pass through the model, the most of any.
[[nodiscard]] inline std::int64_t samples_of_pass(const PlanOptions& options) {
  return (options.batch + options.micro_batches - 1) / options.micro_batches;
}

// Passes through the model in a step.
[[nodiscard]] inline double passes_of(const PlanOptions& options) {
  return static_cast<double>(options.micro_batches);
}

// One layer of it.
struct JobLayer {
  const LayerSpec& spec;
  tensor::Shape x = {};
  tensor::Shape y = {};
  bool input_gradient = true;

  [[nodiscard]] bool is_convolution() const { return train::is_convolution(spec); }
  [[nodiscard]] bool is_fully_connected() const { return train::is_fully_connected(spec); }
  [[nodiscard]] bool averages_images() const { return spec.kind->traits().averages_images; }
  // Convolutions and fully connected layers are split; others follow.
  [[nodiscard]] bool has_split() const { return has_weights(spec); }
};

[[nodiscard]] inline JobLayer layer_of(const GridJob& job, std::size_t index) {
  const LayerSpec& spec = job.model.layers[index];
  return {.spec = spec,
          .x = job.shapes[spec.inputs[0]],
          .y = job.shapes[index + 1],
          .input_gradient = spec.inputs[0] != 0};
}

// Weights of a convolution or fully connected layer without its bias; 0 of others.
[[nodiscard]] inline std::int64_t weights_of(const JobLayer& layer) {
  return layer.spec.kind->weights(layer.x);
}

// Parameters of a layer: weights, and what comes with them.
[[nodiscard]] inline std::int64_t parameters_of(const JobLayer& layer) {
  std::size_t count = 0;
  for (const Parameter& learned : layer.spec.kind->parameters(layer.x).learned) {
    count += learned.size();
  }
  return static_cast<std::int64_t>(count);
}

// The windows of those kinds of layers that have any.
[[nodiscard]] inline std::optional<Windows> windows_if_any(const JobLayer& layer) {
  return layer.spec.kind->windows();
}

// Elements that a rank holds at once of a value that lies so.
[[nodiscard]] inline std::uint64_t held_elements(const GridJob& job, const ValueLayout& layout,
                                                 const tensor::Shape& extents) {
  const tensor::Shape box = largest_box(layout, extents, job.grid);
  const auto elements = static_cast<std::uint64_t>(box.size());
  return (elements * tensor::size_of(job.options.type) + element_bytes - 1) / element_bytes;
}

// Seconds of redistributing values from one layout to another and their gradients back, by the
// numbers of the layouts; the model's input has no gradient. Values of equal extents share a table.
class RelayoutTable {
 public:
  RelayoutTable(const GridJob& job, const std::vector<ValueLayout>& layouts);

  [[nodiscard]] double seconds(ValueId value, int from, int to) const {
    const double back = value == 0 ? 0.0 : one_way(value, to, from);
    return one_way(value, from, to) + back;
  }

 private:
  using Table = std::vector<double>;
  using Extents = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

  [[nodiscard]] double one_way(ValueId value, int from, int to) const {
    const std::size_t row = static_cast<std::size_t>(from) * layouts_;
    return (*tables_[value])[row + static_cast<std::size_t>(to)];
  }

  std::size_t layouts_;
  std::map<Extents, Table> by_extents_;
  std::vector<const Table*> tables_;  // by value
};

}  // namespace rondo::train
