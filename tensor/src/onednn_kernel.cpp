// oneDNN's primitives with their arguments, made once: running one allocates nothing of ours.
//
// A primitive is asked for with a user's scratchpad, because oneDNN's own crashes when a kernel
// runs on another thread than the one that made it. All kernels of an engine share one scratchpad:
// they run one after another.

#include "onednn_kernel.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "onednn_calls.hpp"

namespace rondo::tensor {

using dnnl::memory;

memory::data_type onednn_type(DataType type) noexcept {
  return type == DataType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// The values of oneDNN's instruction sets are masks: a larger set has the bits of a smaller one.
bool may_use(dnnl_cpu_isa_t instructions) noexcept {
  const auto needed = static_cast<unsigned>(instructions);
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & needed) == needed;
}

memory::desc activation_layout(const Shape& shape, DataType type) {
  return {{shape.n, shape.c, shape.h, shape.w}, onednn_type(type), memory::format_tag::nhwc};
}

dnnl::primitive_attr scratchpad_attributes(Activation after) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (after == Activation::relu) {
    dnnl::post_ops relu;
    onednn::append_relu(relu);
    attributes.set_post_ops(relu);
  }
  return attributes;
}

bool is_reference(const dnnl::primitive_desc_base& desc) {
  return std::string_view(desc.impl_info_str()).starts_with("ref");
}

std::string checked_name(const dnnl::primitive_desc_base& desc, std::string_view layer) {
  std::string name = desc.impl_info_str();
  // A reference kernel is hundreds of times slower. Nobody wants to train with it unawares.
  if (is_reference(desc)) {
    throw std::runtime_error(std::string(layer) + ": oneDNN has only its slow reference kernel (" +
                             name + ") for this shape; choose another number of channels");
  }
  return name;
}

// Arguments whose address never changes are set here; run() sets the others, in the same order.
OnednnKernel::OnednnKernel(Engine::Impl& engine, const dnnl::primitive_desc_base& desc,
                           std::span<const Argument> arguments)
    : primitive_(desc.get()) {
  engine.reserve_scratchpad(desc.scratchpad_desc().get_size());
  const auto add = [&](int role, const memory::desc& layout, void* address) {
    memories_.emplace_back(layout, engine.cpu(), nullptr);
    if (address != nullptr) memories_.back().set_data_handle(address);
    arguments_.push_back({role, memories_.back().get()});
  };
  for (const Argument& argument : arguments) {
    if (argument.fixed == nullptr) moving_.push_back(memories_.size());
    add(argument.role, argument.layout, argument.fixed);
  }
  add(DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc(), nullptr);
}

void OnednnKernel::run(const Engine::Impl& engine, std::initializer_list<const void*> addresses) {
  engine.enter();
  // oneDNN takes inputs and outputs alike as void*; it writes only to outputs.
  auto place = moving_.begin();
  for (const void* address : addresses) {
    memories_[*place++].set_data_handle(const_cast<void*>(address));
  }
  memories_.back().set_data_handle(engine.scratchpad());
  // The C++ wrapper would copy the arguments into a vector at every call.
  const dnnl_status_t status =
      dnnl_primitive_execute(primitive_.get(), engine.stream().get(),
                             static_cast<int>(arguments_.size()), arguments_.data());
  if (status != dnnl_success) {
    throw std::runtime_error("a oneDNN kernel failed with status " + std::to_string(status));
  }
}

Buffer make_zeroed(Engine::Impl& engine, const dnnl::memory::desc& layout) {
  Buffer buffer(engine.layer_memory(), layout.get_size());
  std::ranges::fill(buffer.as<std::byte>(), std::byte{0});
  return buffer;
}

}  // namespace rondo::tensor
