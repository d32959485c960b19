#pragma once

namespace rondo::tools {

/// Ranks as a grid, row by row, as square as their number allows.
struct ProcessGrid {
  int rows = 1;
  int columns = 1;

  /// Of `ranks` in total: rows is the largest divisor that does not exceed the square root.
  [[nodiscard]] static ProcessGrid of(int ranks) noexcept {
    ProcessGrid grid{.rows = 1, .columns = ranks};
    for (int rows = 2; rows * rows <= ranks; ++rows) {
      if (ranks % rows == 0) grid = {.rows = rows, .columns = ranks / rows};
    }
    return grid;
  }

  /// The rank `down` rows below and `right` columns beside `rank`; -1 beyond the edge.
  [[nodiscard]] int neighbour(int rank, int down, int right) const noexcept {
    const int row = rank / columns + down;
    const int column = rank % columns + right;
    const bool inside = row >= 0 && row < rows && column >= 0 && column < columns;
    return inside ? row * columns + column : -1;
  }
};

}  // namespace rondo::tools
