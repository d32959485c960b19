// The memory of the tensor library's kernels, found without making them. Planning asks for the same
// kernels again and again, and oneDNN takes most of a millisecond to answer: so each is asked once.

#include "layers/kernel_memories.hpp"

#include <initializer_list>
#include <stdexcept>

namespace rondo::train {
namespace {

template <typename Number>
void append_to(std::vector<std::int64_t>& key, std::initializer_list<Number> numbers) {
  for (const Number number : numbers) key.push_back(static_cast<std::int64_t>(number));
}

std::vector<std::int64_t> key_of_kernel(int kind, const tensor::Shape& input) {
  return {kind, input.n, input.h, input.w, input.c};
}

}  // namespace

template <typename Spec>
tensor::KernelMemory KernelMemories::known(const std::vector<std::int64_t>& key, const Spec& spec) {
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  tensor::KernelMemory memory;
  try {
    // A planner asks for shapes that no run would have: an answer that is no kernel must not end
    // the search.
    memory = tensor::memory_of(engine_, spec);
  } catch (const std::runtime_error&) {  // oneDNN has none
    if constexpr (requires { spec.weights(); })
      memory.own = static_cast<std::size_t>(spec.weights()) * sizeof(float);
  } catch (const std::invalid_argument&) {  // a part without rows or channels
  }
  return known_.emplace(key, memory).first->second;
}

tensor::KernelMemory KernelMemories::of(const tensor::ConvolutionSpec& spec) {
  std::vector<std::int64_t> key = key_of_kernel(0, spec.input);
  append_to(key, {spec.filters, spec.kernel_h, spec.kernel_w, spec.stride, spec.pad_top,
                  spec.pad_bottom, spec.pad_left, spec.pad_right, spec.groups});
  append_to(key, {static_cast<int>(spec.bias), static_cast<int>(spec.activation),
                  static_cast<int>(spec.input_gradient), static_cast<int>(spec.weight_gradient)});
  append_to(key, {static_cast<int>(spec.type), static_cast<int>(spec.f32_output),
                  static_cast<int>(spec.f32_input_gradient)});
  return known(key, spec);
}

tensor::KernelMemory KernelMemories::of(const tensor::FullyConnectedSpec& spec) {
  std::vector<std::int64_t> key = key_of_kernel(1, spec.input);
  append_to(key, {spec.outputs});
  append_to(key, {static_cast<int>(spec.bias), static_cast<int>(spec.activation),
                  static_cast<int>(spec.input_gradient), static_cast<int>(spec.weight_gradient)});
  append_to(key, {static_cast<int>(spec.type), static_cast<int>(spec.f32_input_gradient)});
  return known(key, spec);
}

tensor::KernelMemory KernelMemories::of(const tensor::PoolingSpec& spec) {
  std::vector<std::int64_t> key = key_of_kernel(2, spec.input);
  append_to(key,
            {static_cast<std::int64_t>(spec.kind), spec.window_h, spec.window_w, spec.stride,
             spec.pad_top, spec.pad_bottom, spec.pad_left, spec.pad_right,
             static_cast<std::int64_t>(spec.input_gradient), static_cast<std::int64_t>(spec.type)});
  return known(key, spec);
}

tensor::KernelMemory KernelMemories::of(const tensor::BatchNormSpec& spec, bool shared) {
  return tensor::memory_of(engine_, spec, shared);
}

}  // namespace rondo::train
