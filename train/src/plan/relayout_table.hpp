#pragma once

#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

#include "plan/grid_job.hpp"

namespace rondo::train {

// Seconds of bringing values from one layout to another and their gradients back, by the numbers
// of the layouts. Values of equal extents share a table.
class RelayoutTable {
 public:
  RelayoutTable(const GridJob& job, const std::vector<ValueLayout>& layouts);

  [[nodiscard]] double seconds(ValueId value, int from, int to) const {
    return (
        *tables_[value])[static_cast<std::size_t>(from) * layouts_ + static_cast<std::size_t>(to)];
  }

 private:
  using Table = std::vector<double>;
  using Extents = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

  std::size_t layouts_;
  std::map<Extents, Table> by_extents_;
  std::vector<const Table*> tables_;  // by value
};

}  // namespace rondo::train
