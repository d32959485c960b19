#include <rondo/train/executor.hpp>

#include "executor/executor_impl.hpp"
#include "grid/grid_program.hpp"

namespace rondo::train {

StepObserver::~StepObserver() = default;

Executor::Executor(tensor::Engine& engine, const Model& model, const ModelState& state,
                   const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(engine, model, std::make_unique<WholeModel>(engine, model),
                                   state, options)) {}

Executor::Executor(tensor::Engine& engine, const Model& model, const GridPart& part,
                   const ModelState& state, const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(
          engine, model, std::make_unique<GridProgram>(engine, model, part), state, options)) {}

Executor::~Executor() = default;

tensor::Loss Executor::train(const Batch& batch, StepObserver& observer) {
  return impl_->train(batch, observer);
}

tensor::Loss Executor::evaluate(const Batch& batch, std::span<const float> parameters,
                                std::span<const float> statistics) {
  return impl_->evaluate(batch, parameters, statistics, {0, batch.samples});
}

tensor::Loss Executor::evaluate(const Batch& batch, std::span<const float> parameters,
                                std::span<const float> statistics, Range judged) {
  return impl_->evaluate(batch, parameters, statistics, judged);
}

std::span<const float> Executor::logits() const noexcept { return impl_->logits(); }

std::vector<std::string> Executor::implementations() const { return impl_->implementations(); }

}  // namespace rondo::train
