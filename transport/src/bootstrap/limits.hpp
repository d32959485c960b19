#pragma once

#include <chrono>
#include <cstddef>

namespace rondo::transport::rendezvous {

// What ranks and store take from each other.

/// How long one handshake may last, on both sides.
inline constexpr std::chrono::seconds handshake_limit{5};

/// A rank's part of an allgather, and the frame around it.
inline constexpr std::size_t largest_blob = std::size_t{1} << 20U;
inline constexpr std::size_t largest_from_rank = largest_blob + 64;

/// All parts of an allgather together.
inline constexpr std::size_t largest_from_store = std::size_t{1} << 28U;

/// The text of a News is cut here.
inline constexpr std::size_t longest_text = 4096;

}  // namespace rondo::transport::rendezvous
