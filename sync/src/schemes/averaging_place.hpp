#pragma once

#include <cstdint>

#include "base/byte_reader.hpp"
#include "base/byte_writer.hpp"

namespace rondo::sync {

/// Where a rank is in training by averages.
struct AveragingPlace {
  bool started = false;          ///< has the first iteration begun, and W been taken?
  std::int64_t updates = 0;      ///< that the optimizer's state has seen
  std::int64_t round = 0;        ///< index of the round under way
  std::int64_t steps = 0;        ///< done in it
  std::int64_t samples = 0;      ///< of all ranks, in those
  std::int64_t own_samples = 0;  ///< of this rank
};

/// As a part of a scheme's state.
void write(ByteWriter& writer, const AveragingPlace& place);
[[nodiscard]] AveragingPlace read_place(ByteReader& reader);

}  // namespace rondo::sync
