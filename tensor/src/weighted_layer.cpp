// The common part of layers with weights. A kernel chooses the layout of the weights that it reads
// fastest; the layer keeps them in each layout that one of its kernels wants, and packs all of them
// after an update.
//
// The parameters of a model lie in one flat fp32 array, in torch's layout, which reductions and
// optimizers work on. This file is the border between that array and the layouts of oneDNN: weights
// are packed once for each update, not for each call, and a gradient is unpacked once for each
// backward pass.

#include "weighted_layer.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "onednn_calls.hpp"

namespace rondo::tensor {

using dnnl::memory;
using dnnl::query;

namespace {

// A filter of one tap is mirrored by a reorder that exchanges channels and filters.
bool has_one_tap(const memory::dims& extents) { return extents[2] * extents[3] == 1; }

}  // namespace

PackedWeights::PackedWeights(Engine::Impl& engine, const memory::desc& plain)
    : engine_(engine), plain_(plain), extents_(onednn::dims_of(plain)) {}

// Kernels that read the same layout share one copy.
void* PackedWeights::place_of(const memory::desc& layout, WeightsKind kind) {
  for (const Copy& copy : copies_) {
    if (copy.kind == kind && copy.layout == layout) return copy.memory.data();
  }
  Copy copy;  // kept when it is whole
  copy.kind = kind;
  copy.layout = layout;
  copy.memory = make_zeroed(engine_, layout);
  packed_ = false;
  if (kind == WeightsKind::own) {
    copy.reorder = Reorder(engine_, plain_.reshape(onednn::dims_of(layout)), layout);
    return copies_.emplace_back(std::move(copy)).memory.data();
  }
  if (has_one_tap(extents_)) {
    const memory::desc turned(onednn::dims_of(layout), memory::data_type::f32,
                              memory::format_tag::iohw);
    copy.reorder = Reorder(engine_, turned, layout);
    return copies_.emplace_back(std::move(copy)).memory.data();
  }
  // Others are first written to the reorder buffer, in torch's layout with channels and filters
  // exchanged, and are reordered from there.
  engine_.reserve_reorder_buffer(plain_.get_size());
  const memory::desc plain(onednn::dims_of(layout), memory::data_type::f32,
                           memory::format_tag::oihw);
  copy.reorder = Reorder(engine_, plain, layout);
  return copies_.emplace_back(std::move(copy)).memory.data();
}

// The mirrored weights are made once, however many layouts are made from them.
void PackedWeights::pack(const float* weights) {
  bool mirrored = false;  // the reorder buffer holds them
  for (Copy& copy : copies_) {
    if (copy.kind == WeightsKind::own || has_one_tap(extents_)) {
      copy.reorder.run(engine_, weights, copy.memory.data());
      continue;
    }
    if (!mirrored) mirror(weights);
    mirrored = true;
    copy.reorder.run(engine_, engine_.reorder_buffer(), copy.memory.data());
  }
  packed_ = true;
}

// Exchanges filters and channels, and turns each filter by half a turn.
void PackedWeights::mirror(const float* weights) const {
  const std::int64_t filters = extents_[0];
  const std::int64_t channels = extents_[1];
  const std::int64_t window = extents_[2] * extents_[3];
  const int parts = engine_.threads();
  for_each_part(parts, [&](int part) {
    const Cut share = cut(channels, part, parts);
    auto* into = static_cast<float*>(engine_.reorder_buffer()) + share.first * filters * window;
    for (std::int64_t c = share.first; c < share.last; ++c) {
      for (std::int64_t f = 0; f < filters; ++f) {
        const float* from = weights + (f * channels + c) * window;
        std::reverse_copy(from, from + window, into);
        into += window;
      }
    }
  });
}

// The sizes that making the layer would take, asked of the descriptions alone.
KernelMemory memory_of(const LayerKernels& kernels, const dnnl::memory::desc& plain) {
  KernelMemory memory;
  const auto count_scratchpad = [&](const dnnl::primitive_desc_base& desc) {
    memory.scratchpad = std::max(memory.scratchpad, desc.scratchpad_desc().get_size());
  };
  for (const auto& own : {kernels.own_forward, kernels.own_backward_data}) {
    if (!own) continue;
    memory.own += own->weights_layout().get_size();
    memory.scratchpad = std::max(memory.scratchpad, own->scratchpad_bytes());
  }
  dnnl::memory::desc forward;
  if (kernels.forward) {
    forward = kernels.forward.query_md(query::weights_md, 0);
    memory.own += forward.get_size();
    count_scratchpad(kernels.forward);
  }
  if (kernels.backward_data) {
    const auto backward = kernels.backward_data.query_md(query::weights_md, 0);
    // Forward and backward share a copy where they read the same layout; mirrored weights never do.
    const bool mirrored = kernels.backward_data_reads == WeightsKind::mirrored;
    if (mirrored || backward != forward) memory.own += backward.get_size();
    if (mirrored && !has_one_tap(onednn::dims_of(plain))) {
      memory.reorder_buffer = plain.get_size();
    }
    count_scratchpad(kernels.backward_data);
  }
  if (kernels.own_backward_weights) {
    memory.reorder_buffer = std::max(memory.reorder_buffer, plain.get_size());
    memory.scratchpad =
        std::max(memory.scratchpad, kernels.own_backward_weights->scratchpad_bytes());
  } else if (kernels.backward_weights) {
    const auto gradient = kernels.backward_weights.query_md(query::diff_weights_md, 0);
    // The buffer holds mirrored weights or a gradient, and never both at once.
    memory.reorder_buffer = std::max(memory.reorder_buffer, gradient.get_size());
    count_scratchpad(kernels.backward_weights);
  }
  return memory;
}

WeightedLayer::WeightedLayer(Engine& engine, Extents extents, const LayerKernels& kernels,
                             std::shared_ptr<PackedWeights> weights)
    : engine_(engine),
      shared_(engine.impl()),
      extents_(std::move(extents)),
      weights_(std::move(weights)) {
  if (extents_.output.n == 0) return;
  if (kernels.own_forward) {
    own_forward_ = own_convolution(kernels.own_forward, "forward ");
  } else {
    make_forward(kernels.forward);
  }
  if (kernels.own_backward_data) {
    own_backward_data_ = own_convolution(kernels.own_backward_data, ", data ");
  } else if (extents_.input_gradient) {
    make_backward_data(kernels.backward_data, kernels.backward_data_reads);
  }
  if (extents_.weight_gradient) make_backward_weights(kernels);
}

WeightedLayer::OwnConvolution WeightedLayer::own_convolution(
    std::shared_ptr<const WinogradConvolution> kernel, const char* pass) {
  (implementation_.starts_with("none") ? implementation_ = pass : implementation_ += pass) +=
      kernel->name();
  shared_.reserve_scratchpad(kernel->scratchpad_bytes());
  const auto* const weights =
      static_cast<const float*>(weights_->place_of(kernel->weights_layout()));
  return {std::move(kernel), weights};
}

void WeightedLayer::make_forward(const dnnl::primitive_desc_base& desc) {
  implementation_ = "forward " + checked_name(desc, extents_.name);
  const auto weights = desc.query_md(query::weights_md, 0);
  std::vector<OnednnKernel::Argument> arguments = {
      {DNNL_ARG_SRC, desc.query_md(query::src_md)},
      {DNNL_ARG_DST, desc.query_md(query::dst_md)},
      {DNNL_ARG_WEIGHTS, weights, weights_->place_of(weights)}};
  if (extents_.bias) arguments.push_back({DNNL_ARG_BIAS, desc.query_md(query::weights_md, 1)});
  forward_ = OnednnKernel(shared_, desc, arguments);
}

// A mirrored kernel is a forward kernel that is run over dy: its source is dy and its result dx.
void WeightedLayer::make_backward_data(const dnnl::primitive_desc_base& desc, WeightsKind reads) {
  implementation_ += ", data " + checked_name(desc, extents_.name);
  const auto weights = desc.query_md(query::weights_md, 0);
  const bool mirrored = reads == WeightsKind::mirrored;
  const OnednnKernel::Argument arguments[] = {
      {mirrored ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST,
       desc.query_md(mirrored ? query::src_md : query::diff_dst_md)},
      {mirrored ? DNNL_ARG_DST : DNNL_ARG_DIFF_SRC,
       desc.query_md(mirrored ? query::dst_md : query::diff_src_md)},
      {DNNL_ARG_WEIGHTS, weights, weights_->place_of(weights, reads)}};
  backward_data_ = OnednnKernel(shared_, desc, arguments);
}

// The gradient is left in the kernel's layout. Handing the plain layout to the primitive would make
// oneDNN choose its reference kernel.
void WeightedLayer::make_backward_weights(const LayerKernels& kernels) {
  if (kernels.own_backward_weights) {
    return make_backward_weights(kernels.own_backward_weights);
  }
  const dnnl::primitive_desc_base& desc = kernels.backward_weights;
  implementation_ += ", weights " + checked_name(desc, extents_.name);
  const auto layout = desc.query_md(query::diff_weights_md, 0);
  // The buffer grows here, while layers are made. So a step allocates nothing, and the buffer stays
  // where it is while kernels run.
  shared_.reserve_reorder_buffer(layout.get_size());
  std::vector<OnednnKernel::Argument> arguments = {
      {DNNL_ARG_SRC, desc.query_md(query::src_md)},
      {DNNL_ARG_DIFF_DST, desc.query_md(query::diff_dst_md)},
      {DNNL_ARG_DIFF_WEIGHTS, layout}};
  if (extents_.bias) {
    arguments.push_back({DNNL_ARG_DIFF_BIAS, desc.query_md(query::diff_weights_md, 1)});
  }
  backward_weights_ = OnednnKernel(shared_, desc, arguments);
  unpack_ = Reorder(shared_, layout, weights_->plain().reshape(onednn::dims_of(layout)));
}

void WeightedLayer::make_backward_weights(std::shared_ptr<const OwnWeightGradient> own) {
  implementation_ += ", weights " + own->name();
  const memory::desc layout(onednn::dims_of(weights_->plain()), memory::data_type::f32,
                            own->layout());
  shared_.reserve_reorder_buffer(layout.get_size());
  shared_.reserve_scratchpad(own->scratchpad_bytes());
  own_backward_weights_ = std::move(own);
  unpack_ = Reorder(shared_, layout, weights_->plain());
}

void WeightedLayer::require_bias(const char* call, std::size_t size) const {
  const auto expected = extents_.bias ? static_cast<std::size_t>(extents_.output.c) : 0;
  if (size == expected) return;
  throw std::invalid_argument(extents_.name + "::" + call + ": the bias has " +
                              std::to_string(size) + " elements, expected " +
                              std::to_string(expected));
}

void WeightedLayer::require_weights(const char* call, std::size_t size) const {
  const std::size_t expected = weights_->plain().get_size() / sizeof(float);
  if (size == expected) return;
  throw std::invalid_argument(extents_.name + "::" + call + ": " + std::to_string(size) +
                              " weights, expected " + std::to_string(expected));
}

void WeightedLayer::require_weight_gradient(const char* call) const {
  if (extents_.weight_gradient) return;
  throw std::invalid_argument(extents_.name + "::" + call +
                              ": the layer was made without a gradient of its weights");
}

void WeightedLayer::require_packed(const char* call) const {
  if (weights_->is_packed()) return;
  throw std::logic_error(extents_.name + "::" + call +
                         ": call pack_weights() first, after the last layer that shares these "
                         "weights was made");
}

void WeightedLayer::pack_weights(std::span<const float> plain) {
  require_weights("pack_weights", plain.size());
  weights_->pack(plain.data());
}

void WeightedLayer::forward(ConstAnyView x, std::span<const float> bias, AnyView y) {
  require_shape(extents_.name, "forward: x", x, extents_.input, extents_.type);
  require_shape(extents_.name, "forward: y", y, extents_.output, extents_.output_type);
  require_bias("forward", bias.size());
  // A layer for an empty batch has no kernels: y has no elements to write.
  if (extents_.output.n == 0) return;
  require_packed("forward");
  if (own_forward_.kernel) return own_forward_.run(shared_, x.data, bias, y.data);
  if (extents_.bias) {
    forward_.run(shared_, {x.data, y.data, bias.data()});
  } else {
    forward_.run(shared_, {x.data, y.data});
  }
}

void WeightedLayer::backward_data(ConstAnyView dy, AnyView dx) {
  if (!extents_.input_gradient) {
    throw std::invalid_argument(extents_.name +
                                "::backward_data: the layer was made without an input gradient");
  }
  require_shape(extents_.name, "backward_data: dy", dy, extents_.output, extents_.type);
  require_shape(extents_.name, "backward_data: dx", dx, extents_.input,
                extents_.input_gradient_type);
  if (extents_.output.n == 0) return;
  require_packed("backward_data");
  if (own_backward_data_.kernel) return own_backward_data_.run(shared_, dy.data, {}, dx.data);
  backward_data_.run(shared_, {dy.data, dx.data});
}

// Without images there is no kernel, and gradients are zero.
void WeightedLayer::backward_weights(ConstAnyView x, ConstAnyView dy,
                                     std::span<float> bias_gradient) {
  require_weight_gradient("backward_weights");
  require_shape(extents_.name, "backward_weights: x", x, extents_.input, extents_.type);
  require_shape(extents_.name, "backward_weights: dy", dy, extents_.output, extents_.type);
  require_bias("backward_weights", bias_gradient.size());
  if (own_backward_weights_) {
    auto* const into = static_cast<float*>(shared_.reorder_buffer());
    return own_backward_weights_->run(shared_, x.data, dy.data, into,
                                      bias_gradient.empty() ? nullptr : bias_gradient.data());
  }
  if (!backward_weights_) {
    std::ranges::fill(bias_gradient, 0.0F);
    return;
  }
  // The next layer's gradient overwrites the buffer: unpack_gradients() has to come first.
  const void* const into = shared_.reorder_buffer();
  if (extents_.bias) {
    backward_weights_.run(shared_, {x.data, dy.data, into, bias_gradient.data()});
  } else {
    backward_weights_.run(shared_, {x.data, dy.data, into});
  }
}

void WeightedLayer::unpack_gradients(std::span<float> plain) {
  require_weight_gradient("unpack_gradients");
  require_weights("unpack_gradients", plain.size());
  if (unpack_) {
    unpack_.run(shared_, shared_.reorder_buffer(), plain.data());
  } else {
    std::ranges::fill(plain, 0.0F);
  }
}

}  // namespace rondo::tensor
