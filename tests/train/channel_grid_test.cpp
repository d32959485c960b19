// Stationary-X, -Y and -W: where ranks stand, and how their outputs lie.

#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/train/partition.hpp>

#include "train/layouts.hpp"

namespace rondo::train::channel_grid_test {
namespace {

constexpr tensor::Shape input{.n = 4, .h = 3, .w = 3, .c = 13};
constexpr tensor::Shape output{.n = 4, .h = 2, .w = 2, .c = 17};

/// Groups of p_C x p_F ranks, `pc` of them.
struct Case {
  ChannelGrid grid;
  int pc;

  [[nodiscard]] Partition x() const { return by_channel(input, {.pr = grid.ranks(), .pc = pc}); }
  [[nodiscard]] Partition y() const { return output_of(x(), grid, output); }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int channels = 1; channels <= 4; ++channels) {
    for (int filters = 1; filters <= 4; ++filters) {
      for (int pc = 1; pc <= 3; ++pc) all.push_back({{channels, filters}, pc});
    }
  }
  return all;
}

TEST(ChannelGridTest, RankIsPlacedByItsBlocksOfInputAndOutput) {
  for (const Case& c : cases()) {
    for (int rank = 0; rank < c.x().ranks(); ++rank) {
      const auto [i_c, i_f] = position_of(c.x(), c.grid, rank);
      const int p = c.grid.ranks();
      ASSERT_EQ(c.x().box_of(rank).c, even_range(input.c, p, i_c * c.grid.filters + i_f));
      ASSERT_EQ(c.y().box_of(rank).c, even_range(output.c, p, i_f * c.grid.channels + i_c));
      ASSERT_EQ(c.y().box_of(rank).n, c.x().box_of(rank).n);
    }
  }
}

TEST(ChannelGridTest, GathererConcatenatesItsPeersInTheOrderOfFilters) {
  for (const Case& c : cases()) {
    std::map<std::pair<std::int64_t, int>, std::int64_t> next;  // by samples and i_C
    for (int rank = 0; rank < c.x().ranks(); ++rank) {
      const auto [i_c, i_f] = position_of(c.x(), c.grid, rank);
      const Box gathered = gathered_input(c.x(), c.grid, rank);
      const Range own = c.x().box_of(rank).c;
      const auto entry = next.try_emplace({gathered.n.first, i_c}, gathered.c.first).first;
      ASSERT_EQ(own.first, entry->second);
      ASSERT_EQ(i_f == c.grid.filters - 1, own.last == gathered.c.last);
      entry->second = own.last;
    }
  }
}

TEST(ChannelGridTest, ReducersCutTheirPartialSumsInTheOrderOfChannels) {
  for (const Case& c : cases()) {
    std::map<std::pair<std::int64_t, int>, std::int64_t> next;  // by samples and i_F
    for (int rank = 0; rank < c.x().ranks(); ++rank) {
      const auto [i_c, i_f] = position_of(c.x(), c.grid, rank);
      const Box partial = partial_output(c.x(), c.grid, output, rank);
      const Range own = c.y().box_of(rank).c;
      const auto entry = next.try_emplace({partial.n.first, i_f}, partial.c.first).first;
      ASSERT_EQ(own.first, entry->second);
      ASSERT_EQ(i_c == c.grid.channels - 1, own.last == partial.c.last);
      entry->second = own.last;
    }
  }
}

TEST(ChannelGridTest, StationaryXAndYKeepTheOrderOfBlocks) {
  for (int p = 1; p <= 6; ++p) {
    const Partition x = by_channel(input, {.pr = p, .pc = 2});

    EXPECT_EQ(output_of(x, {.channels = p, .filters = 1}, output), x.with_extents(output));
    EXPECT_EQ(output_of(x, {.channels = 1, .filters = p}, output), x.with_extents(output));
  }
}

TEST(ChannelGridTest, StationaryXGathersNothingAndSumsEverything) {
  const Partition x = by_channel(input, {.pr = 4});

  EXPECT_EQ(gathered_input(x, {.channels = 4, .filters = 1}, 2), x.box_of(2));
  EXPECT_EQ(partial_output(x, {.channels = 4, .filters = 1}, output, 2), whole(output));
}

TEST(ChannelGridTest, StationaryYGathersEverythingAndSumsNothing) {
  const Partition x = by_channel(input, {.pr = 4});

  EXPECT_EQ(gathered_input(x, {.channels = 1, .filters = 4}, 2), whole(input));
  EXPECT_EQ(partial_output(x, {.channels = 1, .filters = 4}, output, 2),
            x.with_extents(output).box_of(2));
}

TEST(ChannelGridTest, TwoByThreeTransposesTheBlocks) {
  const Partition y =
      output_of(by_channel(input, {.pr = 6}), {.channels = 2, .filters = 3}, output);

  std::vector<int> blocks;
  for (int rank = 0; rank < 6; ++rank) blocks.push_back(y.block_of(rank));
  EXPECT_EQ(blocks, (std::vector<int>{0, 2, 4, 1, 3, 5}));
}

TEST(ChannelGridTest, TwoLayersLeadBackToTheFirstLayout) {
  for (const Case& c : cases()) {
    const Partition back = output_of(c.y(), c.grid.transposed(), input);
    ASSERT_EQ(back, c.x());

    const Partition third = output_of(back, c.grid, output);
    ASSERT_EQ(third, c.y());
  }
}

TEST(ChannelGridTest, AnOddNumberOfLayersMovesTheBlocks) {
  const Partition x = by_channel(output, {.pr = 4});

  EXPECT_NE(output_of(x, {.channels = 2, .filters = 2}, output), x);
}

TEST(ChannelGridTest, RefusesInputsInAnotherNumberOfParts) {
  const Partition x = by_channel(input, {.pr = 4});

  EXPECT_THROW(static_cast<void>(output_of(x, {.channels = 2, .filters = 3}, output)),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(position_of(x, {.channels = -2, .filters = -2}, 0)),
               std::invalid_argument);
}

}  // namespace
}  // namespace rondo::train::channel_grid_test
