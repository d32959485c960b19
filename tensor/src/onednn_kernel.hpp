#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/tensor.hpp>

#include "engine_impl.hpp"

namespace rondo::tensor {

[[nodiscard]] dnnl::memory::data_type onednn_type(DataType type) noexcept;

/// Has the CPU all of these instructions, and does the environment (ONEDNN_MAX_CPU_ISA) allow them?
[[nodiscard]] bool may_use(dnnl_cpu_isa_t instructions) noexcept;

/// How a dense activation lies in memory: always nhwc, on both sides of every kernel. With any
/// other layout on one side oneDNN falls back to its reference implementation.
[[nodiscard]] dnnl::memory::desc activation_layout(const Shape& shape, DataType type);

/// Attributes that all our primitives share, the scratchpad is ours, and what a forward kernel does
/// after its own work. Copies of an attribute share their state, so none is passed on.
[[nodiscard]] dnnl::primitive_attr scratchpad_attributes(Activation after = Activation::none);

/// Is this oneDNN's reference kernel, which is hundreds of times slower than others?
[[nodiscard]] bool is_reference(const dnnl::primitive_desc_base& desc);

/// The name of the kernel that oneDNN chose; throws std::runtime_error when it is the reference.
[[nodiscard]] std::string checked_name(const dnnl::primitive_desc_base& desc,
                                       std::string_view layer);

/// One oneDNN primitive, its memory objects and its argument list, made once; running it only
/// exchanges the addresses.
class OnednnKernel {
 public:
  struct Argument {
    int role = 0;
    dnnl::memory::desc layout = {};
    void* fixed = nullptr;  ///< its address when that never changes
  };

  OnednnKernel() = default;
  OnednnKernel(Engine::Impl& engine, const dnnl::primitive_desc_base& desc,
               std::span<const Argument> arguments);

  /// The addresses of the arguments that are not fixed, in the order of the constructor's.
  void run(const Engine::Impl& engine, std::initializer_list<const void*> addresses);

  explicit operator bool() const noexcept { return static_cast<bool>(primitive_); }

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;
  std::vector<std::size_t> moving_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

/// A zeroed buffer for `layout`, with its padding.
[[nodiscard]] Buffer make_zeroed(Engine::Impl& engine, const dnnl::memory::desc& layout);

}  // namespace rondo::tensor
