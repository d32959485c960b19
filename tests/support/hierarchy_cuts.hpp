#pragma once

#include <cstddef>

#include "support/simulated_collectives.hpp"

namespace rondo::test {

/// How hierarchical operations cut their data, for all ways in which `ranks` may be on nodes alike,
/// and for some that are uneven or interleaved: does every byte belong to one block and, in it, to
/// one owner? The exchanges among the owners are simulated collectives themselves.
///
/// Both return as many operations as cuts were checked, and throw std::runtime_error, which says
/// what is wrong.

/// For allreduce, reduce and broadcast: the same array on all ranks.
SimulatedTraffic check_cuts_of_one_array(std::size_t ranks);
/// For allgather and reduce_scatter: every rank has a share of its own.
SimulatedTraffic check_cuts_of_shares(std::size_t ranks);

}  // namespace rondo::test
