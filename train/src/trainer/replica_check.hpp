#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rondo/train/partition.hpp>

namespace rondo::transport {
class Communicator;
}  // namespace rondo::transport

namespace rondo::train {

/// XXH3-128 of fp32 arrays as they lie in memory, in its canonical (big-endian) byte order.
using ParameterHash = std::array<std::uint8_t, 16>;

/// Of several arrays one after the other.
[[nodiscard]] ParameterHash hash_of(const std::vector<std::span<const float>>& arrays);

/// Of any bytes.
[[nodiscard]] ParameterHash digest_of(std::span<const std::byte> bytes);

/// 32 hexadecimal digits.
[[nodiscard]] std::string to_text(const ParameterHash& hash);

/// Compares the hashes of what ranks in one position of the grid's groups must hold in equal bits:
/// `mine` is this rank's. Throws NumericError on every rank of the grid, also where only ranks of
/// another position differ; it names those that differ from the first one of their position.
/// Collective over `all`, the ranks of the grid.
void check_replicas(transport::Communicator& all, ProcessGrid grid, const ParameterHash& mine,
                    std::int64_t epoch);

}  // namespace rondo::train
