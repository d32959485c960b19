// How the events of a simulation follow each other.
//
// An event is a message that has come, or a rank that posts its operation. Its rank then steps its
// operation until that waits; what it sends meanwhile makes further events. A send is done at once,
// as over a link that copies, so only receives are awaited.

#include "support/simulated_ranks.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <stdexcept>

namespace rondo::test {

transport::Posted posted_bytes(transport::shm::Collective collective, std::span<std::byte> memory,
                               std::size_t input, std::size_t output) {
  transport::Posted posted;
  posted.fingerprint.collective = collective;
  posted.fingerprint.type = transport::ElementType::f32;
  posted.fingerprint.count = input / sizeof(float);
  posted.input = {memory.data(), transport::ElementType::f32, 1, input, input};
  const bool in_place = collective == transport::shm::Collective::allreduce;
  posted.output = {memory.subspan(in_place ? 0 : input).data(), transport::ElementType::f32, 1,
                   output, output};
  return posted;
}

transport::Posted posted_shares(transport::shm::Collective collective, std::span<std::byte> memory,
                                std::span<const std::size_t> shares, std::size_t member) {
  const std::size_t all = std::accumulate(shares.begin(), shares.end(), std::size_t{0});
  const bool gathers = collective == transport::shm::Collective::allgather;
  const std::size_t own = shares[member];
  transport::Posted posted =
      posted_bytes(collective, memory, gathers ? own : all, gathers ? all : own);
  posted.row_bytes_of = {shares.begin(), shares.end()};
  return posted;
}

/// One rank's end of the wire.
class SimulatedLink final : public transport::Link {
 public:
  SimulatedLink(SimulatedRanks& ranks, std::size_t rank) : ranks_(&ranks), rank_(rank) {}

  void post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                 transport::Transfer& transfer) override {
    ranks_->send(rank_, static_cast<std::size_t>(peer), tag, data, transfer);
  }
  void post_recv(int peer, std::uint64_t tag, std::span<std::byte> data,
                 transport::Transfer& transfer) override {
    ranks_->receive(static_cast<std::size_t>(peer), rank_, tag, data, transfer);
  }
  bool progress() override { return false; }
  // Only after a stall, when nothing moves any more.
  void cancel(transport::Transfer& transfer) override {
    transfer.state = transport::TransferState::idle;
  }
  std::optional<int> arm() override { return std::nullopt; }
  [[nodiscard]] std::string address() const override { return std::to_string(rank_); }
  [[nodiscard]] std::string route() const override { return "simulated"; }
  [[nodiscard]] std::string error_text(const transport::Transfer& /*transfer*/) const override {
    return "the message is longer than its receive";
  }

 private:
  SimulatedRanks* ranks_;
  std::size_t rank_;
};

SimulatedRanks::SimulatedRanks(std::size_t ranks, const Options& options)
    : options_(options),
      ranks_(ranks),
      rank_ports_(ranks),
      node_ports_((ranks + options.costs.ranks_per_node - 1) / options.costs.ranks_per_node),
      node_memory_(node_ports_.size(), 0.0) {
  for (std::size_t r = 0; r < ranks; ++r) join_group(r, ranks);
}

SimulatedRanks::~SimulatedRanks() = default;

void SimulatedRanks::join_group(std::size_t r, std::size_t ranks) {
  Rank& rank = ranks_[r];
  rank.link = std::make_unique<SimulatedLink>(*this, r);
  constexpr std::uint16_t port = 3;
  std::vector<transport::Channel::Route> routes;
  const std::size_t stride = options_.groups;
  const std::size_t members =
      options_.group_size > 0 ? options_.group_size : (ranks + stride - 1) / stride;
  const std::size_t first = r / (stride * members) * (stride * members);
  const std::size_t end = std::min(ranks, first + stride * members);
  routes.reserve(members);
  for (std::size_t peer = first + r % stride; peer < end; peer += stride) {
    routes.push_back({.world_rank = static_cast<int>(peer),
                      .link = rank.link.get(),
                      .leaves_node = node_of(peer) != node_of(r),
                      .port = port});
  }
  rank.group.rank = static_cast<int>(r / stride % members);
  rank.group.members.resize(routes.size());
  rank.group.counters = &rank.counters;
  rank.group.segment_bytes = options_.segment_bytes;
  rank.channel = std::make_unique<transport::Channel>(std::move(routes), port, rank.counters);
  rank.group.channel = rank.channel.get();
}

std::vector<double> SimulatedRanks::run(const transport::Algorithm& algorithm,
                                        std::span<const transport::Posted> posted,
                                        double reduced_share, std::span<const double> starts) {
  reduce_cost_ = options_.costs.per_reduced_byte * reduced_share;
  if (!options_.ports_stay_busy) {
    std::ranges::fill(rank_ports_, NodePort{});
    std::ranges::fill(node_ports_, NodePort{});
    std::ranges::fill(node_memory_, 0.0);
  }
  for (std::size_t r = 0; r < size(); ++r) {
    ranks_[r].counters = {};
    ranks_[r].started = ranks_[r].done = false;
    ranks_[r].clock = 0.0;
    add_event(starts.empty() ? 0.0 : starts[r], r, nullptr);
  }
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    Rank& rank = ranks_[event.rank];
    rank.clock = std::max(rank.clock, event.time);
    if (event.message != nullptr) {
      arrive(rank, *event.message);
    } else {
      rank.storage.start(algorithm, rank.group, posted[event.rank]);
      rank.started = true;
    }
    if (rank.started && !rank.done) advance(rank, posted[event.rank]);
  }
  std::vector<double> finished;
  for (Rank& rank : ranks_) {
    if (!rank.done || !rank.arrived.empty()) throw std::runtime_error(stall());
    finished.push_back(rank.clock);
  }
  return finished;
}

void SimulatedRanks::advance(Rank& rank, const transport::Posted& posted) {
  transport::Progress progress = transport::Progress::moved;
  while (progress == transport::Progress::moved) {
    progress = rank.storage.operation()->step(rank.group, posted);
  }
  if (progress != transport::Progress::done) return;
  rank.done = true;
  rank.storage.clear();
}

void SimulatedRanks::add_event(double time, std::size_t rank, Message* message) {
  events_.push({.time = time, .order = order_++, .rank = rank, .message = message});
}

SimulatedRanks::Message& SimulatedRanks::new_message(std::size_t from, std::uint64_t tag,
                                                     std::span<const std::byte> data) {
  if (free_messages_.empty()) free_messages_.push_back(&messages_.emplace_back());
  Message& message = *free_messages_.back();
  free_messages_.pop_back();
  message.from = from;
  message.tag = tag;
  message.bytes = data.size();
  if (options_.moves_data) message.data.assign(data.begin(), data.end());
  return message;
}

void SimulatedRanks::send(std::size_t from, std::size_t to, std::uint64_t tag,
                          std::span<const std::byte> data, transport::Transfer& transfer) {
  transfer.begin(nullptr);
  add_event(received_at(from, to, data.size()), to, &new_message(from, tag, data));
  transfer.end(0, data.size());
}

// When a message is received that its sender posts now.
double SimulatedRanks::received_at(std::size_t from, std::size_t to, std::size_t bytes) {
  const bool leaves = node_of(from) != node_of(to);
  const WireCost& cost = leaves ? options_.costs.between_nodes : options_.costs.inside_node;
  const double seconds = static_cast<double>(bytes) * cost.per_byte;
  if (leaves && options_.shared_ports != nullptr) {
    return options_.shared_ports->send(node_of(from), node_of(to), ranks_[from].clock, seconds,
                                       cost.latency);
  }
  if (leaves) {
    return pass(node_ports_[node_of(from)], node_ports_[node_of(to)], ranks_[from].clock, seconds,
                cost.latency);
  }
  double& memory = node_memory_[node_of(from)];
  NodePort& sender = rank_ports_[from];
  const double start = std::max({ranks_[from].clock, sender.out, memory});
  memory = start + static_cast<double>(bytes) * options_.costs.memory_per_byte;
  return pass(sender, rank_ports_[to], start, seconds, cost.latency);
}

void SimulatedRanks::receive(std::size_t from, std::size_t at, std::uint64_t tag,
                             std::span<std::byte> into, transport::Transfer& transfer) {
  transfer.begin(nullptr);
  Rank& rank = ranks_[at];
  const Receive receive{.from = from, .tag = tag, .into = into, .transfer = &transfer};
  const auto found = std::ranges::find_if(rank.arrived, [&](const Message* message) {
    return message->from == from && message->tag == tag;
  });
  if (found == rank.arrived.end()) {
    rank.awaited.push_back(receive);
    return;
  }
  Message& message = **found;
  rank.arrived.erase(found);
  complete(rank, receive, message);
}

void SimulatedRanks::arrive(Rank& rank, Message& message) {
  const auto found = std::ranges::find_if(rank.awaited, [&](const Receive& receive) {
    return receive.from == message.from && receive.tag == message.tag;
  });
  if (found == rank.awaited.end()) {
    rank.arrived.push_back(&message);
    return;
  }
  const Receive receive = *found;
  rank.awaited.erase(found);
  complete(rank, receive, message);
}

void SimulatedRanks::complete(Rank& rank, const Receive& receive, Message& message) {
  const bool fits = message.bytes <= receive.into.size();
  if (fits && options_.moves_data && message.bytes > 0) {
    std::memcpy(receive.into.data(), message.data.data(), message.bytes);
  }
  rank.clock += static_cast<double>(message.bytes) * reduce_cost_;
  receive.transfer->end(fits ? 0 : transport::Transfer::truncated, message.bytes);
  free_messages_.push_back(&message);
}

std::string SimulatedRanks::stall() const {
  std::string text = "stalled:";
  for (std::size_t r = 0; r < size(); ++r) {
    const Rank& rank = ranks_[r];
    if (rank.done && rank.arrived.empty()) continue;
    text += " rank " + std::to_string(r);
    if (!rank.arrived.empty()) {
      text += " got " + std::to_string(rank.arrived.size()) + " messages that nobody asked for";
    }
    for (const Receive& receive : rank.awaited) {
      text += " waits for rank " + std::to_string(receive.from);
    }
    text += ";";
  }
  return text;
}

// All that doubling receives is added; half of what the others receive is.
SimulatedAllreduce simulated_allreduce(transport::AllreduceAlgorithm algorithm) {
  switch (algorithm) {
    case transport::AllreduceAlgorithm::doubling:
      return {.algorithm = &transport::algorithms::doubling_allreduce, .reduced_share = 1.0};
    case transport::AllreduceAlgorithm::halving:
      return {.algorithm = &transport::algorithms::halving_allreduce, .reduced_share = 0.5};
    case transport::AllreduceAlgorithm::ring:
      return {.algorithm = &transport::algorithms::ring, .reduced_share = 0.5};
  }
  throw std::invalid_argument("no such algorithm");
}

}  // namespace rondo::test
