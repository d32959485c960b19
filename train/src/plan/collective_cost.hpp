#pragma once

#include <cstdint>

#include <rondo/train/plan.hpp>

namespace rondo::train {

// The planner counts words: numbers in fp32.
inline constexpr int word_bytes = 4;

// Ranks of one collective: `size` of them, numbers `stride` apart.
struct Group {
  int size = 1;
  int stride = 1;
};

// Seconds of an allgather or a reduce-scatter that leaves or takes `words` on every rank; an
// allreduce is two of them. The two levels are those of plan.hpp.
[[nodiscard]] double collective_seconds(double words, Group group, const PlanOptions& options);

// Seconds of a message of `words` to the neighbour in the group.
[[nodiscard]] double halo_seconds(double words, Group group, const PlanOptions& options);

// Messages between ranks of a group.
struct Messages {
  std::int64_t count = 0;
  std::int64_t words = 0;  // of all of them together
};

// Seconds of messages that a rank receives one after another from others of the group.
[[nodiscard]] double messages_seconds(Messages messages, Group group, const PlanOptions& options);

}  // namespace rondo::train
