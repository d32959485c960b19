#pragma once

#include <cstdint>
#include <span>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/export.hpp>
#include <rondo/tensor/view.hpp>

namespace rondo::tensor {

/// The summed loss of a batch, and how many of its images had the label's class on top.
struct Loss {
  double sum = 0.0;
  std::int64_t correct = 0;
};

/// Softmax cross-entropy with label smoothing: the target puts 1 - smoothing on the label and
/// spreads `smoothing` evenly over all classes (PyTorch's definition).
///
/// `logits` is [N,1,1,classes]; `labels` has N entries in [0, classes). Both the loss and the
/// gradient are sums over the batch, not means: ranks add them up and divide once. `gradient`
/// may be the same memory as `logits`; data == nullptr: not wanted.
RONDO_TENSOR_API Loss softmax_cross_entropy(Engine& engine, View<const float> logits,
                                            std::span<const std::int32_t> labels, float smoothing,
                                            View<float> gradient);

}  // namespace rondo::tensor
