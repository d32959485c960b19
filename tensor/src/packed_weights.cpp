#include "packed_weights.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace rondo::tensor {

PackedWeights::PackedWeights(Engine::Impl& engine, const dnnl::memory::desc& plain)
    : engine_(engine), plain_(plain) {}

void* PackedWeights::place_of(const dnnl::memory::desc& layout) {
  for (const Copy& copy : copies_) {
    if (copy.layout == layout) return copy.memory.data();
  }
  Copy& copy = copies_.emplace_back();
  copy.layout = layout;
  copy.memory = make_zeroed(engine_, layout);
  copy.reorder =
      make_reorder(engine_, {DNNL_ARG_FROM, plain_}, {DNNL_ARG_TO, layout, copy.memory.data()});
  return copy.memory.data();
}

void PackedWeights::pack(const float* weights) {
  for (Copy& copy : copies_) copy.reorder.run(engine_, {weights});
}

OnednnKernel make_reorder(Engine::Impl& engine, OnednnKernel::Argument from,
                          OnednnKernel::Argument to) {
  const dnnl::reorder::primitive_desc desc(engine.cpu(), from.layout, engine.cpu(), to.layout,
                                           scratchpad_attributes());
  return {engine, desc, std::array{from, to}};
}

Buffer make_zeroed(Engine::Impl& engine, const dnnl::memory::desc& layout) {
  Buffer buffer(engine.memory(), layout.get_size());
  std::ranges::fill(buffer.as<std::byte>(), std::byte{0});
  return buffer;
}

}  // namespace rondo::tensor
