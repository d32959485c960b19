// What allgather promises its callers: equal shares, unequal ones, and rows.

#include <cstddef>
#include <memory_resource>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>

#include "support/world.hpp"

namespace rondo::transport::allgather_test {
namespace {

using test::Backend;
using test::Memory;
using testing::Combine;
using testing::Values;
using Ints = std::pmr::vector<std::int32_t>;

// Parameters: backend, memory, ranks, elements of a share (rows of a share in the strided cases).
class AllgatherTest : public testing::TestWithParam<std::tuple<Backend, Memory, int, std::size_t>> {
 protected:
  test::World world() const { return {std::get<0>(GetParam()), static_cast<int>(ranks())}; }
  Memory memory() const { return std::get<1>(GetParam()); }
  std::size_t ranks() const { return static_cast<std::size_t>(std::get<2>(GetParam())); }
  std::size_t elements() const { return std::get<3>(GetParam()); }

  // Rank 0 gives nothing, the others one element more each.
  std::vector<std::size_t> uneven_counts(std::size_t unit) const {
    std::vector<std::size_t> counts(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) counts[r] = r == 0 ? 0 : unit + r;
    return counts;
  }
};

std::int32_t value(std::size_t rank, std::size_t element) {
  return static_cast<std::int32_t>(rank * 1'000'000 + element);
}

TEST_P(AllgatherTest, ConcatenatesEqualShares) {
  world().run([&](World& world) {
    const auto me = static_cast<std::size_t>(world.rank());
    Ints in(elements(), test::resource(world, memory()));
    Ints out(elements() * ranks(), test::resource(world, memory()));
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = value(me, i);

    world.communicator().allgather(in, std::span(out)).wait();

    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], value(i / elements(), i % elements())) << "element " << i;
    }
  });
}

TEST_P(AllgatherTest, ConcatenatesUnequalShares) {
  world().run([&](World& world) {
    const auto counts = uneven_counts(elements());
    const auto me = static_cast<std::size_t>(world.rank());
    Ints in(counts[me], test::resource(world, memory()));
    Ints out(std::accumulate(counts.begin(), counts.end(), std::size_t{0}),
             test::resource(world, memory()));
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = value(me, i);

    world.communicator().allgather(in, std::span(out), counts).wait();

    std::size_t at = 0;
    for (std::size_t r = 0; r < ranks(); ++r) {
      for (std::size_t i = 0; i < counts[r]; ++i) ASSERT_EQ(out[at++], value(r, i));
    }
  });
}

TEST_P(AllgatherTest, PutsStridedColumnsTogether) {
  world().run([&](World& world) {
    const auto counts = uneven_counts(3);
    const auto me = static_cast<std::size_t>(world.rank());
    const std::size_t width = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const std::size_t rows = elements();
    const std::size_t gap = 2;
    Ints in(rows * (counts[me] + gap), -1, test::resource(world, memory()));
    Ints out(rows * (width + gap), -1, test::resource(world, memory()));
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t c = 0; c < counts[me]; ++c) {
        in[row * (counts[me] + gap) + c] = value(me, row * 16 + c);
      }
    }

    world.communicator()
        .allgather(Strided<const std::int32_t>(in.data(), rows, counts[me], counts[me] + gap),
                   Strided<std::int32_t>(out.data(), rows, width, width + gap), counts)
        .wait();

    for (std::size_t row = 0; row < rows; ++row) {
      std::size_t at = row * (width + gap);
      for (std::size_t r = 0; r < ranks(); ++r) {
        for (std::size_t c = 0; c < counts[r]; ++c) ASSERT_EQ(out[at++], value(r, row * 16 + c));
      }
      for (std::size_t g = 0; g < gap; ++g) ASSERT_EQ(out[at++], -1) << "the gap of row " << row;
    }
  });
}

TEST_P(AllgatherTest, GathersInPlace) {
  world().run([&](World& world) {
    const auto me = static_cast<std::size_t>(world.rank());
    Ints out(elements() * ranks(), test::resource(world, memory()));
    const auto mine = std::span(out).subspan(me * elements(), elements());
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = value(me, i);

    world.communicator().allgather(mine, std::span(out)).wait();

    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], value(i / elements(), i % elements())) << "element " << i;
    }
  });
}

std::string name_of(const testing::TestParamInfo<AllgatherTest::ParamType>& info) {
  return std::string(test::name_of(std::get<1>(info.param))) +
         std::to_string(std::get<2>(info.param)) + "ranks" +
         std::to_string(std::get<3>(info.param)) + "elements";
}

INSTANTIATE_TEST_SUITE_P(Shm, AllgatherTest,
                         Combine(Values(Backend::shm),
                                 Values(Memory::arena, Memory::ordinary, Memory::mixed),
                                 Values(1, 2, 3, 4, 8), Values(0U, 1U, 5U, 1024U, 1025U, 10007U)),
                         name_of);

INSTANTIATE_TEST_SUITE_P(ShmLarge, AllgatherTest,
                         Combine(Values(Backend::shm),
                                 Values(Memory::arena, Memory::ordinary, Memory::mixed), Values(3),
                                 Values(200'001U)),
                         name_of);

TEST(AllgatherArgumentTest, RefusesWhatDoesNotFit) {
  test::World(2).run([](Communicator& comm) {
    std::vector<int> in(2);
    std::vector<int> out(5);
    const std::vector<std::size_t> three{1, 1, 1};
    const std::vector<std::size_t> other{3, 2};

    EXPECT_THROW((void)comm.allgather(in, std::span(out)), std::invalid_argument);
    EXPECT_THROW((void)comm.allgather(in, std::span(out), three), std::invalid_argument);
    if (comm.rank() == 0) {
      EXPECT_THROW((void)comm.allgather(in, std::span(out), other), std::invalid_argument);
    }
  });
}

TEST(AllgatherArgumentsTest, RefusesAShareThatOverlapsTheResultInTheWrongPlace) {
  test::World(2).run([](Communicator& comm) {
    std::vector<std::int32_t> out(8);
    const std::span<std::int32_t> all(out);
    const auto mine = static_cast<std::size_t>(comm.rank());

    // The other rank's share, between the two, and with a count for each rank.
    EXPECT_THROW((void)comm.allgather(all.subspan(4 * (1 - mine), 4), all), std::invalid_argument);
    EXPECT_THROW((void)comm.allgather(all.subspan(2, 4), all), std::invalid_argument);
    const std::vector<std::size_t> counts{3, 5};
    EXPECT_THROW((void)comm.allgather(all.subspan(1, counts[mine]), all, counts),
                 std::invalid_argument);
  });
}

}  // namespace
}  // namespace rondo::transport::allgather_test
