#pragma once

// Ranks whose time is computed: the operations of collectives run as they do in a job, one after
// another in this thread, over a wire that takes as long as its costs say.
//
// A discrete-event simulation. Every rank has a clock. A message leaves when the port of its sender
// is free, is as long under way as the wire's latency, and takes the ports of both sides for its
// bytes; ranks of one node share the port that leads out of it, and the node's memory. So the
// simulation finds what closed forms leave out: ranks that wait for each other, and ports that are
// shared.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <span>
#include <string>
#include <vector>

#include "collective/algorithms.hpp"
#include "message/channel.hpp"
#include "message/link.hpp"
#include "support/shared_ports.hpp"

namespace rondo::test {

/// The cost of a message, in seconds.
struct WireCost {
  double latency = 0.0;
  double per_byte = 0.0;
};

/// The costs of everything, in seconds.
struct SimulatedCosts {
  std::size_t ranks_per_node = 1;  ///< ranks are placed node by node
  WireCost between_nodes = {.latency = 1.0, .per_byte = 0.0};
  WireCost inside_node = {.latency = 1.0, .per_byte = 0.0};
  double memory_per_byte =
      0.0;  ///< of a message inside a node: all of a node's wait for each other
  double per_reduced_byte = 0.0;
};

/// How an allreduce runs, and how much of what a rank receives it adds.
struct SimulatedAllreduce {
  const transport::Algorithm* algorithm = nullptr;
  double reduced_share = 0.0;
};
[[nodiscard]] SimulatedAllreduce simulated_allreduce(transport::AllreduceAlgorithm algorithm);

/// An operation on so many bytes of fp32, where only times matter: `memory` has room for input and
/// output, one behind the other; an allreduce works in place.
[[nodiscard]] transport::Posted posted_bytes(transport::shm::Collective collective,
                                             std::span<std::byte> memory, std::size_t input,
                                             std::size_t output);

/// An allgather or a reduce_scatter, posted by the member whose share is shares[member]: `memory`
/// has room for twice the sum of the shares.
[[nodiscard]] transport::Posted posted_shares(transport::shm::Collective collective,
                                              std::span<std::byte> memory,
                                              std::span<const std::size_t> shares,
                                              std::size_t member);

class SimulatedLink;

class SimulatedRanks {
 public:
  struct Options {
    SimulatedCosts costs = {};
    /// Are the bytes of messages copied? Without it only times and counters mean anything.
    bool moves_data = true;
    std::size_t segment_bytes = std::size_t{512} << 10U;
    /// So many groups run the same operation at the same time: rank r belongs to group r modulo
    /// their number. With as many as a node has ranks they are the owners of shards.
    std::size_t groups = 1;
    /// The ranks of a group: of so many, next to each other, each has its own groups. 0: all ranks
    /// divided by the number of groups.
    std::size_t group_size = 0;
    /// Does a run find the ports as busy as the one before has left them? Else they are free.
    bool ports_stay_busy = false;
    /// Ports between nodes that other operations use at the same time; null: own ones.
    SharedPorts::User* shared_ports = nullptr;
  };

  SimulatedRanks(std::size_t ranks, const Options& options);
  SimulatedRanks(const SimulatedRanks&) = delete;
  SimulatedRanks& operator=(const SimulatedRanks&) = delete;
  ~SimulatedRanks();

  [[nodiscard]] std::size_t size() const noexcept { return ranks_.size(); }
  /// What was sent since run() began.
  [[nodiscard]] const transport::Counters& counters(std::size_t rank) const noexcept {
    return ranks_[rank].counters;
  }

  /// Runs one operation. Rank r posts `posted[r]` at second `starts[r]` (0 where there is none). A
  /// rank reduces `reduced_share` of the bytes that it receives. Returns when each rank was done,
  /// in seconds. Throws std::runtime_error, which names who waits for whom, if ranks wait for ever.
  std::vector<double> run(const transport::Algorithm& algorithm,
                          std::span<const transport::Posted> posted, double reduced_share = 0.0,
                          std::span<const double> starts = {});

 private:
  friend class SimulatedLink;

  struct Message {
    std::size_t from = 0;
    std::uint64_t tag = 0;
    std::size_t bytes = 0;
    std::vector<std::byte> data = {};
  };
  struct Receive {
    std::size_t from = 0;
    std::uint64_t tag = 0;
    std::span<std::byte> into = {};
    transport::Transfer* transfer = nullptr;
  };
  struct Rank {
    std::unique_ptr<transport::Link> link = {};
    std::unique_ptr<transport::Channel> channel = {};
    transport::Counters counters = {};
    transport::Group group = {};
    transport::OperationStorage<> storage = {};
    bool started = false;
    bool done = false;
    double clock = 0.0;
    std::vector<Message*> arrived = {};
    std::vector<Receive> awaited = {};
  };
  struct Event {
    double time = 0.0;
    std::uint64_t order = 0;
    std::size_t rank = 0;
    Message* message = nullptr;  // null: the rank posts its operation

    [[nodiscard]] bool operator>(const Event& other) const noexcept {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  [[nodiscard]] std::size_t node_of(std::size_t rank) const noexcept {
    return rank / options_.costs.ranks_per_node;
  }
  void join_group(std::size_t rank, std::size_t ranks);
  void send(std::size_t from, std::size_t to, std::uint64_t tag, std::span<const std::byte> data,
            transport::Transfer& transfer);
  [[nodiscard]] double received_at(std::size_t from, std::size_t to, std::size_t bytes);
  void receive(std::size_t from, std::size_t at, std::uint64_t tag, std::span<std::byte> into,
               transport::Transfer& transfer);
  void add_event(double time, std::size_t rank, Message* message);
  void arrive(Rank& rank, Message& message);
  void complete(Rank& rank, const Receive& receive, Message& message);
  void advance(Rank& rank, const transport::Posted& posted);
  [[nodiscard]] Message& new_message(std::size_t from, std::uint64_t tag,
                                     std::span<const std::byte> data);
  [[nodiscard]] std::string stall() const;

  Options options_;
  double reduce_cost_ = 0.0;  // of a received byte
  std::deque<Rank> ranks_;
  std::vector<NodePort> rank_ports_;
  std::vector<NodePort> node_ports_;
  std::vector<double> node_memory_;  // when each node's is free again
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  std::deque<Message> messages_;
  std::vector<Message*> free_messages_;
};

}  // namespace rondo::test
