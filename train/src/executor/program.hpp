#pragma once

#include <cstdint>
#include <vector>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/parameters.hpp>

#include "executor/batch_plan.hpp"
#include "executor/graph.hpp"

namespace rondo::train {

/// What a rank runs of a model: all of it, or its part on a grid.
class Program {
 public:
  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  virtual ~Program() = default;

  [[nodiscard]] virtual const Graph& graph() const noexcept = 0;
  /// Of the parameters that this rank holds.
  [[nodiscard]] virtual const ParameterLayout& layout() const noexcept = 0;

  /// The kernels for batches of `images`. Only one plan is in use at a time: all have the same
  /// memory where they can, and nothing stays in it from one step to the next.
  [[nodiscard]] virtual BatchPlan plan(std::int64_t images, KernelPurpose purpose) = 0;

  /// The most elements that each value has on this rank in batches of up to `images`.
  [[nodiscard]] virtual std::vector<std::int64_t> sizes(std::int64_t images) const = 0;

  /// Do kernels take part even where there is no image?
  [[nodiscard]] virtual bool runs_empty_batches() const noexcept { return false; }
};

/// All layers on this rank alone.
class WholeModel final : public Program {
 public:
  /// The engine is lent.
  WholeModel(tensor::Engine& engine, const Model& model);

  [[nodiscard]] const Graph& graph() const noexcept override { return graph_; }
  [[nodiscard]] const ParameterLayout& layout() const noexcept override { return layout_; }
  [[nodiscard]] BatchPlan plan(std::int64_t images, KernelPurpose purpose) override;
  [[nodiscard]] std::vector<std::int64_t> sizes(std::int64_t images) const override;

 private:
  tensor::Engine& engine_;
  Model model_;
  Graph graph_;
  ParameterLayout layout_;
};

}  // namespace rondo::train
