// Which algorithm runs what: the table of sizes as text, and the list of algorithms, to which one
// more is a class and a constant.

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/allreduce_paths.hpp>

#include "collective/algorithms.hpp"
#include "message/channel.hpp"
#include "support/link_collective_test.hpp"

namespace rondo::transport::algorithms_test {
namespace {

using shm::Collective;
using test::LinkRanks;

TEST(AlgorithmTableTest, ChoosesDoublingForWhatIsShortByDefault) {
  const AlgorithmTable table;

  EXPECT_EQ(table.print(), "rd:0-16k;ring:16k-max");
  EXPECT_EQ(table.pick(0), AllreduceAlgorithm::doubling);
  EXPECT_EQ(table.pick((16U << 10U) - 1), AllreduceAlgorithm::doubling);
  EXPECT_EQ(table.pick(16U << 10U), AllreduceAlgorithm::ring);
  EXPECT_EQ(table.pick(~std::size_t{0}), AllreduceAlgorithm::ring);
}

// Twice as many ranks make a ring's latency twice as long, and that of the others only a step or
// two longer. Between few ranks, or some more that are no power of two, halving is never the
// fastest.
TEST(AlgorithmTableTest, TheDefaultDependsOnTheRanks) {
  EXPECT_EQ(AlgorithmTable::for_ranks(1).print(), "rd:0-16k;ring:16k-max");
  EXPECT_EQ(AlgorithmTable::for_ranks(2).print(), "rd:0-64k;ring:64k-max");
  EXPECT_EQ(AlgorithmTable::for_ranks(3).print(), "rd:0-6k;ring:6k-max");
  EXPECT_EQ(AlgorithmTable::for_ranks(4).print(), "rd:0-39k;rh:39k-170k;ring:170k-max");
  EXPECT_EQ(AlgorithmTable::for_ranks(5).print(), "rd:0-18k;ring:18k-max");
  EXPECT_EQ(AlgorithmTable::for_ranks(7).print(), "rd:0-38k;ring:38k-max");
  EXPECT_EQ(AlgorithmTable::for_ranks(8).print(), "rd:0-26k;rh:26k-585k;ring:585k-max");
  EXPECT_EQ(AlgorithmTable::for_ranks(9).print(), "rd:0-26k;rh:26k-47k;ring:47k-max");
  EXPECT_EQ(AlgorithmTable::for_ranks(64).print(), "rd:0-18k;rh:18k-7411k;ring:7411k-max");
}

// Other collectives are short as before there was halving: where doubling and a ring cross.
TEST(AlgorithmTableTest, WhatIsShortEndsWhereARingWouldFollowDoubling) {
  for (const auto& [ranks, kibibytes] : {std::pair(2U, 64U), {4U, 64U}, {8U, 88U}, {64U, 347U}}) {
    const AlgorithmTable table = AlgorithmTable::for_ranks(ranks);
    EXPECT_TRUE(table.is_short((kibibytes << 10U) - 1)) << ranks;
    EXPECT_FALSE(table.is_short(kibibytes << 10U)) << ranks;
  }
  const AlgorithmTable given = AlgorithmTable::parse("rd:0-26k;rh:26k-585k;ring:585k-max");
  EXPECT_TRUE(given.is_short((26U << 10U) - 1));
  EXPECT_FALSE(given.is_short(26U << 10U));
}

// Up to 65,536 ranks every table has its ranges in order, and parses as it prints.
TEST(AlgorithmTableTest, TheDefaultsAreTables) {
  for (std::size_t ranks = 1; ranks <= 65'536; ranks += 1 + ranks / 3) {
    const std::string text = AlgorithmTable::for_ranks(ranks).print();
    EXPECT_EQ(AlgorithmTable::parse(text).print(), text) << ranks;
    EXPECT_EQ(AlgorithmTable::for_ranks(ranks).pick(0), AllreduceAlgorithm::doubling) << ranks;
  }
}

// A planner gets the choice that a World makes.
// A shard is a quarter of what an owner has, but not below 512 KiB.
TEST(AllreducePathsTest, CutsLongAllreducesIntoBlocks) {
  constexpr std::size_t mebibyte = std::size_t{1} << 20U;
  EXPECT_EQ(AllreducePaths::blocks(4096, 1, 2), 1);
  EXPECT_EQ(AllreducePaths::blocks(4 * mebibyte, 4, 2), 2);
  EXPECT_EQ(AllreducePaths::blocks(16 * mebibyte, 4, 2), 4);
}

TEST(AllreducePathsTest, AreThoseOfTheTable) {
  const AllreducePaths by_ends;
  EXPECT_EQ(by_ends.of(2, (64U << 10U) - 1).algorithm, AllreduceAlgorithm::doubling);
  EXPECT_EQ(by_ends.of(2, 64U << 10U).algorithm, AllreduceAlgorithm::ring);
  EXPECT_EQ(by_ends.of(3, 6U << 10U).algorithm, AllreduceAlgorithm::ring);
  EXPECT_EQ(by_ends.of(16, 256U << 10U).algorithm, AllreduceAlgorithm::halving);
  EXPECT_FALSE(by_ends.of(3, 1).flat);

  const AllreducePaths given("flat-rd:0-1k;ring:1k-max");
  EXPECT_EQ(given.of(2, 1023).algorithm, AllreduceAlgorithm::doubling);
  EXPECT_TRUE(given.of(2, 1023).flat);
  EXPECT_EQ(given.of(2, 1024).algorithm, AllreduceAlgorithm::ring);
  EXPECT_THROW(AllreducePaths("rd:0-1k"), std::invalid_argument);
}

TEST(AlgorithmTableTest, PrintsWhatItParsed) {
  for (const char* text :
       {"ring:0-max", "rd:0-max", "rd:0-100;ring:100-2m;rd:2m-1g;ring:1g-max",
        "ring:0-1;rd:1-1025;ring:1025-max", "flat-rd:0-1k;rd:1k-2k;flat-ring:2k-max", "rh:0-max",
        "rd:0-1k;flat-rh:1k-2k;rh:2k-3k;ring:3k-max"}) {
    EXPECT_EQ(AlgorithmTable::parse(text).print(), text);
  }
}

TEST(AlgorithmTableTest, ChoosesByTheRangeThatHoldsTheBytes) {
  using enum AllreduceAlgorithm;
  struct Choice {
    const char* table;
    std::size_t bytes;
    AllreduceAlgorithm algorithm;
    bool flat;
  };
  for (const auto& [table, bytes, algorithm, flat] :
       {Choice{"ring:0-1k;rd:1k-1m;ring:1m-max", 1023, ring, false},
        Choice{"ring:0-1k;rd:1k-1m;ring:1m-max", 1024, doubling, false},
        Choice{"ring:0-1k;rd:1k-1m;ring:1m-max", (1U << 20U) - 1, doubling, false},
        Choice{"ring:0-1k;rd:1k-1m;ring:1m-max", 1U << 20U, ring, false},
        Choice{"rd:0-1k;rh:1k-1m;flat-rh:1m-max", 1024, halving, false},
        Choice{"rd:0-1k;rh:1k-1m;flat-rh:1m-max", 1U << 20U, halving, true},
        Choice{"flat-rd:0-1k;rd:1k-1m;flat-ring:1m-max", 1023, doubling, true},
        Choice{"flat-rd:0-1k;rd:1k-1m;flat-ring:1m-max", 1024, doubling, false},
        Choice{"flat-rd:0-1k;rd:1k-1m;flat-ring:1m-max", 1U << 20U, ring, true}}) {
    EXPECT_EQ(AlgorithmTable::parse(table).pick(bytes), algorithm) << table << ", " << bytes;
    EXPECT_EQ(AlgorithmTable::parse(table).is_flat(bytes), flat) << table << ", " << bytes;
  }
  EXPECT_FALSE(AlgorithmTable::for_ranks(64).is_flat(0));
}

struct Wrong {
  const char* text;
  const char* why;
};

class WrongTableTest : public testing::TestWithParam<Wrong> {};

TEST_P(WrongTableTest, IsRejectedWithWhatIsWrong) {
  try {
    static_cast<void>(AlgorithmTable::parse(GetParam().text));
    FAIL() << "took " << GetParam().text;
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(GetParam().why));
    EXPECT_THAT(error.what(), testing::HasSubstr("expected something like"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Texts, WrongTableTest,
    testing::Values(Wrong{"", "it ends before max"}, Wrong{"rd:0-16k", "it ends before max"},
                    Wrong{"tree:0-max", "no algorithm \"tree\""},
                    Wrong{"flat-tree:0-max", "no algorithm \"flat-tree\""},
                    Wrong{"rhd:0-max", "there are rd, rh and ring, and flat-rd, flat-rh"},
                    Wrong{"flat:0-max", "no algorithm \"flat\""},
                    Wrong{"rd:0-16k;ring:17k-max", "must begin at 16k"},
                    Wrong{"rd:1-max", "must begin at 0"}, Wrong{"rd:0-0;ring:0-max", "is empty"},
                    Wrong{"rd:0-16q;ring:16q-max", "\"16q\" is not a number of bytes"},
                    Wrong{"rd:0-;ring:0-max", "\"\" is not a number of bytes"},
                    Wrong{"rd:0-99999999999999g;ring:1-max", "is not a number of bytes"},
                    Wrong{"rd", "\"rd\" is not NAME:FROM-TO"},
                    Wrong{"rd:0-max;ring:1-max", "comes after max"},
                    Wrong{"rd:0-1;rd:1-2;rd:2-3;rd:3-4;rd:4-5;rd:5-6;rd:6-7;rd:7-8;rd:8-max",
                          "more than 8 ranges"}));

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
  Group group;
  group.allreduce_table = AlgorithmTable::parse("rh:0-max");
  EXPECT_EQ(&choose(Protocol::links, group, posted(Collective::allreduce, 100)),
            &algorithms::halving_allreduce);
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
  test::PostedCall call(test::call_named("Broadcast"), 5, 1000, 2);
  std::vector<const Algorithm*> list{&star_broadcast};
  list.insert(list.end(), std::begin(all_algorithms), std::end(all_algorithms));

  const Algorithm& chosen = choose(Protocol::links, links.group(0), call.posted()[0], list);
  links.run(chosen, call.posted());

  EXPECT_EQ(&chosen, &star_broadcast);
  EXPECT_EQ(call.fault(), "");
  EXPECT_EQ(links.fabric().pending(), 0U);
}

}  // namespace
}  // namespace rondo::transport::algorithms_test
