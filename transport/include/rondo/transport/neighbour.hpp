#pragma once

#include <cstddef>

#include <rondo/transport/block.hpp>
#include <rondo/transport/element.hpp>

namespace rondo::transport {

/// One partner of a Communicator::sendrecv(): what is sent to it, and where its message goes.
///
/// Rows may lie apart in memory, so the columns and corners of an image are blocks like any
/// other. Both sides pass as many bytes, in rows of any length. An empty block on one side is
/// matched by an empty one on the other. Tags tell several exchanges between the same two ranks
/// apart: what is sent with `out_tag` is received where `in_tag` is equal.
struct Neighbour {
  int rank = 0;
  ConstBlock out = {};
  Block in = {};
  int out_tag = 0;
  int in_tag = 0;

  Neighbour() = default;

  template <Element T>
  Neighbour(int partner, Strided<const T> sent, Strided<T> received, int sent_tag = 0,
            int received_tag = 0) noexcept
      : rank(partner),
        out(as_const_block(sent)),
        in(as_block(received)),
        out_tag(sent_tag),
        in_tag(received_tag) {}
};

}  // namespace rondo::transport
