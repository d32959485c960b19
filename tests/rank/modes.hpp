#pragma once

// The orders that a test can give to a rank.

#include <filesystem>

#include <rondo/transport/world.hpp>

namespace rondo::test {

/// Makes every call of the table of collectives and every reduction, in both kinds of memory, and
/// then collectives and messages of every kind in a random order. Prints how many results were
/// wrong. Returns the status of the process.
int check_operations(transport::World& world);

/// Trains LeNet-5 for 20 steps on made-up images; rank 0 writes the parameters to `file`, as
/// floats.
int train_and_dump(transport::World& world, const std::filesystem::path& file);

/// Do two such files agree to `tolerance`, relative to the norm? Says by how much they differ.
int compare_dumps(const std::filesystem::path& one, const std::filesystem::path& other,
                  double tolerance);

}  // namespace rondo::test
