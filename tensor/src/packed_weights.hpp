#pragma once

#include <deque>
#include <span>

#include <oneapi/dnnl/dnnl.hpp>

#include "buffer.hpp"
#include "engine_impl.hpp"
#include "onednn_kernel.hpp"

namespace rondo::tensor {

/// Which weights a kernel reads: the layer's own, or those of the mirrored convolution, with
/// filters and channels exchanged and every filter turned by half a turn. Run over dy, that one
/// gives dx.
enum class WeightsKind { own, mirrored };

/// The weights of one layer in every layout that one of its kernels reads: forward, backward,
/// and the same layer for another number of images. Kernels share a layout where they can. Mirrored
/// weights are made in the engine's reorder buffer.
class PackedWeights {
 public:
  /// `plain` is the layout in the flat parameter array: [F,C,KH,KW], or [F,C].
  PackedWeights(Engine::Impl& engine, const dnnl::memory::desc& plain);

  [[nodiscard]] const dnnl::memory::desc& plain() const noexcept { return plain_; }

  /// Where the weights lie in `layout`, zero until pack(). The address is stable.
  [[nodiscard]] void* place_of(const dnnl::memory::desc& layout,
                               WeightsKind kind = WeightsKind::own);

  /// From the plain layout into all others.
  void pack(const float* weights);

 private:
  struct Copy {
    WeightsKind kind;
    dnnl::memory::desc layout;
    Buffer memory;
    OnednnKernel reorder;
  };

  void mirror(const float* weights) const;

  Engine::Impl& engine_;
  dnnl::memory::desc plain_;
  dnnl::memory::dims extents_;  ///< of plain_, which would make a new vector each time
  std::deque<Copy> copies_;
};

/// A kernel that copies from one layout to another; its addresses are given at each run, except
/// for those that are fixed.
[[nodiscard]] OnednnKernel make_reorder(Engine::Impl& engine, OnednnKernel::Argument from,
                                        OnednnKernel::Argument to);

/// A zeroed buffer for `layout`, with its padding.
[[nodiscard]] Buffer make_zeroed(Engine::Impl& engine, const dnnl::memory::desc& layout);

}  // namespace rondo::tensor
