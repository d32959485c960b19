// What algorithms over links do when a wire breaks or an operation is given up, and that they
// allocate nothing once they have run.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/dissemination_barrier.hpp"
#include "fabric/doubling_allreduce.hpp"
#include "fabric/pairwise_alltoall.hpp"
#include "fabric/ring_allgather.hpp"
#include "fabric/ring_allreduce.hpp"
#include "fabric/ring_reduce_scatter.hpp"
#include "fabric/tree_broadcast.hpp"
#include "fabric/tree_reduce.hpp"
#include "support/allocations.hpp"
#include "support/link_collective_test.hpp"

namespace rondo::transport::link_faults_test {
namespace {

using shm::Collective;
using test::Ints;
using test::LinkRanks;

constexpr std::size_t ranks = 4;
constexpr std::size_t elements = 4096;  // of the longer side
constexpr std::size_t segment_bytes = 512;

// Which collective an algorithm runs.
template <typename Op>
constexpr Collective collective_of = Collective::allreduce;
template <>
constexpr Collective collective_of<RingReduceScatter> = Collective::reduce_scatter;
template <>
constexpr Collective collective_of<RingAllgather> = Collective::allgather;
template <>
constexpr Collective collective_of<TreeBroadcast> = Collective::broadcast;
template <>
constexpr Collective collective_of<TreeReduce> = Collective::reduce;
template <>
constexpr Collective collective_of<PairwiseAlltoall> = Collective::alltoall;
template <>
constexpr Collective collective_of<DisseminationBarrier> = Collective::barrier;

// Out of place, with root 0 and equal shares.
template <typename Op>
class LinkFaultsTest : public testing::Test {
 protected:
  LinkFaultsTest() {
    for (std::size_t r = 0; r < ranks; ++r) posted_.push_back(post(r));
  }

  Posted post(std::size_t rank) {
    constexpr Collective collective = collective_of<Op>;
    if (collective == Collective::barrier) return test::posted_of(collective, {}, {});
    ConstBlock input = test::input_of(in_[rank]);
    Block output = test::output_of(out_[rank]);
    const std::size_t share = input.row_bytes / ranks;
    if (collective == Collective::allgather) input.row_bytes = input.stride_bytes = share;
    if (collective == Collective::reduce_scatter) output.row_bytes = output.stride_bytes = share;
    if (collective == Collective::broadcast) input.data = output.data;
    Posted posted = test::posted_of(collective, input, output);
    posted.fingerprint.root = 0;
    posted.row_bytes_each = share;
    return posted;
  }

  // A bounded number of steps of every rank; those that have failed are stepped no more.
  // Returns how many have failed.
  static std::size_t drive(LinkRanks& links, std::vector<std::unique_ptr<Op>>& operations,
                           const std::vector<Posted>& posted, std::vector<std::size_t>& blamed) {
    for (std::size_t round = 0; round < 2000; ++round) {
      for (std::size_t r = 0; r < ranks; ++r) {
        links.fabric().link(static_cast<int>(r)).progress();
        if (operations[r] == nullptr) continue;
        try {
          if (operations[r]->step(links.group(r), posted[r]) == Progress::done) {
            operations[r].reset();
          }
        } catch (const LinkFailure& failure) {
          blamed[r] = failure.member();
          operations[r].reset();
        }
      }
    }
    std::size_t failed = 0;
    for (const std::size_t member : blamed) failed += member < ranks ? 1 : 0;
    return failed;
  }

  static std::vector<std::unique_ptr<Op>> start(LinkRanks& links,
                                                const std::vector<Posted>& posted) {
    std::vector<std::unique_ptr<Op>> operations;
    for (std::size_t r = 0; r < ranks; ++r) {
      operations.push_back(std::make_unique<Op>(links.group(r), posted[r]));
    }
    return operations;
  }

  test::Buffers<std::int32_t> in_ = test::link_inputs(ranks, elements);
  test::Buffers<std::int32_t> out_{ranks, Ints(elements, -1)};
  std::vector<Posted> posted_;
};

using Algorithms =
    testing::Types<RingAllreduce, RingReduceScatter, RingAllgather, DoublingAllreduce,
                   TreeBroadcast, TreeReduce, PairwiseAlltoall, DisseminationBarrier>;
TYPED_TEST_SUITE(LinkFaultsTest, Algorithms);

TYPED_TEST(LinkFaultsTest, BlamesTheRankAtTheOtherEndOfACutWire) {
  LinkRanks links(ranks, {}, segment_bytes);
  auto operations = this->start(links, this->posted_);
  links.fabric().cut(0, 1);

  std::vector<std::size_t> blamed(ranks, ranks);
  const std::size_t failed = this->drive(links, operations, this->posted_, blamed);

  EXPECT_GE(failed, 2U);
  EXPECT_EQ(blamed[0], 1U);
  EXPECT_EQ(blamed[1], 0U);
}

TYPED_TEST(LinkFaultsTest, BlamesARankThatIsLostOnTheWay) {
  for (std::uint64_t messages = 0; messages < 3; ++messages) {
    LinkRanks links(ranks, {}, segment_bytes);
    links.fabric().cut_after(1, 0, messages);
    links.fabric().cut_after(0, 1, messages);
    auto operations = this->start(links, this->posted_);

    std::vector<std::size_t> blamed(ranks, ranks);
    this->drive(links, operations, this->posted_, blamed);

    if (blamed[0] < ranks) {
      EXPECT_EQ(blamed[0], 1U);
    }
    if (blamed[1] < ranks) {
      EXPECT_EQ(blamed[1], 0U);
    }
  }
}

TYPED_TEST(LinkFaultsTest, LeavesNothingBehindWhenGivenUp) {
  for (std::size_t steps = 0; steps < 12; ++steps) {
    LinkRanks links(ranks, {}, segment_bytes);
    auto operations = this->start(links, this->posted_);
    for (std::size_t i = 0; i < steps; ++i) {
      for (std::size_t r = 0; r < ranks; ++r) {
        links.fabric().link(static_cast<int>(r)).progress();
        if (operations[r] == nullptr) continue;
        if (operations[r]->step(links.group(r), this->posted_[r]) == Progress::done) {
          operations[r].reset();
        }
      }
    }

    operations.clear();

    EXPECT_EQ(links.fabric().pending(), 0U) << "after " << steps << " steps";
  }
}

TYPED_TEST(LinkFaultsTest, NamesWhomItWaitsFor) {
  LinkRanks links(ranks, {}, segment_bytes);
  TypeParam operation(links.group(0), this->posted_[0]);

  for (int i = 0; i < 10; ++i) operation.step(links.group(0), this->posted_[0]);

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

TYPED_TEST(LinkFaultsTest, AllocatesNothingTheSecondTime) {
  LinkRanks links(ranks, {}, segment_bytes);
  links.run<TypeParam>(this->posted_);
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
  std::array<std::optional<TypeParam>, ranks> operations;
  std::array<bool, ranks> done{};

  std::size_t allocated = 0;
  while (std::ranges::count(done, true) < static_cast<std::ptrdiff_t>(ranks)) {
    for (std::size_t r = 0; r < ranks; ++r) {
      links.fabric().link(static_cast<int>(r)).progress();
      if (done[r]) continue;
      const std::size_t before = test::allocations_of_this_thread();
      if (!operations[r]) operations[r].emplace(links.group(r), this->posted_[r]);
      done[r] = operations[r]->step(links.group(r), this->posted_[r]) == Progress::done;
      allocated += test::allocations_of_this_thread() - before;
    }
  }

  std::size_t by_wires = 0;
  for (const AccountedLink& wire : wires) by_wires += wire.allocated();
  EXPECT_EQ(allocated, by_wires);
  EXPECT_GT(by_wires, 0U);
}

}  // namespace
}  // namespace rondo::transport::link_faults_test
