#pragma once

// The data of collectives over links, and how it is posted.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rondo/transport/block.hpp>

#include "collective/algorithms.hpp"

namespace rondo::test {

using Ints = std::vector<std::int32_t>;

/// One buffer per rank.
template <typename T>
using Buffers = std::vector<std::vector<T>>;

/// Element i of what `rank` gives. The sum over 4,096 ranks has 31 bits.
inline std::int32_t link_value(std::size_t rank, std::size_t i) {
  return static_cast<std::int32_t>((rank * 100'003 + i) % 500'009);
}

/// `elements` of them.
inline Ints link_input(std::size_t rank, std::size_t elements) {
  Ints data(elements);
  for (std::size_t i = 0; i < elements; ++i) data[i] = link_value(rank, i);
  return data;
}

/// The inputs of each of `ranks`.
inline Buffers<std::int32_t> link_inputs(std::size_t ranks, std::size_t elements) {
  Buffers<std::int32_t> data;
  for (std::size_t r = 0; r < ranks; ++r) data.push_back(link_input(r, elements));
  return data;
}

/// Their sums over the ranks.
inline Ints link_sums(std::size_t ranks, std::size_t elements) {
  Ints sums(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    for (std::size_t r = 0; r < ranks; ++r) sums[i] += link_value(r, i);
  }
  return sums;
}

template <typename T>
transport::ConstBlock input_of(const std::vector<T>& data) {
  return transport::as_const_block(transport::Strided<const T>(std::span<const T>(data)));
}
template <typename T>
transport::Block output_of(std::vector<T>& data) {
  return transport::as_block(transport::Strided<T>(std::span<T>(data)));
}

/// Operation 17, as one rank posts it.
inline transport::Posted posted_of(transport::shm::Collective collective,
                                   transport::ConstBlock input, transport::Block output) {
  transport::Posted posted;
  posted.sequence = 17;
  posted.fingerprint.collective = collective;
  posted.fingerprint.type = input.type;
  posted.fingerprint.count = input.bytes() / transport::size_of(input.type);
  posted.input = input;
  posted.output = output;
  return posted;
}

}  // namespace rondo::test
