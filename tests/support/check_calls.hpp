#pragma once

// Calls of the table of collectives, made by a World's ranks and checked.

#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

#include <rondo/transport/element.hpp>
#include <rondo/transport/world.hpp>

#include "support/call_buffers.hpp"
#include "support/world.hpp"

namespace rondo::test {

/// Makes one call and checks it.
template <transport::Element T = std::int32_t>
void check_call(transport::World& world, Memory memory, const Call& call, std::size_t elements,
                int root) {
  CallBuffers<T> data(world.communicator(), resource(world, memory), call, elements, root);
  data.fill();

  data.post(world.communicator()).wait();

  EXPECT_EQ(data.fault(), "");
}

/// Makes every call that reduces, with each type for which `chosen`(kind, type, operation)
/// is true.
template <typename Chosen>
void check_reductions(transport::World& world, Memory memory, std::size_t elements, Chosen chosen) {
  const auto check = [&]<typename T>(T /*type*/) {
    for (int i = 0; i <= static_cast<int>(transport::ReduceOp::bit_xor); ++i) {
      const auto op = static_cast<transport::ReduceOp>(i);
      const transport::ElementType type = transport::type_of<T>();
      const bool exists = op < transport::ReduceOp::bit_and || transport::is_integer(type);
      for (const char* name : {"Allreduce", "ReduceScatter", "Reduce"}) {
        Call call = call_named(name);
        call.op = op;
        if (exists && chosen(call.kind, type, op)) check_call<T>(world, memory, call, elements, 0);
      }
    }
  };
  const auto check_all = [&]<typename... Types>() { (check(Types{}), ...); };
  check_all.template operator()<float, double, transport::Bfloat16, transport::Float16, std::int8_t,
                                std::int16_t, std::int32_t, std::int64_t, std::uint8_t,
                                std::uint16_t, std::uint32_t, std::uint64_t>();
}

}  // namespace rondo::test
