// The list of algorithms: which one runs what, and that one more is a class and a constant.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "collective/algorithms.hpp"
#include "fabric/message.hpp"
#include "support/link_collective_test.hpp"

namespace rondo::transport::algorithms_test {
namespace {

using shm::Collective;
using test::Buffers;
using test::Ints;
using test::LinkRanks;

Posted posted(Collective collective, std::size_t bytes = 0) {
  Posted posted;
  posted.fingerprint.collective = collective;
  posted.input = {.rows = 1, .row_bytes = bytes};
  return posted;
}

const Algorithm* chosen(Protocol protocol, Collective collective, std::size_t bytes = 0) {
  return &choose(protocol, Group(), posted(collective, bytes));
}

TEST(AlgorithmsTest, EveryCollectiveRunsByEveryProtocolThatItNeeds) {
  for (const Collective collective :
       {Collective::allreduce, Collective::broadcast, Collective::allgather, Collective::barrier,
        Collective::reduce_scatter, Collective::reduce, Collective::alltoall}) {
    EXPECT_EQ(chosen(Protocol::small, collective), &algorithms::small);
    EXPECT_EQ(chosen(Protocol::links, collective)->protocol, Protocol::links);
    if (collective == Collective::barrier) continue;  // moves no bytes
    EXPECT_EQ(chosen(Protocol::direct, collective)->protocol, Protocol::direct);
    EXPECT_EQ(chosen(Protocol::staged, collective)->protocol, Protocol::staged);
  }
}

TEST(AlgorithmsTest, TheTableOfSizesDecidesHowAnAllreduceRuns) {
  EXPECT_EQ(chosen(Protocol::links, Collective::allreduce, 100), &algorithms::doubling_allreduce);
  EXPECT_EQ(chosen(Protocol::links, Collective::allreduce, 1U << 20U), &algorithms::ring);
}

TEST(AlgorithmsTest, WhatNoAlgorithmRunsIsAnError) {
  EXPECT_THROW((void)choose(Protocol::direct, Group(), posted(Collective::barrier)),
               std::logic_error);
}

// A broadcast in which the root sends to everyone itself.
class StarBroadcast final : public Operation {
 public:
  StarBroadcast(Group& group, const Posted& posted) {
    const auto root = static_cast<std::size_t>(posted.fingerprint.root);
    if (group.index() != root) {
      messages_[0].receive(*group.channel, root, posted.sequence, 0,
                           {posted.output.data, posted.output.bytes()});
      return;
    }
    for (std::size_t r = 0; r < group.count(); ++r) {
      if (r == root) continue;
      messages_[r].send(*group.channel, r, posted.sequence, 0,
                        {posted.input.data, posted.input.bytes()});
    }
  }
  Progress step(Group& /*group*/, const Posted& /*posted*/) override {
    return all_ended(messages_) ? Progress::done : Progress::idle;
  }

 private:
  std::array<Message, 8> messages_;
};

constexpr Algorithm star_broadcast =
    algorithm_of<StarBroadcast>(Protocol::links, &is_one_of<Collective::broadcast>);

TEST(AlgorithmsTest, AnAlgorithmFromOutsideRunsWhenItIsListedFirst) {
  LinkRanks links(5);
  Buffers<std::int32_t> data = test::link_inputs(5, 1000);
  std::vector<Posted> posted;
  for (Ints& mine : data) {
    posted.push_back(
        test::posted_of(Collective::broadcast, test::input_of(mine), test::output_of(mine)));
    posted.back().fingerprint.root = 2;
  }
  std::vector<const Algorithm*> list{&star_broadcast};
  list.insert(list.end(), std::begin(all_algorithms), std::end(all_algorithms));

  const Algorithm& chosen = choose(Protocol::links, links.group(0), posted[0], list);
  links.run(chosen, posted);

  EXPECT_EQ(&chosen, &star_broadcast);
  const Ints expected = test::link_inputs(5, 1000)[2];
  for (const Ints& mine : data) EXPECT_EQ(mine, expected);
  EXPECT_EQ(links.fabric().pending(), 0U);
}

}  // namespace
}  // namespace rondo::transport::algorithms_test
