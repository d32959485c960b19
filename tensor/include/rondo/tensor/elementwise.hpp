#pragma once

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/export.hpp>
#include <rondo/tensor/view.hpp>

namespace rondo::tensor {

/// dy *= (y > 0): the gradient before a ReLU, from the gradient after it and the ReLU's output.
RONDO_TENSOR_API void backward_relu(Engine& engine, View<const float> y, View<float> dy);

/// into += from: where the gradients of two consumers of one tensor meet.
RONDO_TENSOR_API void add(Engine& engine, View<const float> from, View<float> into);

}  // namespace rondo::tensor
