#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rondo/tensor/data_type.hpp>
#include <rondo/tensor/elementwise.hpp>
#include <rondo/train/dataset.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/grid.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/parameters.hpp>
#include <rondo/train/partition.hpp>

namespace rondo::tensor {
class Engine;
}

namespace rondo::train {

class StepProfile;

/// Its functions are called as a step proceeds; the trainer passes that on to the update scheme.
class RONDO_TRAIN_API StepObserver {
 public:
  StepObserver() = default;
  StepObserver(const StepObserver&) = delete;
  StepObserver& operator=(const StepObserver&) = delete;
  virtual ~StepObserver();

  /// Before the forward pass reads the parameters of block `block` of the ParameterLayout.
  virtual void make_ready(std::size_t block) = 0;
  /// The gradients of block `block` lie in the flat array and will not change in this step.
  virtual void gradients_final(std::size_t block) = 0;
  /// Between two layers: a chance to advance communication.
  virtual void between_layers() = 0;
  /// Where the executor notes the times of its parts; null: nowhere. Asked once in a step.
  [[nodiscard]] virtual StepProfile* profile() { return nullptr; }
};

/// One rank's arrays, in the model's ParameterLayout. Lent; they outlive the Executor.
struct ModelState {
  std::span<float> parameters = {};
  std::span<float> gradients = {};  ///< not looked at where nothing is trained
  std::span<float> statistics = {};
};

/// The arguments of a loss: those of tensor::softmax_cross_entropy().
struct LossOperands {
  tensor::View<const float> logits = {};      ///< {images, 1, 1, classes}
  std::span<const std::int32_t> labels = {};  ///< one per image
  tensor::MixedLabels mixed = {};
  /// As `logits`, maybe in their memory; data == nullptr: not wanted.
  tensor::View<float> gradient = {};
};

/// A loss of the user's own, in place of softmax cross-entropy: returns the sum over the images,
/// and how many of them count as correct, and writes the gradient of that sum. Each rank calls it
/// for the images whose logits it has, of test images too, on the thread of its executor.
using LossFunction = std::function<tensor::Loss(const LossOperands& operands)>;

struct ExecutorOptions {
  /// The batch sizes that train() will be given: the full one and, where it differs, the last.
  std::vector<std::int64_t> training_batches = {};
  /// The most images that evaluate() takes at once; 0: as many as the largest training batch.
  std::int64_t evaluation_batch = 0;
  float label_smoothing = 0.0F;
  LossFunction loss = {};  ///< has no label smoothing; empty: softmax cross-entropy
  /// The type of activations, their gradients, and the weights as kernels read them. Parameters,
  /// their gradients, statistics and logits are fp32. A convolution that is split in space and by
  /// channel at once has a kernel for f32 alone.
  tensor::DataType precision = tensor::DataType::f32;
  std::uint64_t seed = 1;  ///< of what layers draw: dropout
};

/// Where a batch stands in a run. The random numbers of layers depend on it, and not on how many
/// ranks share the step's global batch.
struct BatchPosition {
  std::int64_t step = 0;          ///< of the whole run
  std::int64_t first_sample = 0;  ///< of the batch, within the step's global batch
};

/// Runs a model: forward, loss and backward of one batch, planned before the first step.
///
/// Kernels, activations and gradients of activations are made in the constructor, for each batch
/// size; a step allocates nothing. One step or evaluation runs at a time, so all batch sizes use
/// the same memory; evaluation takes the kernels for training where there are some for as many
/// samples, else kernels without backward. Activations are NHWC and never reordered; weights are
/// packed for the kernels when make_ready() has returned, weight gradients are unpacked into the
/// flat array just before gradients_final(). An empty batch runs no kernel and leaves zero
/// gradients, unless ranks run layers together.
///
/// Belongs to one thread at a time, together with its Engine.
class RONDO_TRAIN_API Executor {
 public:
  Executor(tensor::Engine& engine, const Model& model, const ModelState& state,
           const ExecutorOptions& options);
  /// This rank's part of a model that a replica runs together; `state` is laid out by
  /// layout_of(model, part.splits, ...). Batches are the replica's, every rank is given all of
  /// them. Losses are to be added up over the ranks. Made by the whole replica together, as are all
  /// calls; errors of the transport pass through.
  Executor(tensor::Engine& engine, const Model& model, const GridPart& part,
           const ModelState& state, const ExecutorOptions& options);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  /// Overwrites the gradients with those of the summed loss, updates the running statistics, and
  /// returns the summed loss. `batch.samples` is 0 or one of training_batches.
  tensor::Loss train(const Batch& batch, StepObserver& observer,
                     const BatchPosition& position = {});

  /// Loss and correct answers with the given parameters and running statistics (a copy for
  /// evaluation, or the training state itself); changes neither.
  tensor::Loss evaluate(const Batch& batch, std::span<const float> parameters,
                        std::span<const float> statistics);
  /// The same of the samples in `counted` alone: so the rest of a test set can be evaluated with
  /// the kernels for a whole batch, together with samples that are counted elsewhere.
  tensor::Loss evaluate(const Batch& batch, std::span<const float> parameters,
                        std::span<const float> statistics, Range counted);

  /// Runs the forward pass of train() once more, to find what is NaN or Inf first on this rank:
  /// "the images", "the parameters of layer X" or "the output of layer X"; empty when nothing is.
  /// Spoils the running statistics: for a run that ends.
  [[nodiscard]] std::string first_not_finite(const Batch& batch);

  /// The logits of `samples` images, at most evaluation_batch, with the parameters and statistics
  /// of the ModelState as they were at the first call: for an executor that nothing else is asked
  /// of, made without training_batches. No labels, and weights are packed once.
  [[nodiscard]] std::span<const float> infer(std::span<const float> images, std::int64_t samples);

  /// The part that this rank reads of the images of a batch of so many samples. The rest may hold
  /// any finite values; labels are needed of all samples.
  [[nodiscard]] Box images_read(std::int64_t samples) const;

  /// The logits of the last evaluate() or infer(): samples x classes, on a grid of the samples that
  /// this rank has scored.
  [[nodiscard]] std::span<const float> logits() const noexcept;

  /// How many samples the last train() or evaluate() has returned the loss of. On a grid each
  /// sample is counted by one rank of the replica.
  [[nodiscard]] std::int64_t counted() const noexcept;

  /// "layer: kernel names", one line per layer that has a oneDNN kernel.
  [[nodiscard]] std::vector<std::string> implementations() const;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::train
