#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

/// The calls that differ between oneDNN 2 and 3. Version 2 describes an operation first, and makes
/// a primitive's description from that; version 3 does both at once.
namespace rondo::tensor::onednn {

#if DNNL_VERSION_MAJOR < 3
// With a dilation, as all poolings have in version 3.
using PoolingForward = dnnl::pooling_v2_forward;
using PoolingBackward = dnnl::pooling_v2_backward;
#else
using PoolingForward = dnnl::pooling_forward;
using PoolingBackward = dnnl::pooling_backward;
#endif

[[nodiscard]] inline dnnl::memory::dims dims_of(const dnnl::memory::desc& layout) {
#if DNNL_VERSION_MAJOR < 3
  return layout.dims();
#else
  return layout.get_dims();
#endif
}

/// How the elements of an array lie in memory: along each dimension, at a distance of `strides`
/// elements between blocks; within a block, as listed from the outermost of `blocks` on.
struct BlockedLayout {
  struct Block {
    std::int64_t dimension;
    std::int64_t extent;
  };
  dnnl::memory::dims extents;
  dnnl::memory::dims strides;
  std::vector<Block> blocks;
  dnnl::memory::data_type type;
};

[[nodiscard]] inline BlockedLayout blocked_layout_of(const dnnl::memory::desc& layout) {
  BlockedLayout blocked;
  blocked.extents = dims_of(layout);
#if DNNL_VERSION_MAJOR < 3
  const auto& description = layout.data.format_desc.blocking;
  const std::span strides(description.strides, blocked.extents.size());
  const std::span blocks(description.inner_blks, static_cast<std::size_t>(description.inner_nblks));
  const std::span dimensions(description.inner_idxs, blocks.size());
  blocked.type = layout.data_type();
#else
  const auto strides = layout.get_strides();
  const auto blocks = layout.get_inner_blks();
  const auto dimensions = layout.get_inner_idxs();
  blocked.type = layout.get_data_type();
#endif
  blocked.strides.assign(strides.begin(), strides.end());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocked.blocks.push_back({.dimension = dimensions[i], .extent = blocks[i]});
  }
  return blocked;
}

/// Lets a kernel apply max(0, y) to its result.
inline void append_relu(dnnl::post_ops& after) {
#if DNNL_VERSION_MAJOR < 3
  after.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
#else
  after.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
#endif
}

/// The first of oneDNN's kernels, from the fastest on, that `is_sound` accepts; empty when it
/// accepts none.
template <typename Description, typename IsSound>
[[nodiscard]] Description first_sound(Description kernel, const IsSound& is_sound) {
  while (!is_sound(kernel)) {
    if (!kernel.next_impl()) return {};
  }
  return kernel;
}

/// The engine and attributes that a primitive is made with.
struct Setting {
  const dnnl::engine& engine;
  const dnnl::primitive_attr& attributes;
};

/// A sound kernel for an operation without a hint. `operation` has the arguments of oneDNN 3's
/// primitive_desc between its engine and its attributes.
template <typename Primitive, typename IsSound, typename... Operation>
[[nodiscard]] auto forward_kernel(const Setting& on, const IsSound& is_sound,
                                  const Operation&... operation) {
  using Description = typename Primitive::primitive_desc;
#if DNNL_VERSION_MAJOR < 3
  const typename Primitive::desc described(operation...);  // next_impl() refers to it
  return first_sound(Description(described, on.attributes, on.engine), is_sound);
#else
  return first_sound(Description(on.engine, operation..., on.attributes), is_sound);
#endif
}

/// As forward_kernel(), for an operation of backward: `hint` is the forward kernel.
template <typename Primitive, typename Hint, typename IsSound, typename... Operation>
[[nodiscard]] auto backward_kernel(const Setting& on, const Hint& hint, const IsSound& is_sound,
                                   const Operation&... operation) {
  using Description = typename Primitive::primitive_desc;
#if DNNL_VERSION_MAJOR < 3
  const typename Primitive::desc described(operation...);  // next_impl() refers to it
  return first_sound(Description(described, on.attributes, on.engine, hint), is_sound);
#else
  return first_sound(Description(on.engine, operation..., hint, on.attributes), is_sound);
#endif
}

}  // namespace rondo::tensor::onednn
