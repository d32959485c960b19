#pragma once

// What a rank of a test can be told to do. Each returns the exit status.

#include <filesystem>

#include <rondo/transport/world.hpp>

#include "checks.hpp"

namespace rondo::test {

/// Every collective with every type and operation, sizes around the number of ranks, both kinds
/// of memory, disjoint communicators at once.
void check_collectives(transport::World& world, Checks& checks);

/// Messages, halos and tokens around the ring of ranks.
void check_point_to_point(transport::World& world, Checks& checks);

/// Says "ready", then reduces until something fails, and says "failed at=SECONDS rank=R host=H:"
/// and the error's text; the seconds are of the monotonic clock.
int reduce_until_failure(transport::World& world);

/// Trains LeNet-5 for 20 steps on made-up pictures; rank 0 writes the parameters to `file`, as
/// floats.
int train_and_dump(transport::World& world, const std::filesystem::path& file);

/// Do two such files agree to `tolerance`, relative to the norm? Says by how much they differ.
int compare_dumps(const std::filesystem::path& one, const std::filesystem::path& other,
                  double tolerance);

}  // namespace rondo::test
