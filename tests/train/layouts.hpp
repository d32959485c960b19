#pragma once

#include <string>
#include <vector>

#include <rondo/train/partition.hpp>

#include "train/support/by_space.hpp"

namespace rondo::train::test {

struct Layout {
  std::string name;
  Partition partition;
};

/// Every pair of whole numbers whose product is `ranks`.
inline std::vector<ProcessGrid> grids_of(int ranks) {
  std::vector<ProcessGrid> grids;
  for (int pr = 1; pr <= ranks; ++pr) {
    if (ranks % pr == 0) grids.push_back({.pr = pr, .pc = ranks / pr});
  }
  return grids;
}

/// Every layout of an array over `ranks` ranks that the factories make, on every grid; y of
/// stationary-W included.
inline std::vector<Layout> layouts_of(tensor::Shape extents, int ranks) {
  std::vector<Layout> layouts{{"replicated", replicated(extents, ranks)},
                              {"by sample", by_sample(extents, ranks)}};
  for (const ProcessGrid& grid : grids_of(ranks)) {
    const std::string where = " on " + std::to_string(grid.pr) + "x" + std::to_string(grid.pc);
    const Partition x = by_channel(extents, grid);
    layouts.push_back({"by replica" + where, by_replica(extents, grid)});
    layouts.push_back({"by channel" + where, x});
    for (const ProcessGrid& parts : grids_of(grid.pr)) {
      const std::string cut = " " + std::to_string(parts.pr) + "x" + std::to_string(parts.pc);
      layouts.push_back({"by space" + cut + where, by_space(extents, grid, parts.pr, parts.pc)});
      layouts.push_back({"y of W" + cut + where,
                         output_of(x, {.channels = parts.pr, .filters = parts.pc}, extents)});
      layouts.push_back({"by rows and channels" + cut + where,
                         on_grid(extents, grid, {.h = parts.pr, .c = parts.pc})});
      layouts.push_back({"rows, held " + std::to_string(parts.pc) + " times" + where,
                         on_grid(extents, grid, {.h = parts.pr})});
    }
  }
  return layouts;
}

/// Arrays with extents that divide evenly, that do not, that are less than their parts, and none.
inline std::vector<tensor::Shape> small_arrays() {
  return {{.n = 2, .h = 3, .w = 4, .c = 6},  {.n = 1, .h = 5, .w = 3, .c = 7},
          {.n = 4, .h = 1, .w = 1, .c = 13}, {.n = 5, .h = 2, .w = 7, .c = 1},
          {.n = 0, .h = 3, .w = 2, .c = 4},  {.n = 12, .h = 1, .w = 1, .c = 2}};
}

/// Calls visit(n, h, w, c) for every element of `box`.
template <class Visit>
void for_each_element(const Box& box, Visit visit) {
  for (auto n = box.n.first; n < box.n.last; ++n) {
    for (auto h = box.h.first; h < box.h.last; ++h) {
      for (auto w = box.w.first; w < box.w.last; ++w) {
        for (auto c = box.c.first; c < box.c.last; ++c) visit(n, h, w, c);
      }
    }
  }
}

/// An array with one entry per element of [N,H,W,C].
template <class T>
class ElementArray {
 public:
  explicit ElementArray(tensor::Shape extents, T value = {})
      : extents_(extents), values_(static_cast<std::size_t>(extents.size()), value) {}

  T& at(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
    return values_.at(
        static_cast<std::size_t>(((n * extents_.h + h) * extents_.w + w) * extents_.c + c));
  }
  [[nodiscard]] const std::vector<T>& values() const noexcept { return values_; }

 private:
  tensor::Shape extents_;
  std::vector<T> values_;
};

}  // namespace rondo::train::test
