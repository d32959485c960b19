// One rank's part of the process grid: its replica, its position in it, the communicators that the
// layers' kernels use, and what a user is told of all this before the run.

#include "trainer/grid_membership.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "config/combinations.hpp"
#include "config/grid_choice.hpp"
#include "layers/layer_type.hpp"

namespace rondo::train {
namespace {

/// Slices are the same or apart.
bool is_same_slice(const Parameter& a, const Parameter& b) {
  return a.first == b.first && a.shape == b.shape;
}

}  // namespace

GridMembership::GridMembership(transport::World& world, const Model& model,
                               const Experiment& experiment)
    : world_(world),
      choice_(choose_grid(model, experiment.grid, world.size(), experiment.train.global_batch,
                          experiment.train.precision)),
      layout_(layout_of(model, choice_.splits, choice_.grid.pr, position())),
      slices_(slices_in_replica(model, choice_.splits, choice_.grid.pr)),
      shared_statistics_(model, choice_, layout_, position()) {
  // To lay a large model out takes a while, so that this is done once for all positions.
  const Lowering lowering = lower(model, choice_.splits, choice_.grid.pr, 1);
  count_reduced(model, lowering);
  count_once(model, lowering);
  find_copies(model, lowering);
}

int GridMembership::replica() const noexcept { return choice_.grid.replica_of(world_.rank()); }

int GridMembership::position() const noexcept { return choice_.grid.position_of(world_.rank()); }

bool GridMembership::is_whole() const noexcept {
  return choice_.grid.pr == 1 && choice_.batch_norm != BatchNormScope::all;
}

std::vector<transport::RankInfo> GridMembership::leaders() const {
  std::vector<transport::RankInfo> leaders;
  for (std::size_t rank = 0; rank < world_.ranks().size(); ++rank) {
    if (choice_.grid.position_of(static_cast<int>(rank)) == 0) {
      leaders.push_back(world_.ranks()[rank]);
    }
  }
  return leaders;
}

void GridMembership::count_reduced(const Model& model, const Lowering& lowering) {
  const ProcessGrid grid = choice_.grid;
  for (int other = 0; other < grid.pr; ++other) {
    const ParameterLayout held = layout_of(model, lowering, other);
    for (std::size_t block = 0; block < slices_.size(); ++block) {
      const int sharers = grid.ranks() / slices_[block];
      if (sharers == 1) continue;
      reduced_by_all_ += held.blocks[block].size * static_cast<std::uint64_t>(grid.pc);
    }
  }
}

// Norms over the whole model count every parameter once, though several positions may hold it: the
// first of them does.
void GridMembership::count_once(const Model& model, const Lowering& lowering) {
  std::vector<bool> counts(layout_.parameters.size(), true);
  for (int other = 0; other < position(); ++other) {
    const ParameterLayout held = layout_of(model, lowering, other);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (is_same_slice(held.parameters[i], layout_.parameters[i])) counts[i] = false;
    }
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const Parameter& parameter = layout_.parameters[i];
    if (counts[i]) counted_.push_back({parameter.offset, parameter.size()});
  }
}

std::uint64_t GridMembership::sent_by_all(const Model& model, std::int64_t images,
                                          const Experiment& experiment) const {
  const std::size_t gradient_bytes = tensor::size_of(experiment.train.reduce_precision);
  std::uint64_t bytes = 0;
  for (const std::uint64_t gradient : gradient_elements(model, choice_.splits, choice_.grid)) {
    bytes += gradient * gradient_bytes;
  }
  for (const std::uint64_t activation :
       activation_bytes(model, choice_.splits, choice_.grid, images, experiment.train.precision)) {
    bytes += activation;
  }
  return bytes;
}

// A copy is of adjacent parameters, and not only of adjacent elements: another rank may have a
// slice between two of which this one has nothing.
void GridMembership::find_copies(const Model& model, const Lowering& lowering) {
  std::vector<int> holders(layout_.parameters.size(), 0);
  for (int other = 0; other < choice_.grid.pr; ++other) {
    const ParameterLayout held = layout_of(model, lowering, other);
    for (std::size_t i = 0; i < holders.size(); ++i) {
      if (is_same_slice(held.parameters[i], layout_.parameters[i])) holders[i] += 1;
    }
  }
  std::size_t block = 0;
  for (std::size_t i = 0; i < holders.size(); ++i) {
    const auto& [offset, size] =
        std::pair(layout_.parameters[i].offset, layout_.parameters[i].size());
    if (size == 0) continue;
    while (offset >= layout_.blocks[block].offset + layout_.blocks[block].size) ++block;
    if (holders[i] == 1) continue;
    const int slices = choice_.grid.pr / holders[i];
    if (slices * holders[i] != choice_.grid.pr || (slices != 1 && slices != slices_[block])) {
      throw std::invalid_argument("rondo::train: slice() of layer " +
                                  layout_.parameters[i].layer() + " gives " +
                                  std::to_string(holders[i]) + " ranks of a replica the same " +
                                  layout_.parameters[i].name);
    }
    const bool goes_on = !copies_.empty() && copies_.back().last + 1 == i &&
                         copies_.back().block == block && copies_.back().slices == slices;
    if (!goes_on) copies_.push_back({.slices = slices, .block = block, .offset = offset});
    copies_.back().last = i;
    copies_.back().size += size;
  }
}

void GridMembership::join() {
  if (is_whole()) return;
  transport::Communicator& all = world_.communicator();
  own_replica_.emplace(all.split(replica(), position()));
  across_.emplace(all.split(position(), replica()));
  // A communicator of the kernels' own: their operations would else have to be posted in the same
  // order as those of the update scheme.
  kernels_across_.emplace(all.split(position(), replica()));
  // All ranks go through the same numbers in the same order.
  for (const int slices : std::set<int>(slices_.begin(), slices_.end())) {
    if (slices == 1 || slices == choice_.grid.pr) continue;
    const int own = position() % slices;
    transport::Communicator inner = all.split(replica() * slices + own, position());
    sharing_.emplace(slices, Sharing{std::move(inner), all.split(own, world_.rank())});
  }
}

transport::Communicator& GridMembership::inner_of(int slices) {
  return slices == 1 ? own_replica() : sharing_.at(slices).inner;
}

GridPart GridMembership::part(std::pmr::memory_resource* memory) {
  return {.replica = &own_replica(),
          .across = &*kernels_across_,
          .splits = choice_.splits,
          .batch_norm = choice_.batch_norm,
          .memory = memory};
}

sync::Groups GridMembership::groups_of(std::size_t block) {
  transport::Communicator& all = world_.communicator();
  if (choice_.grid.pr == 1) return {nullptr, &all, &all};
  const int slices = slices_[block];
  if (slices == choice_.grid.pr) return {nullptr, &replicas(), &replicas()};
  // Gradients of such a block are sums over ranks of the replica, too.
  return {&inner_of(slices), &replicas(), slices == 1 ? &all : &sharing_.at(slices).slice};
}

sync::Slices GridMembership::slices() {
  if (choice_.grid.pr == 1) return {};
  sync::Slices slices{.over = &own_replica(), .counted = counted_};
  for (const Copy& copy : copies_) {
    slices.copies.push_back({&inner_of(copy.slices), copy.offset, copy.size});
  }
  return slices;
}

transport::Communicator& GridMembership::replicas() {
  return choice_.grid.pr == 1 ? world_.communicator() : *across_;
}

transport::Communicator& GridMembership::own_replica() { return *own_replica_; }

void GridMembership::average_statistics(std::span<float> statistics) {
  for (const int slices : shared_statistics_.slices()) {
    shared_statistics_.average(inner_of(slices), slices, statistics);
  }
}

namespace {

constexpr double kib = 1024.0;

double kib_of(std::uint64_t bytes) { return static_cast<double>(bytes) / kib; }

}  // namespace

std::vector<std::string> grid_report(const Model& model, const GridChoice& choice,
                                     const Experiment& experiment) {
  if (choice.grid.pr == 1) return {};
  const std::size_t gradient_bytes = tensor::size_of(experiment.train.reduce_precision);
  const std::vector<std::uint64_t> activations = activation_bytes(
      model, choice.splits, choice.grid, experiment.train.global_batch, experiment.train.precision);
  const std::vector<std::uint64_t> gradients = gradient_elements(model, choice.splits, choice.grid);
  const std::vector<ParameterBlock> blocks = layout_of(model).blocks;
  std::vector<std::string> lines{
      fmt::format("grid {} x {}: each replica has {} ranks, which share layers as follows",
                  choice.grid.pr, choice.grid.pc, choice.grid.pr),
      fmt::format("{:<24} {:<20} {:>16} {:>15}", "layer", "split", "activations KiB",
                  "gradients KiB")};
  std::uint64_t all_activations = 0;
  std::uint64_t since_last = 0;  // of layers without weights, told with the next that has some
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    since_last += activations[i];
    all_activations += activations[i];
    const LayerSpec& layer = model.layers[i];
    if (!has_weights(layer)) continue;
    const auto block = std::ranges::find(blocks, layer.name, &ParameterBlock::name);
    const auto index = static_cast<std::size_t>(block - blocks.begin());
    lines.push_back(fmt::format("{:<24} {:<20} {:>16.1f} {:>15.1f}", layer.name,
                                to_text(choice.splits[i]), kib_of(since_last),
                                kib_of(gradients[index] * gradient_bytes)));
    since_last = 0;
  }
  std::uint64_t all_gradients = 0;
  for (const std::uint64_t elements : gradients) all_gradients += elements * gradient_bytes;
  lines.push_back(fmt::format("{:<24} {:<20} {:>16.1f} {:>15.1f}", "all, by all ranks, a step", "",
                              kib_of(all_activations), kib_of(all_gradients)));
  return lines;
}

namespace {

// The values of a channel that the layer's batch norm sees at once, the fewest of all ranks; 0
// where it is no batch norm. `samples` are those of what shares its statistics.
std::int64_t values_of_channel(const Model& model, const GridChoice& grid, std::size_t layer,
                               std::int64_t samples) {
  const LayerSpec& spec = model.layers[layer];
  const tensor::Shape input = shapes_of(model, samples)[spec.inputs[0]];
  if (!std::holds_alternative<tensor::BatchNormSpec>(spec.kind->spec(input))) return 0;
  std::int64_t fewest = input.n * input.h * input.w;
  if (grid.grid.pr == 1 || grid.batch_norm != BatchNormScope::rank) return fewest;
  const Lowering lowering = lower(model, grid.splits, grid.grid.pr, samples);
  for (const GraphNode& node : lowering.graph.nodes) {
    if (node.layer != layer) continue;
    for (int rank = 0; rank < grid.grid.pr; ++rank) {
      const tensor::Shape own = lowering.values[node.inputs[0]].box_of(rank).shape();
      if (own.size() > 0) fewest = std::min(fewest, own.n * own.h * own.w);
    }
  }
  return fewest;
}

}  // namespace

// The output of a batch norm that sees one value of a channel is its bias, whatever the image is,
// and all gradients before it are 0.
void expect_batch_norms_train(const Model& model, const GridChoice& grid, std::int64_t batch,
                              std::int64_t micro_batches) {
  const bool by_all = grid.batch_norm == BatchNormScope::all;
  const std::int64_t parts = micro_batches * (by_all ? 1 : grid.grid.pc);
  const std::int64_t samples = std::max<std::int64_t>(batch / parts, 1);
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    if (!model.layers[layer].kind->traits().batch_statistics) continue;
    if (values_of_channel(model, grid, layer, samples) != 1) continue;
    const bool by_rank = grid.batch_norm == BatchNormScope::rank && grid.grid.pr > 1;
    const std::string more = by_all ? "" : ", fewer ranks or grid.batch_norm = \"all\"";
    throw ConfigError(fmt::format(
        "train.global_batch: the batch norm {} would train nothing, because it sees one value of "
        "each channel at once, of {} of a {}; give a larger batch{}{}",
        model.layers[layer].name, samples == 1 ? "1 sample" : fmt::format("{} samples", samples),
        by_all             ? "step"
        : grid.grid.pr > 1 ? "replica"
                           : "rank",
        more, by_rank ? " (or \"replica\")" : ""));
  }
}

}  // namespace rondo::train
