#pragma once

// Collectives and messages of every kind in a random order, whose results are checked. The order
// follows from a seed, so that all ranks of a World post the same.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/call_buffers.hpp"

namespace rondo::test {

/// A kind of operation: a call of the table, or one of those behind it.
enum class RandomKind : std::size_t {};
enum class OtherKind { split, send_and_recv, sendrecv, signal };
inline constexpr std::array other_kind_names{"Split", "SendAndRecv", "Sendrecv", "Signal"};

inline std::string name_of(RandomKind kind) {
  const auto number = static_cast<std::size_t>(kind);
  const std::size_t calls = all_calls().size();
  return number < calls ? all_calls()[number].name : other_kind_names.at(number - calls);
}

/// An operation that was posted: its requests, its buffers, and what must come out.
struct RandomOperation {
  RandomKind kind = {};
  std::unique_ptr<CallBuffers<>> call = {};
  std::optional<std::pmr::vector<std::int32_t>> sent = {};
  std::optional<std::pmr::vector<std::int32_t>> received = {};
  std::vector<std::int32_t> expected = {};  ///< to be received
  std::uint64_t signal = 0;
  std::uint64_t expected_signal = 0;
  std::vector<transport::Request> requests = {};
};

/// One rank's side of the operations. `world` is lent.
class RandomOperations {
 public:
  RandomOperations(transport::World& world, std::uint64_t seed)
      : world_(&world),
        random_(seed),
        neighbours_(world.communicator().split(world.rank() / 2)),
        distant_(world.communicator().split(world.rank() % 2)) {}

  /// Posts one to three operations, all of them before the first is waited for. `begins` is told
  /// the kind of each when it is posted and when it is waited for. Throws what failed, and
  /// std::runtime_error for a wrong result; operations that are pending then are kept.
  void round(const std::function<void(RandomKind)>& begins) {
    running_ = std::vector<RandomOperation>(1 + draw(3));
    for (RandomOperation& operation : running_) {
      draw_operation(operation);
      begins(operation.kind);
      post(operation);
    }
    for (RandomOperation& operation : running_) {
      begins(operation.kind);
      transport::wait_all(operation.requests);
      check(operation);
    }
  }

 private:
  [[nodiscard]] std::size_t draw(std::size_t below) { return random_() % below; }

  // Draws what the ranks have in common.
  void draw_operation(RandomOperation& operation) {
    const std::size_t calls = all_calls().size();
    operation.kind =
        static_cast<RandomKind>(draw(4) == 0 ? calls + draw(other_kind_names.size()) : draw(calls));
    const std::size_t group = draw(4);
    ranks_ = group == 0 ? &neighbours_ : group == 1 ? &distant_ : &world_->communicator();
    // Where protocols change: 48 bytes, 4, 8, 16, 64 and 256 KiB; and the sizes beside them.
    constexpr std::array<std::size_t, 10> sizes{2,    12,     1024,   2048,    4096,
                                                7000, 16'384, 65'536, 100'000, 140'000};
    count_ = sizes[draw(sizes.size())] + draw(3) - 1;
    root_ = static_cast<int>(draw(4)) % ranks_->size();
    const std::size_t places = draw(3);
    const bool shared = places == 0 || (places == 1 && world_->rank() != world_->size() - 1);
    memory_ = shared ? static_cast<std::pmr::memory_resource*>(&world_->arena())
                     : std::pmr::get_default_resource();
    number_ = number_ % 1000 + 1;
  }

  [[nodiscard]] int next() const { return (ranks_->rank() + 1) % ranks_->size(); }
  [[nodiscard]] int previous() const {
    return (ranks_->rank() + ranks_->size() - 1) % ranks_->size();
  }

  void post(RandomOperation& operation) {
    const auto number = static_cast<std::size_t>(operation.kind);
    const std::size_t calls = all_calls().size();
    if (number >= calls) return post_other(operation, static_cast<OtherKind>(number - calls));
    operation.call =
        std::make_unique<CallBuffers<>>(*ranks_, memory_, all_calls()[number], count_, root_);
    operation.call->fill(number_);
    operation.requests.push_back(operation.call->post(*ranks_));
  }

  void post_other(RandomOperation& operation, OtherKind kind) {
    auto& requests = operation.requests;
    if (kind == OtherKind::split) {
      // Waits for all ranks; operations that were posted before are still pending.
      groups_.push_back(ranks_->split(ranks_->rank() % 2));
      requests.push_back(groups_.back().barrier());
    } else if (kind == OtherKind::signal) {
      const auto number_of = [this](int from) {
        return number_ * 16 + static_cast<unsigned>(from);
      };
      operation.expected_signal = number_of(previous());
      requests.push_back(ranks_->wait_signal(previous(), operation.signal, signal_tag));
      requests.push_back(ranks_->put_signal(next(), number_of(ranks_->rank()), signal_tag));
    } else {
      post_messages(operation, kind);
    }
  }

  // To the next rank and from the previous one, in a ring.
  void post_messages(RandomOperation& operation, OtherKind kind) {
    Numbers<std::int32_t> numbers(transport::ReduceOp::sum, 1);
    numbers.round = number_;
    const auto given_by = [&](std::span<std::int32_t> data, int rank) {
      const auto giver = static_cast<std::size_t>(rank);
      numbers.fill(data, giver, giver + 1, 0);
    };
    operation.sent.emplace(count_, 0, memory_);
    operation.received.emplace(count_, -1, memory_);
    operation.expected.resize(count_);
    given_by(*operation.sent, ranks_->rank());
    given_by(operation.expected, previous());
    const std::span<const std::int32_t> in(*operation.sent);
    const std::span<std::int32_t> out(*operation.received);
    auto& requests = operation.requests;
    if (kind == OtherKind::send_and_recv) {
      requests.push_back(ranks_->recv(out, previous(), message_tag));
      requests.push_back(ranks_->send(in, next(), message_tag));
      return;
    }
    using transport::Strided;
    const std::array<transport::Neighbour, 2> both{
        transport::Neighbour(next(), Strided<const std::int32_t>(in), Strided<std::int32_t>(), 3,
                             4),
        transport::Neighbour(previous(), Strided<const std::int32_t>(), Strided<std::int32_t>(out),
                             4, 3)};
    requests.push_back(ranks_->sendrecv(both));
  }

  static void check(const RandomOperation& operation) {
    const std::string fault = operation.call ? operation.call->fault() : "";
    if (!fault.empty()) throw std::runtime_error(fault);
    if (operation.signal != operation.expected_signal) {
      throw std::runtime_error(name_of(operation.kind) + " brought another number than was put");
    }
    if (operation.received && !std::ranges::equal(*operation.received, operation.expected)) {
      throw std::runtime_error(name_of(operation.kind) + " brought other numbers than were sent");
    }
  }

  static constexpr int message_tag = 1;
  static constexpr int signal_tag = 2;

  transport::World* world_;
  std::mt19937_64 random_;
  transport::Communicator neighbours_;  // of one node, where two ranks are a node
  transport::Communicator distant_;     // of several nodes
  std::vector<transport::Communicator> groups_ = {};
  std::vector<RandomOperation> running_ = {};

  // The state of the operation that was drawn last.
  transport::Communicator* ranks_ = nullptr;
  std::pmr::memory_resource* memory_ = nullptr;
  std::size_t count_ = 0;
  int root_ = 0;
  std::size_t number_ = 0;
};

}  // namespace rondo::test
