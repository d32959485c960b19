// What reduce_scatter promises its callers: equal shares, unequal ones, rows, in place.

#include <cstddef>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/collective_test.hpp"

namespace rondo::transport::reduce_scatter_test {
namespace {

using test::all_memories;
using test::Backend;
using test::Ints;
using test::rank_of;
using test::sum_of_values;
using testing::Combine;
using testing::Values;

// The last parameter: elements of a share (rows in the strided cases).
class ReduceScatterTest : public test::CollectiveTest {
 protected:
  // Rank 0 takes nothing, the others one element more each.
  std::vector<std::size_t> uneven_counts(std::size_t unit) const {
    std::vector<std::size_t> counts(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) counts[r] = r == 0 ? 0 : unit + r;
    return counts;
  }

  static std::size_t total(const std::vector<std::size_t>& counts, std::size_t first_ranks) {
    return std::accumulate(counts.begin(), counts.begin() + static_cast<int>(first_ranks),
                           std::size_t{0});
  }

  void reduce_by(const std::vector<std::size_t>& counts) const {
    world().run([&](World& world) {
      const std::size_t me = rank_of(world);
      Ints in = ints(world, total(counts, ranks()));
      Ints out = ints(world, counts[me]);
      test::fill_with_values(in, me);

      world.communicator().reduce_scatter(in, std::span(out), ReduceOp::sum, counts).wait();

      const std::size_t first = total(counts, me);
      for (std::size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(out[i], sum_of_values(ranks(), first + i)) << "element " << i;
      }
    });
  }
};

TEST_P(ReduceScatterTest, ReducesEqualShares) {
  world().run([&](World& world) {
    const std::size_t me = rank_of(world);
    Ints in = ints(world, elements() * ranks());
    Ints out = ints(world, elements());
    test::fill_with_values(in, me);
    const Ints before = in;

    world.communicator().reduce_scatter(in, std::span(out)).wait();

    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], sum_of_values(ranks(), me * elements() + i)) << "element " << i;
    }
    EXPECT_TRUE(in == before) << "the input was changed";
  });
}

TEST_P(ReduceScatterTest, ReducesUnequalShares) { reduce_by(uneven_counts(elements())); }

TEST_P(ReduceScatterTest, ReducesForOneRankAlone) {
  std::vector<std::size_t> counts(ranks());
  counts[ranks() / 2] = elements();
  reduce_by(counts);
}

TEST_P(ReduceScatterTest, ReducesInPlace) {
  world().run([&](World& world) {
    const std::size_t me = rank_of(world);
    Ints in = ints(world, elements() * ranks());
    test::fill_with_values(in, me);
    const auto own = std::span(in).subspan(me * elements(), elements());

    world.communicator().reduce_scatter(in, own).wait();

    for (std::size_t i = 0; i < in.size(); ++i) {
      const bool mine = i / std::max<std::size_t>(1, elements()) == me;
      ASSERT_EQ(in[i], mine ? sum_of_values(ranks(), i) : test::value(me, i)) << "element " << i;
    }
  });
}

TEST_P(ReduceScatterTest, TakesStridedColumns) {
  world().run([&](World& world) {
    const auto counts = uneven_counts(3);
    const std::size_t me = rank_of(world);
    const std::size_t width = total(counts, ranks());
    const std::size_t rows = elements();
    constexpr std::size_t gap = 2;
    Ints in = ints(world, rows * (width + gap));
    Ints out = ints(world, rows * (counts[me] + gap), -1);
    test::fill_with_values(in, me);

    world.communicator()
        .reduce_scatter(Strided<const std::int32_t>(in.data(), rows, width, width + gap),
                        Strided<std::int32_t>(out.data(), rows, counts[me], counts[me] + gap),
                        ReduceOp::sum, counts)
        .wait();

    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t row = i / (counts[me] + gap);
      const std::size_t column = i % (counts[me] + gap);
      const std::size_t source = row * (width + gap) + total(counts, me) + column;
      ASSERT_EQ(out[i], column < counts[me] ? sum_of_values(ranks(), source) : -1) << i;
    }
  });
}

TEST_P(ReduceScatterTest, WithAllgatherIsAnAllreduce) {
  world().run([&](World& world) {
    Ints data = ints(world, elements() * ranks());
    test::fill_with_values(data, rank_of(world));
    const auto own = std::span(data).subspan(rank_of(world) * elements(), elements());

    world.communicator().reduce_scatter(data, own).wait();
    world.communicator().allgather(own, std::span(data)).wait();

    for (std::size_t i = 0; i < data.size(); ++i) {
      ASSERT_EQ(data[i], sum_of_values(ranks(), i)) << "element " << i;
    }
  });
}

TEST_P(ReduceScatterTest, ReportsALostPeerThroughTheRequest) {
  if (ranks() == 1) return;  // nobody to lose
  world().run_without(0, [&](World& world) {
    Ints in = ints(world, elements() * ranks());
    Ints out = ints(world, elements());

    Request request = world.communicator().reduce_scatter(in, std::span(out));

    EXPECT_THROW(request.wait(), Error);
    EXPECT_EQ(request.status(), Errc::peer_lost);
  });
}

INSTANTIATE_TEST_SUITE_P(Shm, ReduceScatterTest,
                         Combine(Values(Backend::shm), all_memories, Values(1, 2, 3, 4, 8),
                                 Values(0U, 1U, 3U, 4U, 5U, 1025U, 10007U)),
                         test::name_of_collective_test);

INSTANTIATE_TEST_SUITE_P(ShmLarge, ReduceScatterTest,
                         Combine(Values(Backend::shm), all_memories, Values(3), Values(200'001U)),
                         test::name_of_collective_test);

TEST(ReduceScatterArgumentTest, RefusesWhatDoesNotFit) {
  test::World(2).run([](Communicator& comm) {
    std::vector<int> in(4);
    std::vector<int> out(3);
    const std::vector<std::size_t> three{1, 1, 2};
    const std::vector<std::size_t> other{2, 2};

    EXPECT_THROW((void)comm.reduce_scatter(in, std::span(out)), std::invalid_argument);
    EXPECT_THROW((void)comm.reduce_scatter(in, std::span(out), ReduceOp::sum, three),
                 std::invalid_argument);
    EXPECT_THROW((void)comm.reduce_scatter(in, std::span(out), ReduceOp::sum, other),
                 std::invalid_argument);
    EXPECT_THROW((void)comm.reduce_scatter(in, std::span(in).subspan(1, 2)), std::invalid_argument);
  });
}

}  // namespace
}  // namespace rondo::transport::reduce_scatter_test
