#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <rondo/tensor/pooling.hpp>

#include "engine_impl.hpp"

namespace rondo::tensor::onednn {

/// Does this kernel pool as `spec` says? As computes_correctly() of a convolution; averages may be
/// rounded.
[[nodiscard]] bool computes_correctly(const Engine::Impl& on,
                                      const dnnl::primitive_desc_base& forward,
                                      const PoolingSpec& spec);

/// The same of `backward`, after `forward`, whose workspace it reads.
[[nodiscard]] bool computes_correctly(const Engine::Impl& on,
                                      const dnnl::primitive_desc_base& forward,
                                      const dnnl::primitive_desc_base& backward,
                                      const PoolingSpec& spec);

}  // namespace rondo::tensor::onednn
