#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/train/grid.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/parameters.hpp>
#include <rondo/train/partition.hpp>

#include "executor/graph.hpp"
#include "layers/layer_type.hpp"

namespace rondo::train {

/// The kernels and shapes that a rank uses for one number of images.
struct BatchPlan {
  std::int64_t images = 0;                 ///< of the batch that it is given
  std::vector<tensor::Shape> shapes = {};  ///< of every value, as this rank holds it
  std::vector<std::unique_ptr<LayerKernel>> kernels = {};  ///< of every node
  std::optional<Box> input = {};  ///< the part of the batch that it reads; none: all of it
  Range scored = {};              ///< the images whose logits this rank has
  bool counts = true;             ///< their loss is this rank's to report, no other's
};

/// The part of a model that a rank runs: all of it, or its share on a grid.
class Program {
 public:
  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  virtual ~Program() = default;

  [[nodiscard]] virtual const Graph& graph() const noexcept = 0;
  /// The layout of the parameters that this rank holds.
  [[nodiscard]] virtual const ParameterLayout& layout() const noexcept = 0;

  /// The kernels for batches of `images`. Only one plan is in use at a time: all have the same
  /// memory where they can, and nothing stays in it from one step to the next.
  [[nodiscard]] virtual BatchPlan plan(std::int64_t images, KernelPurpose purpose) = 0;

  /// The most elements that each value has on this rank in batches of up to `images`.
  [[nodiscard]] virtual std::vector<std::int64_t> sizes(std::int64_t images) const = 0;

  /// Do kernels take part even where there is no image?
  [[nodiscard]] virtual bool runs_empty_batches() const noexcept { return false; }
};

/// All layers on this rank alone, with activations of `type`. The engine is lent.
[[nodiscard]] std::unique_ptr<Program> make_whole_program(tensor::Engine& engine,
                                                          const Model& model,
                                                          tensor::DataType type);

/// A rank's part of a model that its replica runs together. Made by all ranks of the replica
/// together, as are its plans. `engine` is lent, and what `part` points to.
[[nodiscard]] std::unique_ptr<Program> make_split_program(tensor::Engine& engine,
                                                          const Model& model, const GridPart& part,
                                                          tensor::DataType type);

/// Where one layer's numbers lie in the flat arrays of the ParameterLayout.
struct LayerSpans {
  std::optional<std::size_t> block = {};  ///< none: the layer learns nothing
  std::size_t offset = 0;
  std::size_t size = 0;
  std::size_t statistics_offset = 0;
  std::size_t statistics_size = 0;

  template <typename T>
  [[nodiscard]] std::span<T> parameters_of(std::span<T> flat) const {
    return flat.subspan(offset, size);
  }
  template <typename T>
  [[nodiscard]] std::span<T> statistics_of(std::span<T> flat) const {
    return flat.subspan(statistics_offset, statistics_size);
  }
};

/// The spans of every layer, in the model's order.
[[nodiscard]] std::vector<LayerSpans> spans_of(const Model& model, const ParameterLayout& layout);

}  // namespace rondo::train
