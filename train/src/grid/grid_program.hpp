#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/grid.hpp>
#include <rondo/train/model.hpp>

#include "executor/program.hpp"
#include "executor/reused_memory.hpp"
#include "grid/grid_communicators.hpp"
#include "grid/lowering.hpp"
#include "layers/grid_kernels.hpp"

namespace rondo::train {

/// A rank's part of a model that its group runs together. Made by all ranks of the group together,
/// as are its plans.
class GridProgram final : public Program {
 public:
  /// `engine` is lent, and what `part` points to.
  GridProgram(tensor::Engine& engine, const Model& model, const GridPart& part);

  [[nodiscard]] const Graph& graph() const noexcept override { return lowering_.graph; }
  [[nodiscard]] const ParameterLayout& layout() const noexcept override { return layout_; }
  [[nodiscard]] BatchPlan plan(std::int64_t images, KernelPurpose purpose) override;
  [[nodiscard]] std::vector<std::int64_t> sizes(std::int64_t images) const override;
  [[nodiscard]] bool runs_empty_batches() const noexcept override { return true; }

 private:
  [[nodiscard]] Lowering lowered(std::int64_t images) const;
  [[nodiscard]] std::unique_ptr<LayerKernel> make_kernel(const GridContext& context,
                                                         const GraphNode& node,
                                                         const GridLayer& place);

  Model model_;
  GridPart part_;
  GridCommunicators communicators_;
  tensor::Engine& engine_;
  ReusedMemory travelling_;  // what kernels take of part.memory
  Lowering lowering_;        // of one image
  ParameterLayout layout_;
};

}  // namespace rondo::train
