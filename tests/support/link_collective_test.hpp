#pragma once

// The common parts of the suites for collectives over links: parameters, and how messages come.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "collective/algorithms.hpp"
#include "message/channel.hpp"
#include "support/link_data.hpp"
#include "support/link_traffic.hpp"
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

/// How messages come.
enum class Wire {
  eager,       ///< sends are done at once
  rendezvous,  ///< when they have been received
  disorder,    ///< short sends at once; messages overtake each other, and ranks post late
};

inline MemoryScript script_of(Wire wire) {
  if (wire == Wire::rendezvous) return {};
  if (wire == Wire::eager) return {.eager_bytes = std::size_t{1} << 30U};
  return {.eager_bytes = 100, .delay = [](int from, int to, std::uint64_t number) {
            return (from * 5 + to * 3 + static_cast<int>(number % 1000) * 7) % 11;
          }};
}

/// Parameters: wire, ranks, elements (of what, the suite says), longest segment.
class LinkCollectiveTest
    : public testing::TestWithParam<std::tuple<Wire, std::size_t, std::size_t, std::size_t>> {
 protected:
  [[nodiscard]] static std::size_t ranks() { return std::get<1>(GetParam()); }
  [[nodiscard]] static std::size_t elements() { return std::get<2>(GetParam()); }
  [[nodiscard]] static std::size_t segment_bytes() { return std::get<3>(GetParam()); }
  [[nodiscard]] static std::size_t late() {
    return std::get<0>(GetParam()) == Wire::disorder ? 3 : 0;
  }
  [[nodiscard]] static MemoryScript script() { return script_of(std::get<0>(GetParam())); }
};

inline std::string name_of_link_test(
    const testing::TestParamInfo<LinkCollectiveTest::ParamType>& info) {
  const Wire wire = std::get<0>(info.param);
  const std::string name = wire == Wire::eager        ? "eager"
                           : wire == Wire::rendezvous ? "rendezvous"
                                                      : "disorder";
  return name + std::to_string(std::get<1>(info.param)) + "ranks" +
         std::to_string(std::get<2>(info.param)) + "elements" +
         std::to_string(std::get<3>(info.param)) + "bytes";
}

/// Has every rank sent what the closed form says?
inline void expect_link_traffic(LinkRanks& links, LinkAlgorithm algorithm,
                                const std::vector<transport::Posted>& posted,
                                std::size_t segment_bytes) {
  for (std::size_t r = 0; r < links.size(); ++r) {
    const transport::Counters& counters = links.counters(r);
    EXPECT_EQ((LinkTraffic{counters.sent_messages, counters.sent_bytes}),
              link_traffic_of(algorithm, posted[r], r, links.size(), segment_bytes))
        << "rank " << r;
    EXPECT_EQ(counters.fabric_bytes, counters.sent_bytes);
  }
}

/// Awkward counts for every number of ranks, over all wires, in short and long segments.
inline std::vector<LinkCollectiveTest::ParamType> link_cases() {
  std::vector<LinkCollectiveTest::ParamType> cases;
  for (const std::size_t ranks : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 9U, 13U, 16U}) {
    const std::set<std::size_t> counts{0, 1, ranks - 1, ranks, ranks + 1, 10'007};
    for (const Wire wire : {Wire::eager, Wire::rendezvous, Wire::disorder}) {
      for (const std::size_t count : counts) {
        for (const std::size_t segment : {std::size_t{256}, std::size_t{1} << 20U}) {
          cases.emplace_back(wire, ranks, count, segment);
        }
      }
    }
  }
  return cases;
}

}  // namespace rondo::test
