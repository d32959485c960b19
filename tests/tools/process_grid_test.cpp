#include "bench/process_grid.hpp"

#include <gtest/gtest.h>

namespace rondo::tools::process_grid_test {
namespace {

TEST(ProcessGridTest, IsAsSquareAsTheNumberAllows) {
  EXPECT_EQ(ProcessGrid::of(4).rows, 2);
  EXPECT_EQ(ProcessGrid::of(6).rows, 2);
  EXPECT_EQ(ProcessGrid::of(6).columns, 3);
  EXPECT_EQ(ProcessGrid::of(16).rows, 4);
}

TEST(ProcessGridTest, IsARowForAPrime) {
  EXPECT_EQ(ProcessGrid::of(7).rows, 1);
  EXPECT_EQ(ProcessGrid::of(7).columns, 7);
}

TEST(ProcessGridTest, FindsNeighboursRowByRow) {
  const ProcessGrid grid = ProcessGrid::of(6);

  EXPECT_EQ(grid.neighbour(1, 1, 0), 4);
  EXPECT_EQ(grid.neighbour(1, 0, 1), 2);
  EXPECT_EQ(grid.neighbour(4, -1, -1), 0);
}

TEST(ProcessGridTest, EndsAtItsEdges) {
  const ProcessGrid grid = ProcessGrid::of(6);

  EXPECT_EQ(grid.neighbour(2, 0, 1), -1);
  EXPECT_EQ(grid.neighbour(0, -1, 0), -1);
  EXPECT_EQ(grid.neighbour(3, 1, -1), -1);
}

}  // namespace
}  // namespace rondo::tools::process_grid_test
