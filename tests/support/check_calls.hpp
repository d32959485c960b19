#pragma once

// Calls of the table of collectives, made by a World's ranks and checked.

#include <cstddef>
#include <string>

#include <gtest/gtest.h>

#include <rondo/transport/world.hpp>

#include "support/call_buffers.hpp"
#include "support/world.hpp"

namespace rondo::test {

/// Makes one call and checks it.
inline void check_call(transport::World& world, Memory memory, const Call& call,
                       std::size_t elements, int root) {
  EXPECT_EQ(fault_of_call(world.communicator(), resource(world, memory), call, elements, root), "");
}

/// The same of every call that reduces, as for_each_reduction() makes them.
template <typename Chosen>
void check_reductions(transport::World& world, Memory memory, std::size_t elements, Chosen chosen) {
  for_each_reduction(world.communicator(), resource(world, memory), elements, chosen,
                     [](const std::string& fault) { EXPECT_EQ(fault, ""); });
}

}  // namespace rondo::test
