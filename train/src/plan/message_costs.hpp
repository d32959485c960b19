#pragma once

#include <cstdint>
#include <span>

#include <rondo/tensor/data_type.hpp>
#include <rondo/train/plan.hpp>

namespace rondo::train {

// The planner counts elements: numbers in fp32.
inline constexpr int element_bytes = 4;

// Elements of fp32 that take as many bytes as so many of `type`: in bf16 half as many.
[[nodiscard]] inline double in_f32(double elements, tensor::DataType type) noexcept {
  return elements * static_cast<double>(tensor::size_of(type)) / element_bytes;
}

// The same options where nothing but bytes between nodes takes any time.
[[nodiscard]] PlanOptions only_bytes_between_nodes(const PlanOptions& options);

// Bytes a second of one of the ranks of a node, to other nodes, where all of them send.
[[nodiscard]] double port_bandwidth(const PlanOptions& options);

// Ranks of one collective: `size` of them, numbers `stride` apart.
struct ProcessGroup {
  int size = 1;
  int stride = 1;
};

// Seconds of an allgather or a reduce-scatter that leaves or takes `elements` on every rank; an
// allreduce is two of them. The two levels are those of plan.hpp.
[[nodiscard]] double collective_seconds(double elements, ProcessGroup group,
                                        const PlanOptions& options);

// The same as the runtime does it: through memory inside a node, in a ring between nodes. An
// allgather, and a reduce-scatter.
[[nodiscard]] double gathering_seconds(double elements, ProcessGroup group,
                                       const PlanOptions& options);
[[nodiscard]] double scattering_seconds(double elements, ProcessGroup group,
                                        const PlanOptions& options);

// An allreduce of `elements`: in one pass through memory inside a node; by doubling, halving or the
// two halves of a ring between nodes, as options.paths says.
[[nodiscard]] double allreduce_seconds(double elements, ProcessGroup group,
                                       const PlanOptions& options);

// How many times as long as its bytes are sent an allreduce between nodes takes for them: doubling
// adds all that it receives, and halving half of it, while nothing is sent. A ring adds meanwhile.
[[nodiscard]] double with_adding(double elements, ProcessGroup group, const PlanOptions& options);

// The time in every step for the agreement of ranks that step together, behind backward: an
// allreduce of two numbers. The search leaves it out, since it is the same on every grid.
[[nodiscard]] double agreement_seconds(const PlanOptions& options);

// Seconds of a message of `elements` to the neighbour in the process group.
[[nodiscard]] double halo_seconds(double elements, ProcessGroup group, const PlanOptions& options);

// Messages between ranks of a process group.
struct Messages {
  std::int64_t count = 0;
  std::int64_t elements = 0;  // of all of them together
};

// Seconds of messages that a rank receives from others of the process group: between nodes they are
// under way together; within a node each takes the core's time.
[[nodiscard]] double messages_seconds(Messages messages, ProcessGroup group,
                                      const PlanOptions& options);

// The messages that a rank receives at once, from ranks of its node and from others.
struct Received {
  Messages near = {};
  Messages far = {};
};

// Seconds until all ranks of a process group have what they receive in values of the options' type:
// the ranks are consecutive, the first is the first of a node, and those of a node share its port.
[[nodiscard]] double received_seconds(std::span<const Received> ranks, const PlanOptions& options);

}  // namespace rondo::train
