#pragma once

#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

#include "plan/grid_job.hpp"

namespace rondo::train {

// Seconds of bringing values from one layout to another and their gradients back, by the numbers
// of the layouts; the model's input has no gradient. Values of equal extents share a table.
class RelayoutTable {
 public:
  RelayoutTable(const GridJob& job, const std::vector<ValueLayout>& layouts);

  [[nodiscard]] double seconds(ValueId value, int from, int to) const {
    const double back = value == 0 ? 0.0 : one_way(value, to, from);
    return one_way(value, from, to) + back;
  }

 private:
  using Table = std::vector<double>;
  using Extents = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

  [[nodiscard]] double one_way(ValueId value, int from, int to) const {
    const std::size_t row = static_cast<std::size_t>(from) * layouts_;
    return (*tables_[value])[row + static_cast<std::size_t>(to)];
  }

  std::size_t layouts_;
  std::map<Extents, Table> by_extents_;
  std::vector<const Table*> tables_;  // by value
};

}  // namespace rondo::train
