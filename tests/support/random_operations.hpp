#pragma once

// Collectives and messages of every kind in a random order, whose results are checked. The order
// follows from a seed, so that all ranks of a World post the same.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory_resource>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::test {

/// The operations that RandomOperations posts.
enum class RandomKind {
  allreduce,
  allreduce_coalesced,
  reduce,
  reduce_scatter,
  broadcast,
  allgather,
  alltoall,
  alltoallv,
  gather,
  scatter,
  scan,
  exscan,
  barrier,
  split,
  send_and_recv,
  sendrecv,
  signal,
};

inline constexpr std::array random_kind_names{"allreduce",      "allreduce_coalesced",
                                              "reduce",         "reduce_scatter",
                                              "broadcast",      "allgather",
                                              "alltoall",       "alltoallv",
                                              "gather",         "scatter",
                                              "scan",           "exscan",
                                              "barrier",        "split",
                                              "send+recv",      "sendrecv",
                                              "put+wait_signal"};

/// An operation that was posted: its requests, its buffers, and what must come out.
struct RandomOperation {
  RandomKind kind = RandomKind::barrier;
  std::pmr::vector<std::int32_t> in;
  std::pmr::vector<std::int32_t> out;
  std::uint64_t signal = 0;
  std::uint64_t expected_signal = 0;
  /// Element i of `out`; empty where this rank receives nothing.
  std::function<std::int64_t(std::size_t i)> expected = {};
  std::vector<transport::Request> requests = {};
};

/// The data that the ranks give to one operation: numbers that tell whose they are, for whom, and
/// where they belong.
class RandomElements {
 public:
  explicit RandomElements(std::int32_t operation) : operation_(operation) {}

  /// Element i of what `from` gives to `to`, which is 0 where all get the same.
  [[nodiscard]] std::int32_t of(int from, int to, std::size_t i) const {
    return first(from, to) + static_cast<std::int32_t>(i % period);
  }

  /// The sum of these elements of the first `ranks` ranks.
  [[nodiscard]] std::int64_t sum(int ranks, int to, std::size_t i) const {
    std::int64_t sum = 0;
    for (int r = 0; r < ranks; ++r) sum += of(r, to, i);
    return sum;
  }

  /// All that `from` gives to `to`. Whole periods are copied: it must not take longer than the
  /// operation.
  void fill(std::span<std::int32_t> part, int from, int to) const {
    for (std::size_t i = 0; i < std::min(part.size(), period); ++i) part[i] = of(from, to, i);
    for (std::size_t i = period; i < part.size(); i += period) {
      std::copy_n(part.data(), std::min(period, part.size() - i), part.data() + i);
    }
  }

 private:
  // Messages are cut into parts of powers of two, none of which is a multiple of this: an element
  // of another part is another number.
  static constexpr std::size_t period = 101;
  static constexpr std::int32_t above_period = 128;
  static constexpr std::int32_t most_ranks = 16;

  [[nodiscard]] std::int32_t first(int from, int to) const {
    return ((operation_ * most_ranks + from) * most_ranks + to) * above_period;
  }

  std::int32_t operation_;
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

  // Draws what the ranks have in common, and makes this rank's buffers.
  void draw_operation(RandomOperation& operation) {
    operation.kind = static_cast<RandomKind>(draw(random_kind_names.size()));
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
    // Sums of all ranks' elements are exact in 32 bits.
    number_ = number_ % 1000 + 1;
    elements_ = RandomElements(number_);
  }

  [[nodiscard]] int next() const { return (ranks_->rank() + 1) % ranks_->size(); }
  [[nodiscard]] int previous() const {
    return (ranks_->rank() + ranks_->size() - 1) % ranks_->size();
  }
  [[nodiscard]] std::size_t part_of(int from, int to) const {
    return count_ / static_cast<std::size_t>(ranks_->size()) +
           static_cast<std::size_t>(from + to) % 3;
  }

  // Elements of the output are -1 until they have come.
  void allocate(RandomOperation& operation, std::size_t in, std::size_t out) {
    operation.in = std::pmr::vector<std::int32_t>(in, memory_);
    operation.out = std::pmr::vector<std::int32_t>(out, -1, memory_);
  }

  // Fills in the elements that this rank gives to all.
  void give(std::span<std::int32_t> elements) const { elements_.fill(elements, ranks_->rank(), 0); }

  // A part of count_ elements to each rank.
  void give_parts(std::span<std::int32_t> elements) const {
    for (std::size_t at = 0; at < elements.size(); at += count_) {
      elements_.fill(elements.subspan(at, count_), ranks_->rank(), static_cast<int>(at / count_));
    }
  }

  void post(RandomOperation& operation) {
    switch (operation.kind) {
      case RandomKind::allreduce:
      case RandomKind::allreduce_coalesced:
      case RandomKind::reduce:
      case RandomKind::reduce_scatter:
      case RandomKind::scan:
      case RandomKind::exscan:
        return post_reduction(operation);
      case RandomKind::send_and_recv:
      case RandomKind::sendrecv:
      case RandomKind::signal:
        return post_messages(operation);
      case RandomKind::alltoallv:
        return post_alltoallv(operation);
      case RandomKind::split: {
        // Waits for all ranks; operations that were posted before are still pending.
        auto group = ranks_->split(ranks_->rank() % 2);
        operation.requests.push_back(group.barrier());
        groups_.push_back(std::move(group));
        return;
      }
      default:
        return post_move(operation);
    }
  }

  void post_reduction(RandomOperation& operation) {
    const int self = ranks_->rank();
    const auto parts = static_cast<std::size_t>(ranks_->size());
    const bool shares = operation.kind == RandomKind::reduce_scatter;
    const bool in_place = operation.kind == RandomKind::allreduce ||
                          operation.kind == RandomKind::allreduce_coalesced;
    allocate(operation, shares ? count_ * parts : count_, count_);
    const std::span<std::int32_t> out(operation.out);
    if (shares) {
      give_parts(operation.in);
    } else {
      give(in_place ? out : std::span(operation.in));
    }
    const auto sum_of = [elements = elements_, to = shares ? self : 0](int count) {
      return [=](std::size_t i) { return elements.sum(count, to, i); };
    };
    operation.expected = sum_of(ranks_->size());
    auto& requests = operation.requests;
    if (operation.kind == RandomKind::allreduce) {
      requests.push_back(ranks_->allreduce(out));
    } else if (operation.kind == RandomKind::allreduce_coalesced) {
      const std::array halves{out.first(count_ / 2), out.subspan(count_ / 2)};
      requests.push_back(
          ranks_->allreduce_coalesced(std::span<const std::span<std::int32_t>>(halves)));
    } else if (operation.kind == RandomKind::reduce) {
      requests.push_back(ranks_->reduce(operation.in, out, root_));
      if (self != root_) operation.expected = {};
    } else if (shares) {
      requests.push_back(ranks_->reduce_scatter(operation.in, out));
    } else if (operation.kind == RandomKind::scan) {
      requests.push_back(ranks_->scan(operation.in, out));
      operation.expected = sum_of(self + 1);
    } else {
      requests.push_back(ranks_->exscan(operation.in, out));
      operation.expected = sum_of(self);
      if (self == 0) operation.expected = {};
    }
  }

  void post_move(RandomOperation& operation) {
    const std::size_t all = count_ * static_cast<std::size_t>(ranks_->size());
    const bool is_root = ranks_->rank() == root_;
    const auto of_each = [elements = elements_, count = count_](int to) {
      return [=](std::size_t i) {
        return std::int64_t{elements.of(static_cast<int>(i / count), to, i % count)};
      };
    };
    const auto of_root = [elements = elements_, root = root_](int to) {
      return [=](std::size_t i) { return std::int64_t{elements.of(root, to, i)}; };
    };
    auto& requests = operation.requests;
    if (operation.kind == RandomKind::broadcast) {
      allocate(operation, 0, count_);
      if (is_root) give(operation.out);
      requests.push_back(ranks_->broadcast(std::span(operation.out), root_));
      operation.expected = of_root(0);
    } else if (operation.kind == RandomKind::allgather) {
      allocate(operation, count_, all);
      give(operation.in);
      requests.push_back(ranks_->allgather(operation.in, std::span(operation.out)));
      operation.expected = of_each(0);
    } else if (operation.kind == RandomKind::alltoall) {
      allocate(operation, all, all);
      give_parts(operation.in);
      requests.push_back(ranks_->alltoall(operation.in, std::span(operation.out)));
      operation.expected = of_each(ranks_->rank());
    } else if (operation.kind == RandomKind::gather) {
      allocate(operation, count_, is_root ? all : 0);
      give(operation.in);
      requests.push_back(ranks_->gather(operation.in, std::span(operation.out), root_));
      if (is_root) operation.expected = of_each(0);
    } else if (operation.kind == RandomKind::scatter) {
      allocate(operation, is_root ? all : 0, count_);
      give_parts(operation.in);
      requests.push_back(ranks_->scatter(operation.in, std::span(operation.out), root_));
      operation.expected = of_root(ranks_->rank());
    } else {
      requests.push_back(ranks_->barrier());
    }
  }

  void post_alltoallv(RandomOperation& operation) {
    const int self = ranks_->rank();
    std::vector<std::size_t> sent;
    std::vector<std::size_t> received;
    std::vector<std::size_t> ends;
    std::size_t in = 0;
    for (int r = 0; r < ranks_->size(); ++r) {
      sent.push_back(part_of(self, r));
      received.push_back(part_of(r, self));
      in += sent.back();
      ends.push_back((ends.empty() ? 0 : ends.back()) + received.back());
    }
    allocate(operation, in, ends.back());
    std::size_t at = 0;
    for (int r = 0; r < ranks_->size(); ++r) {
      const std::size_t count = sent[static_cast<std::size_t>(r)];
      elements_.fill(std::span(operation.in).subspan(at, count), self, r);
      at += count;
    }
    operation.requests.push_back(
        ranks_->alltoallv(operation.in, sent, std::span(operation.out), received));
    operation.expected = [elements = elements_, self, ends](std::size_t i) {
      const auto from = std::ranges::upper_bound(ends, i) - ends.begin();
      const std::size_t begin = from == 0 ? 0 : ends[static_cast<std::size_t>(from - 1)];
      return std::int64_t{elements.of(static_cast<int>(from), self, i - begin)};
    };
  }

  // To the next rank and from the previous one, in a ring.
  void post_messages(RandomOperation& operation) {
    const int self = ranks_->rank();
    auto& requests = operation.requests;
    if (operation.kind == RandomKind::signal) {
      const auto number_of = [this](int from, int to) {
        return static_cast<std::uint64_t>(elements_.of(from, to, 0));
      };
      operation.expected_signal = number_of(previous(), self);
      requests.push_back(ranks_->wait_signal(previous(), operation.signal, signal_tag));
      requests.push_back(ranks_->put_signal(next(), number_of(self, next()), signal_tag));
      return;
    }
    allocate(operation, count_, count_);
    elements_.fill(operation.in, self, next());
    const std::span<const std::int32_t> in(operation.in);
    const std::span<std::int32_t> out(operation.out);
    operation.expected = [elements = elements_, from = previous(), self](std::size_t i) {
      return std::int64_t{elements.of(from, self, i)};
    };
    if (operation.kind == RandomKind::send_and_recv) {
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

  // Enough elements to find a part that is missing or in another's place, and the last one; all
  // would take longer than the operation.
  static constexpr std::size_t checked_one_in = 61;
  static void check(const RandomOperation& operation) {
    const std::string name = random_kind_names[static_cast<std::size_t>(operation.kind)];
    if (operation.signal != operation.expected_signal) {
      throw std::runtime_error(name + " brought another number than was put");
    }
    if (!operation.expected) return;
    const std::size_t count = operation.out.size();
    const auto check_element = [&](std::size_t i) {
      if (operation.out[i] == operation.expected(i)) return;
      throw std::runtime_error(name + ": element " + std::to_string(i) + " of " +
                               std::to_string(count) + " is " + std::to_string(operation.out[i]) +
                               ", not " + std::to_string(operation.expected(i)));
    };
    for (std::size_t i = 0; i < count; i += checked_one_in) check_element(i);
    if (count > 0) check_element(count - 1);
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
  std::int32_t number_ = 0;
  RandomElements elements_{0};
};

}  // namespace rondo::test
