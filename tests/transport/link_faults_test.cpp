// Algorithms over links when a wire breaks or an operation is given up; they allocate nothing once
// they have run.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "collective/algorithms.hpp"
#include "message/channel.hpp"
#include "support/allocations.hpp"
#include "support/link_collective_test.hpp"
#include "support/memory_link.hpp"

namespace rondo::transport::link_faults_test {
namespace {

using test::LinkRanks;

constexpr std::size_t ranks = 4;
constexpr std::size_t elements = 4096;  // of an array, or of each rank's share
constexpr std::size_t segment_bytes = 512;

// An algorithm, and the call of the table that it runs here, with root 0.
struct Run {
  const char* name;
  const Algorithm* algorithm;
  const char* call;
};

using Operations = std::deque<OperationStorage<>>;

class LinkFaultsTest : public testing::TestWithParam<Run> {
 protected:
  // A bounded number of steps of every rank; those that have failed are stepped no more.
  // Returns how many have failed.
  std::size_t drive(LinkRanks& links, Operations& operations, std::vector<std::size_t>& blamed) {
    for (std::size_t round = 0; round < 2000; ++round) {
      for (std::size_t r = 0; r < ranks; ++r) {
        links.fabric().link(static_cast<int>(r)).progress();
        try {
          step(links, operations, r);
        } catch (const LinkFailure& failure) {
          blamed[r] = failure.member();
          operations[r].clear();
        }
      }
    }
    std::size_t failed = 0;
    for (const std::size_t member : blamed) failed += member < ranks ? 1 : 0;
    return failed;
  }

  // One step of a rank whose operation is not over.
  void step(LinkRanks& links, Operations& operations, std::size_t rank) {
    Operation* const operation = operations[rank].operation();
    if (operation == nullptr) return;
    if (operation->step(links.group(rank), posted_[rank]) == Progress::done) {
      operations[rank].clear();
    }
  }

  void start(LinkRanks& links, Operations& operations) {
    for (std::size_t r = 0; r < ranks; ++r) {
      operations[r].start(*GetParam().algorithm, links.group(r), posted_[r]);
    }
  }

  test::PostedCall call_{test::call_named(GetParam().call), ranks, elements};
  const std::vector<Posted>& posted_ = call_.posted();
};

TEST_P(LinkFaultsTest, BlamesTheRankAtTheOtherEndOfACutWire) {
  LinkRanks links(ranks, {}, segment_bytes);
  Operations operations(ranks);
  start(links, operations);
  links.fabric().cut(0, 1);

  std::vector<std::size_t> blamed(ranks, ranks);
  const std::size_t failed = drive(links, operations, blamed);

  EXPECT_GE(failed, 2U);
  EXPECT_EQ(blamed[0], 1U);
  EXPECT_EQ(blamed[1], 0U);
}

TEST_P(LinkFaultsTest, BlamesARankThatIsLostOnTheWay) {
  for (std::uint64_t messages = 0; messages < 3; ++messages) {
    LinkRanks links(ranks, {}, segment_bytes);
    links.fabric().cut_after(1, 0, messages);
    links.fabric().cut_after(0, 1, messages);
    Operations operations(ranks);
    start(links, operations);

    std::vector<std::size_t> blamed(ranks, ranks);
    drive(links, operations, blamed);

    if (blamed[0] < ranks) {
      EXPECT_EQ(blamed[0], 1U);
    }
    if (blamed[1] < ranks) {
      EXPECT_EQ(blamed[1], 0U);
    }
  }
}

TEST_P(LinkFaultsTest, LeavesNothingBehindWhenGivenUp) {
  for (std::size_t steps = 0; steps < 12; ++steps) {
    LinkRanks links(ranks, {}, segment_bytes);
    Operations operations(ranks);
    start(links, operations);
    for (std::size_t i = 0; i < steps; ++i) {
      for (std::size_t r = 0; r < ranks; ++r) {
        links.fabric().link(static_cast<int>(r)).progress();
        step(links, operations, r);
      }
    }

    operations.clear();

    EXPECT_EQ(links.fabric().pending(), 0U) << "after " << steps << " steps";
  }
}

TEST_P(LinkFaultsTest, NamesWhomItWaitsFor) {
  LinkRanks links(ranks, {}, segment_bytes);
  OperationStorage<> storage;
  Operation& operation = storage.start(*GetParam().algorithm, links.group(0), posted_[0]);

  for (int i = 0; i < 10; ++i) operation.step(links.group(0), posted_[0]);

  std::size_t waited_for = 0;
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    waited_for += operation.waits_for(links.group(0), peer) ? 1 : 0;
  }
  EXPECT_GE(waited_for, 1U);
  EXPECT_FALSE(operation.waits_for(links.group(0), 0));
}

// Knows what the wire itself allocates, so that it can be left out.
class AccountedLink final : public Link {
 public:
  explicit AccountedLink(Link& link) : link_(&link) {}

  void post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                 Transfer& transfer) override {
    account([&] { link_->post_send(peer, tag, data, transfer); });
  }
  void post_recv(int peer, std::uint64_t tag, std::span<std::byte> data,
                 Transfer& transfer) override {
    account([&] { link_->post_recv(peer, tag, data, transfer); });
  }
  void cancel(Transfer& transfer) override {
    account([&] { link_->cancel(transfer); });
  }
  bool progress() override { return link_->progress(); }
  std::optional<int> arm() override { return link_->arm(); }
  [[nodiscard]] std::string address() const override { return link_->address(); }
  [[nodiscard]] std::string route() const override { return link_->route(); }
  [[nodiscard]] std::string error_text(const Transfer& transfer) const override {
    return link_->error_text(transfer);
  }

  [[nodiscard]] std::size_t allocated() const noexcept { return allocated_; }

 private:
  template <typename Call>
  void account(Call call) {
    const std::size_t before = test::allocations_of_this_thread();
    call();
    allocated_ += test::allocations_of_this_thread() - before;
  }

  Link* link_;
  std::size_t allocated_ = 0;
};

TEST_P(LinkFaultsTest, AllocatesNothingTheSecondTime) {
  LinkRanks links(ranks, {}, segment_bytes);
  links.run(*GetParam().algorithm, posted_);
  std::deque<AccountedLink> wires;
  std::deque<Channel> channels;
  for (std::size_t r = 0; r < ranks; ++r) {
    AccountedLink& wire = wires.emplace_back(links.fabric().link(static_cast<int>(r)));
    std::vector<Channel::Route> routes;
    for (int peer = 0; peer < static_cast<int>(ranks); ++peer) {
      routes.push_back({.world_rank = peer, .link = &wire, .port = 4});
    }
    links.group(r).channel =
        &channels.emplace_back(std::move(routes), std::uint16_t{4}, *links.group(r).counters);
  }
  Operations operations(ranks);
  std::array<bool, ranks> done{};

  std::size_t allocated = 0;
  while (std::ranges::count(done, true) < static_cast<std::ptrdiff_t>(ranks)) {
    for (std::size_t r = 0; r < ranks; ++r) {
      links.fabric().link(static_cast<int>(r)).progress();
      if (done[r]) continue;
      const std::size_t before = test::allocations_of_this_thread();
      Operation* operation = operations[r].operation();
      if (operation == nullptr) {
        operation = &operations[r].start(*GetParam().algorithm, links.group(r), posted_[r]);
      }
      done[r] = operation->step(links.group(r), posted_[r]) == Progress::done;
      allocated += test::allocations_of_this_thread() - before;
    }
  }

  std::size_t by_wires = 0;
  for (const AccountedLink& wire : wires) by_wires += wire.allocated();
  EXPECT_EQ(allocated, by_wires);
  EXPECT_GT(by_wires, 0U);
}

INSTANTIATE_TEST_SUITE_P(
    Memory, LinkFaultsTest,
    testing::Values(Run{"RingAllreduce", &algorithms::ring, "Allreduce"},
                    Run{"RingReduceScatter", &algorithms::ring, "ReduceScatter"},
                    Run{"RingAllgather", &algorithms::ring, "Allgather"},
                    Run{"DoublingAllreduce", &algorithms::doubling_allreduce, "Allreduce"},
                    Run{"HalvingAllreduce", &algorithms::halving_allreduce, "Allreduce"},
                    Run{"TreeBroadcast", &algorithms::tree_broadcast, "Broadcast"},
                    Run{"TreeReduce", &algorithms::tree_reduce, "Reduce"},
                    Run{"PairwiseAlltoall", &algorithms::pairwise_alltoall, "Alltoall"},
                    Run{"DisseminationBarrier", &algorithms::dissemination_barrier, "Barrier"}),
    [](const testing::TestParamInfo<Run>& run) { return std::string(run.param.name); });

// The wire itself: it delays and disorders messages on command.
std::span<const std::byte> bytes_of(const int& value) {
  return std::as_bytes(std::span(&value, 1));
}
std::span<std::byte> bytes_of(int& value) { return std::as_writable_bytes(std::span(&value, 1)); }

TEST(MemoryLinkTest, EndsALongSendOnlyWhenItHasBeenReceived) {
  test::MemoryFabric fabric(2, {.eager_bytes = 3});
  const int sent = 5;
  int received = 0;
  Transfer send;
  Transfer receive;

  fabric.link(0).post_send(1, 0, bytes_of(sent), send);
  fabric.link(0).progress();
  const bool before = send.done();
  fabric.link(1).post_recv(0, 0, bytes_of(received), receive);
  fabric.link(1).progress();
  fabric.link(0).progress();

  EXPECT_FALSE(before);
  EXPECT_TRUE(send.done());
  EXPECT_EQ(received, 5);
}

TEST(MemoryLinkTest, LetsMessagesOvertakeButNotThoseWithTheSameTag) {
  const test::MemoryScript script{
      .eager_bytes = 64, .delay = [](int, int, std::uint64_t number) { return 2 - int(number); }};
  test::MemoryFabric fabric(2, script);
  const std::array<int, 3> sent{1, 2, 3};
  std::array<int, 3> received{};
  std::array<Transfer, 3> sends;
  std::array<Transfer, 3> receives;

  fabric.link(0).post_send(1, 0, bytes_of(sent[0]), sends[0]);  // visible after two calls
  fabric.link(0).post_send(1, 0, bytes_of(sent[1]), sends[1]);  // after one, but behind the first
  fabric.link(0).post_send(1, 9, bytes_of(sent[2]), sends[2]);  // at once
  fabric.link(1).post_recv(0, 0, bytes_of(received[0]), receives[0]);
  fabric.link(1).post_recv(0, 0, bytes_of(received[1]), receives[1]);
  fabric.link(1).post_recv(0, 9, bytes_of(received[2]), receives[2]);
  fabric.link(1).progress();
  const std::array<int, 3> early = received;
  fabric.link(1).progress();

  EXPECT_EQ(early, (std::array{0, 0, 3}));
  EXPECT_EQ(received, (std::array{1, 2, 3}));
}

}  // namespace
}  // namespace rondo::transport::link_faults_test
