#pragma once

// The ranks of a communicator over a MemoryFabric, stepped in turn by one thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "collective/algorithms.hpp"
#include "core/channel.hpp"
#include "support/memory_link.hpp"

namespace rondo::test {

class LinkRanks {
 public:
  explicit LinkRanks(std::size_t ranks, MemoryScript script = {},
                     std::size_t segment_bytes = std::size_t{512} << 10U)
      : fabric_(static_cast<int>(ranks), std::move(script)), ranks_(ranks) {
    for (std::size_t r = 0; r < ranks; ++r) {
      std::vector<transport::Channel::Route> routes;
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        routes.push_back({.world_rank = static_cast<int>(peer),
                          .link = &fabric_.link(static_cast<int>(r)),
                          .leaves_node = true,
                          .port = 3});
      }
      Rank& rank = ranks_[r];
      rank.channel =
          std::make_unique<transport::Channel>(std::move(routes), std::uint16_t{3}, rank.counters);
      rank.group.rank = static_cast<int>(r);
      rank.group.members.resize(ranks);
      rank.group.counters = &rank.counters;
      rank.group.channel = rank.channel.get();
      rank.group.segment_bytes = segment_bytes;
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return ranks_.size(); }
  [[nodiscard]] MemoryFabric& fabric() noexcept { return fabric_; }
  [[nodiscard]] transport::Group& group(std::size_t rank) noexcept { return ranks_[rank].group; }
  [[nodiscard]] const transport::Counters& counters(std::size_t rank) const noexcept {
    return ranks_[rank].counters;
  }

  /// Runs one operation; rank r posted posted[r], `late` * r rounds after rank 0. Throws what a
  /// rank's step throws, and std::runtime_error if nothing moves any more.
  void run(const transport::Algorithm& algorithm, const std::vector<transport::Posted>& posted,
           std::size_t late = 0) {
    std::deque<transport::OperationStorage<>> operations(size());
    std::vector<bool> done(size(), false);
    std::size_t left = size();
    for (std::size_t round = 0, still = 0; left > 0; ++round) {
      bool moved = round <= late * size();
      for (std::size_t r = 0; r < size(); ++r) {
        moved = fabric_.link(static_cast<int>(r)).progress() || moved;
        if (done[r] || round < late * r) continue;
        transport::Operation* operation = operations[r].operation();
        if (operation == nullptr) {
          operation = &operations[r].start(algorithm, ranks_[r].group, posted[r]);
        }
        const transport::Progress progress = operation->step(ranks_[r].group, posted[r]);
        moved = progress != transport::Progress::idle || moved;
        if (progress != transport::Progress::done) continue;
        done[r] = true;
        left -= 1;
      }
      still = moved ? 0 : still + 1;
      if (still > 2) throw std::runtime_error(stall(operations, done));
    }
  }

 private:
  struct Rank {
    transport::Counters counters = {};
    std::unique_ptr<transport::Channel> channel = {};
    transport::Group group = {};
  };

  [[nodiscard]] std::string stall(const std::deque<transport::OperationStorage<>>& operations,
                                  const std::vector<bool>& done) const {
    std::string text = "stalled:";
    for (std::size_t r = 0; r < size(); ++r) {
      if (done[r]) continue;
      text += " rank " + std::to_string(r) + " waits for";
      for (std::size_t peer = 0; peer < size(); ++peer) {
        if (operations[r].operation()->waits_for(ranks_[r].group, peer))
          text += " " + std::to_string(peer);
      }
      text += ";";
    }
    return text;
  }

  MemoryFabric fabric_;
  std::deque<Rank> ranks_;
};

}  // namespace rondo::test
