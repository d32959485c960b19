// Weights change their layout once for each update. oneDNN has fast kernels for that, and a release
// whose kernels drop elements. A kernel that may be one of those is tried when a layer is made.

#include "reorder.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "onednn_calls.hpp"
#include "onednn_defects.hpp"
#include "onednn_self_test.hpp"

namespace rondo::tensor {

using dnnl::memory;

namespace {

constexpr std::size_t most_dimensions = 5;

dnnl::reorder::primitive_desc describe(const Engine::Impl& on, const memory::desc& from,
                                       const memory::desc& to) {
  return {on.cpu(), from, on.cpu(), to, scratchpad_attributes()};
}

// All numbers of a layout, and no others.
std::string name_of(const memory::desc& layout) {
  const onednn::BlockedLayout blocked = onednn::blocked_layout_of(layout);
  std::string name = " type " + std::to_string(static_cast<int>(blocked.type));
  for (const auto extent : blocked.extents) name += " " + std::to_string(extent);
  for (const auto stride : blocked.strides) name += " by " + std::to_string(stride);
  for (const auto& [dimension, extent] : blocked.blocks) {
    name += " " + std::to_string(extent) + " of " + std::to_string(dimension);
  }
  return name;
}

}  // namespace

// A dimension may be cut into several blocks. The innermost block comes last in the list.
PlainReorder::Places::Places(const memory::desc& layout) {
  const onednn::BlockedLayout blocked = onednn::blocked_layout_of(layout);
  if (blocked.type == memory::data_type::bf16) type = DataType::bf16;
  for (std::size_t d = 0; d < blocked.extents.size(); ++d) {
    std::vector<std::int64_t>& of_dimension = offsets.emplace_back();
    for (std::int64_t position = 0; position < blocked.extents[d]; ++position) {
      std::int64_t rest = position;
      std::int64_t distance = 1;
      std::int64_t offset = 0;
      for (std::size_t b = blocked.blocks.size(); b-- > 0;) {
        const auto& block = blocked.blocks[b];
        if (block.dimension == static_cast<std::int64_t>(d)) {
          offset += rest % block.extent * distance;
          rest /= block.extent;
        }
        distance *= block.extent;
      }
      of_dimension.push_back(offset + rest * blocked.strides[d]);
    }
  }
  offsets.resize(most_dimensions, {0});
}

PlainReorder::PlainReorder(const memory::desc& from, const memory::desc& to)
    : from_(from), to_(to) {}

template <typename From, typename To>
void PlainReorder::copy(const From* from, To* to) const {
  const auto& in = from_.offsets;
  const auto& out = to_.offsets;
  const auto each = [&](std::size_t d, std::int64_t read, std::int64_t write, const auto& use) {
    for (std::size_t i = 0; i < in[d].size(); ++i) use(read + in[d][i], write + out[d][i]);
  };
  each(0, 0, 0, [&](std::int64_t r0, std::int64_t w0) {
    each(1, r0, w0, [&](std::int64_t r1, std::int64_t w1) {
      each(2, r1, w1, [&](std::int64_t r2, std::int64_t w2) {
        each(3, r2, w2, [&](std::int64_t r3, std::int64_t w3) {
          each(4, r3, w3, [&](std::int64_t read, std::int64_t write) {
            to[write] = from_float<To>(to_float(from[read]));
          });
        });
      });
    });
  });
}

void PlainReorder::run(const void* from, void* to) const {
  with_type(from_.type, [&]<typename From>(From) {
    with_type(to_.type,
              [&]<typename To>(To) { copy(static_cast<const From*>(from), static_cast<To*>(to)); });
  });
}

Reorder::Reorder(Engine::Impl& engine, const memory::desc& from, const memory::desc& to) {
  const auto is_sound = [&] {
    return onednn::told_once(
        "reorder by " + std::to_string(engine.threads()) + name_of(from) + " to" + name_of(to),
        [&] { return reorders_correctly(engine, from, to); });
  };
  if (onednn::may_drop_elements() && !is_sound()) {
    plain_ = std::make_unique<PlainReorder>(from, to);
    return;
  }
  const OnednnKernel::Argument arguments[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
  kernel_ = OnednnKernel(engine, describe(engine, from, to), arguments);
}

void Reorder::run(const Engine::Impl& engine, const void* from, void* to) {
  if (plain_ != nullptr) return plain_->run(from, to);
  kernel_.run(engine, {from, to});
}

// Every element has another number, as far as a float and a bf16 have so many.
bool reorders_correctly(const Engine::Impl& on, const memory::desc& from, const memory::desc& to) {
  std::vector<std::byte> source(from.get_size());
  std::vector<std::byte> expected(to.get_size());
  std::vector<std::byte> copied(to.get_size());
  auto* const values = reinterpret_cast<std::uint16_t*>(source.data());
  const bool wide = onednn::blocked_layout_of(from).type == memory::data_type::f32;
  // The upper half of a float, which is also a bf16; the lower one is zero.
  const std::size_t step = wide ? 2 : 1;
  std::uint16_t next = 0x3f80;  // 1
  for (std::size_t i = step - 1; i < source.size() / 2; i += step) {
    values[i] = next;
    next = next == 0x7f00 ? 0x3f80 : static_cast<std::uint16_t>(next + 1);
  }
  PlainReorder(from, to).run(source.data(), expected.data());

  const auto kernel = describe(on, from, to);
  std::vector<std::byte> scratchpad(kernel.scratchpad_desc().get_size() + 1);
  memory in(from, on.cpu(), source.data());
  memory out(to, on.cpu(), copied.data());
  memory rest(kernel.scratchpad_desc(), on.cpu(), scratchpad.data());
  dnnl::reorder(kernel).execute(
      on.stream(), {{DNNL_ARG_FROM, in}, {DNNL_ARG_TO, out}, {DNNL_ARG_SCRATCHPAD, rest}});
  return copied == expected;
}

}  // namespace rondo::tensor
