// Several arrays reduced as one operation, over every way between ranks.

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/backends.hpp"
#include "support/world.hpp"

namespace rondo::transport::coalesced_test {
namespace {

using test::Backend;
using Arrays = std::vector<std::vector<std::int64_t>>;

std::int64_t value_of(int rank, std::size_t array, std::size_t i) {
  return (rank + 1) * 1'000'003 + static_cast<std::int64_t>(array * 101 + i % 977);
}

Arrays arrays_of(int rank, const std::vector<std::size_t>& lengths) {
  Arrays arrays;
  for (std::size_t a = 0; a < lengths.size(); ++a) {
    arrays.emplace_back(lengths[a]);
    for (std::size_t i = 0; i < lengths[a]; ++i) arrays[a][i] = value_of(rank, a, i);
  }
  return arrays;
}

Arrays sums_over(int ranks, const std::vector<std::size_t>& lengths) {
  Arrays sums = arrays_of(0, lengths);
  for (int rank = 1; rank < ranks; ++rank) {
    for (std::size_t a = 0; a < lengths.size(); ++a) {
      for (std::size_t i = 0; i < lengths[a]; ++i) sums[a][i] += value_of(rank, a, i);
    }
  }
  return sums;
}

std::vector<std::span<std::int64_t>> spans_of(Arrays& arrays) {
  return {arrays.begin(), arrays.end()};
}

class CoalescedTest : public testing::TestWithParam<Backend> {};

TEST_P(CoalescedTest, ReducesEachArray) {
  for (const int ranks : {1, 2, 3, 5}) {
    test::World(GetParam(), ranks).run([](World& world) {
      // In the slots, in a bulk slot, in tiles; and none at all.
      for (const std::vector<std::size_t>& lengths :
           {std::vector<std::size_t>{1, 2, 3}, {100, 0, 7}, {50'000, 1, 70'000}, {0, 0}, {}}) {
        Arrays arrays = arrays_of(world.rank(), lengths);
        const auto spans = spans_of(arrays);
        world.communicator().allreduce_coalesced(std::span(spans)).wait();
        EXPECT_EQ(arrays, sums_over(world.size(), lengths));
      }
    });
  }
}

TEST_P(CoalescedTest, SeveralAreUnderWay) {
  test::World(GetParam(), 2).run([](World& world) {
    const std::vector<std::size_t> lengths{3, 5000};
    std::vector<Arrays> all(40, arrays_of(world.rank(), lengths));
    std::vector<Request> requests;
    for (Arrays& arrays : all) {
      const auto spans = spans_of(arrays);
      requests.push_back(world.communicator().allreduce_coalesced(std::span(spans)));
    }
    for (Request& request : requests) request.wait();
    for (const Arrays& arrays : all) EXPECT_EQ(arrays, sums_over(2, lengths));
  });
}

TEST_P(CoalescedTest, AveragesToo) {
  test::World(GetParam(), 4).run([](World& world) {
    std::vector<float> first{static_cast<float>(world.rank())};
    std::vector<float> second(2, 2.0F);
    const std::vector<std::span<float>> both{first, second};
    world.communicator().allreduce_coalesced(std::span(both), ReduceOp::avg).wait();
    EXPECT_EQ(first[0], 1.5F);
    EXPECT_EQ(second, (std::vector<float>{2.0F, 2.0F}));
  });
}

// As many elements, cut differently.
TEST_P(CoalescedTest, RanksCompareTheLengths) {
  test::World(GetParam(), 2).run([](World& world) {
    const bool first = world.rank() == 0;
    Arrays arrays = arrays_of(world.rank(), {first ? 1U : 2U, first ? 2U : 1U});
    const Arrays before = arrays;
    const auto spans = spans_of(arrays);
    std::error_code code;
    try {
      world.communicator().allreduce_coalesced(std::span(spans)).wait();
    } catch (const Error& error) {
      code = error.code();
    }
    EXPECT_EQ(code, Errc::mismatch);
    EXPECT_EQ(arrays, before);
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, CoalescedTest, testing::ValuesIn([] {
                           std::vector<Backend> all = test::node_backends();
                           all.insert(all.begin(), Backend::shm);
                           return all;
                         }()),
                         [](const auto& backend) { return test::name_of(backend.param); });

}  // namespace
}  // namespace rondo::transport::coalesced_test
