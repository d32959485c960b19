#pragma once

#include <cstddef>

#include <rondo/transport/block.hpp>
#include <rondo/transport/element.hpp>

namespace rondo::transport {

/// One partner of a Communicator::sendrecv(): what it is given, and where what it gives goes.
///
/// Rows may lie apart in memory, so the columns and corners of a picture are blocks like any
/// other. Both sides pass as many bytes, in rows of any length. An empty block on one side is
/// matched by an empty one on the other. Tags tell several exchanges between the same two ranks
/// apart: what is given with `out_tag` arrives where `in_tag` is equal.
struct Neighbour {
  int rank = 0;
  ConstBlock out = {};
  Block in = {};
  int out_tag = 0;
  int in_tag = 0;

  Neighbour() = default;

  template <Element T>
  Neighbour(int partner, Strided<const T> given, Strided<T> taken, int given_tag = 0,
            int taken_tag = 0) noexcept
      : rank(partner),
        out(as_const_block(given)),
        in(as_block(taken)),
        out_tag(given_tag),
        in_tag(taken_tag) {}
};

}  // namespace rondo::transport
