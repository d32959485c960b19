#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/tensor/data_type.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/partition.hpp>

namespace rondo::train {

// The most parts into which one dimension can be cut.
inline constexpr int largest_part_count = 4096;

// "sample", "replica", or "height=A width=B channel=C filter=D", where parts of 1 may be left out.
// Throws std::invalid_argument that says what is wrong with `text`.
[[nodiscard]] LayerSplit read_split(std::string_view text);

// The same as what a configuration says.
[[nodiscard]] std::string to_text(const LayerSplit& split);

// The message of the error that read_split() throws; empty if it throws none.
[[nodiscard]] std::string complaint_about_split(std::string_view text);

/// How a model is split over the ranks.
struct GridChoice {
  ProcessGrid grid = {};
  /// One per layer of the model. Splits of layers without weights, and of batch norm, mean nothing.
  std::vector<LayerSplit> splits = {};
  BatchNormScope batch_norm = BatchNormScope::rank;

  [[nodiscard]] bool operator==(const GridChoice&) const = default;
};

/// The choice that the keys of [grid] make for `model` on so many ranks; grid.plan is ignored.
///
/// A convolution or fully connected layer takes the split of the first pattern in grid.layers that
/// its name matches; parts whose product is 1 mean `replica`. The others take the numbers of
/// [grid]:
///
/// - one rank in a replica: `sample`
/// - a convolution: `channel` or `space`, whichever has parts, or `space_and_channel` if both have
/// - a fully connected layer: `channel` with all ranks of the replica along its outputs
/// - a layer that cannot be split so: `sample`
///
/// A `channel` split needs a channel and a filter for every rank of the replica, or an output of a
/// fully connected layer; a `space` split needs a row and a column of input and output for every
/// part, and less padding than a kernel. `space_and_channel` needs a channel and a filter for every
/// rank of a tile, and all that a `space` split needs.
///
/// Throws ConfigError that names the key, and the layer if it is about one: numbers that do not
/// make `ranks`; a pattern that matches no such layer; a split by pattern that is impossible, or
/// whose parts do not make a replica; a global batch with fewer samples than replicas;
/// `space_and_channel` where activations are bf16, for which it has no kernel.
[[nodiscard]] GridChoice choose_grid(const Model& model, const Experiment::Grid& config, int ranks,
                                     std::int64_t global_batch,
                                     tensor::DataType activations = tensor::DataType::f32);

}  // namespace rondo::train
