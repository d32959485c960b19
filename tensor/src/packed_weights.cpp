#include "packed_weights.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace rondo::tensor {

using dnnl::memory;

PackedWeights::PackedWeights(Engine::Impl& engine, const memory::desc& plain)
    : engine_(engine), plain_(plain), extents_(plain.dims()) {}

void* PackedWeights::place_of(const memory::desc& layout, WeightsKind kind) {
  for (const Copy& copy : copies_) {
    if (copy.kind == kind && copy.layout == layout) return copy.memory.data();
  }
  Copy& copy = copies_.emplace_back();
  copy.kind = kind;
  copy.layout = layout;
  copy.memory = make_zeroed(engine_, layout);
  if (kind == WeightsKind::own) {
    copy.reorder =
        make_reorder(engine_, {DNNL_ARG_FROM, plain_}, {DNNL_ARG_TO, layout, copy.memory.data()});
    return copy.memory.data();
  }
  engine_.reserve_reorder_buffer(plain_.get_size());
  const memory::desc plain(layout.dims(), memory::data_type::f32, memory::format_tag::oihw);
  copy.reorder =
      make_reorder(engine_, {DNNL_ARG_FROM, plain}, {DNNL_ARG_TO, layout, copy.memory.data()});
  return copy.memory.data();
}

void PackedWeights::pack(const float* weights) {
  bool mirrored = false;  // the reorder buffer holds them
  for (Copy& copy : copies_) {
    if (copy.kind == WeightsKind::own) {
      copy.reorder.run(engine_, {weights});
      continue;
    }
    if (!mirrored) mirror(weights);
    mirrored = true;
    copy.reorder.run(engine_, {engine_.reorder_buffer()});
  }
}

void PackedWeights::mirror(const float* weights) const {
  const std::int64_t filters = extents_[0];
  const std::int64_t channels = extents_[1];
  const std::int64_t window = extents_[2] * extents_[3];
  auto* into = static_cast<float*>(engine_.reorder_buffer());
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t f = 0; f < filters; ++f) {
      const float* from = weights + (f * channels + c) * window;
      std::reverse_copy(from, from + window, into);
      into += window;
    }
  }
}

OnednnKernel make_reorder(Engine::Impl& engine, OnednnKernel::Argument from,
                          OnednnKernel::Argument to) {
  const dnnl::reorder::primitive_desc desc(engine.cpu(), from.layout, engine.cpu(), to.layout,
                                           scratchpad_attributes());
  return {engine, desc, std::array{from, to}};
}

Buffer make_zeroed(Engine::Impl& engine, const dnnl::memory::desc& layout) {
  Buffer buffer(engine.layer_memory(), layout.get_size());
  std::ranges::fill(buffer.as<std::byte>(), std::byte{0});
  return buffer;
}

}  // namespace rondo::tensor
