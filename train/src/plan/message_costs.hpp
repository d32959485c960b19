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

// The cost of a rank's messages. Costs of messages that follow each other are added.
struct MessageCost {
  double seconds = 0.0;  // until all has arrived, where the port has nothing else to send
  double busy = 0.0;     // of these, in which the rank's port sends to other nodes
  double rounds = 0.0;   // messages to other nodes, each of which waits for the one before

  MessageCost& operator+=(const MessageCost& other) noexcept {
    seconds += other.seconds;
    busy += other.busy;
    rounds += other.rounds;
    return *this;
  }
  [[nodiscard]] friend MessageCost operator+(MessageCost a, const MessageCost& b) noexcept {
    return a += b;
  }
};

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
[[nodiscard]] MessageCost gathering_cost(double elements, ProcessGroup group,
                                         const PlanOptions& options);
[[nodiscard]] MessageCost scattering_cost(double elements, ProcessGroup group,
                                          const PlanOptions& options);

// An allreduce of `elements`: in one pass through memory inside a node; by doubling, halving or the
// two halves of a ring between nodes, as options.paths says. Doubling adds all that it receives and
// halving half of it while the port sends nothing; a ring adds meanwhile.
[[nodiscard]] MessageCost allreduce_cost(double elements, ProcessGroup group,
                                         const PlanOptions& options);

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

// Messages that a rank receives from others of the process group: between nodes they are under way
// together; within a node each takes the core's time.
[[nodiscard]] MessageCost messages_cost(Messages messages, ProcessGroup group,
                                        const PlanOptions& options);

// The messages that a rank receives at once, from ranks of its node and from others.
struct Received {
  Messages near = {};
  Messages far = {};
};

// Until all ranks of a process group have what they receive in values of the options' type: the
// ranks are consecutive, the first is the first of a node, and those of a node share its port.
[[nodiscard]] MessageCost received_cost(std::span<const Received> ranks,
                                        const PlanOptions& options);

}  // namespace rondo::train
