#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "onednn_kernel.hpp"

namespace rondo::tensor {

/// Copies an array from one layout to another by plain loops: fp32 or bf16, of up to five
/// dimensions. Elements of the padding are not written.
class PlainReorder {
 public:
  PlainReorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

  void run(const void* from, void* to) const;

 private:
  /// Where the elements lie: the offset of an element is the sum of one entry for each dimension.
  struct Places {
    explicit Places(const dnnl::memory::desc& layout);

    std::vector<std::vector<std::int64_t>> offsets;  ///< [dimension][position]
    DataType type = DataType::f32;
  };

  template <typename From, typename To>
  void copy(const From* from, To* to) const;

  Places from_;
  Places to_;
};

/// Copies an array from one layout to another: by oneDNN, or plainly where its kernel is broken.
class Reorder {
 public:
  Reorder() = default;
  Reorder(Engine::Impl& engine, const dnnl::memory::desc& from, const dnnl::memory::desc& to);

  void run(const Engine::Impl& engine, const void* from, void* to);

  explicit operator bool() const noexcept { return kernel_ || plain_ != nullptr; }

 private:
  OnednnKernel kernel_;
  std::unique_ptr<PlainReorder> plain_;
};

/// Does oneDNN's kernel for this reorder copy what it should? Runs it once.
[[nodiscard]] bool reorders_correctly(const Engine::Impl& on, const dnnl::memory::desc& from,
                                      const dnnl::memory::desc& to);

}  // namespace rondo::tensor
