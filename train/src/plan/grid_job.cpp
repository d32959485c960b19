// The cost on one grid of redistributing a value of the model. The rank that receives most decides,
// because the others wait for it. A few positions of a replica are looked at: the boxes of the
// others are alike.

#include "plan/grid_job.hpp"

#include <algorithm>
#include <cmath>

namespace rondo::train {
namespace {

// How many of the parts of [0, total) have something of `range`.
std::int64_t parts_met(std::int64_t total, int parts, Range range) {
  if (range.empty()) return 0;
  const auto part_of = [&](std::int64_t index) {  // the last whose first index is not behind
    return ((index + 1) * parts + total - 1) / total - 1;
  };
  const std::int64_t first = part_of(range.first);
  const std::int64_t last = part_of(range.last - 1);
  return std::min(last - first + 1, range.size());  // parts may be empty
}

std::int64_t blocks_met(const Parts& parts, const tensor::Shape& extents, const Box& box) {
  return parts_met(extents.n, parts.n, box.n) * parts_met(extents.h, parts.h, box.h) *
         parts_met(extents.w, parts.w, box.w) * parts_met(extents.c, parts.c, box.c);
}

}  // namespace

std::set<int> positions_looked_at(int ranks) {
  constexpr int all = 16;
  std::set<int> positions = {0, ranks / 2, ranks - 1};
  for (int position = 0; position < std::min(ranks, all); ++position) positions.insert(position);
  return positions;
}

Messages redistribution_of(const ValueLayout& from, const ValueLayout& to,
                           const tensor::Shape& extents, const ProcessGrid& grid) {
  const Parts parts = parts_of(from, grid);
  Messages most;
  for (const int position : positions_looked_at(grid.pr)) {
    // The last replica has the most samples, as the last part of a cut has.
    const int rank = grid.rank_at(grid.pc - 1, position);
    const Box wanted = box_of(to, extents, grid, rank);
    const Box kept = intersection(box_of(from, extents, grid, rank), wanted);
    const Messages messages = {.count = blocks_met(parts, extents, wanted) - (kept.empty() ? 0 : 1),
                               .elements = wanted.size() - kept.size()};
    most.count = std::max(most.count, messages.count);
    most.elements = std::max(most.elements, messages.elements);
  }
  return most;
}

namespace {

double seconds_of(const GridJob& job, const ValueLayout& from, const ValueLayout& to,
                  const tensor::Shape& extents) {
  Messages messages = redistribution_of(from, to, extents, job.grid);
  messages.elements = std::llround(job.in_f32(static_cast<double>(messages.elements)));
  return messages_cost(messages, job.replica(), job.options).seconds;
}

std::vector<double> table_of(const GridJob& job, const std::vector<ValueLayout>& layouts,
                             const tensor::Shape& extents) {
  std::vector<double> table;
  for (const ValueLayout& from : layouts) {
    for (const ValueLayout& to : layouts) {
      table.push_back(seconds_of(job, from, to, extents));
    }
  }
  return table;
}

}  // namespace

// Values of the same height, width and channels have the same table; a network has few different
// ones.
RelayoutTable::RelayoutTable(const GridJob& job, const std::vector<ValueLayout>& layouts)
    : layouts_(layouts.size()) {
  for (const tensor::Shape& shape : job.shapes) {
    const auto [entry, is_new] = by_extents_.try_emplace({shape.h, shape.w, shape.c});
    if (is_new) entry->second = table_of(job, layouts, shape);
    tables_.push_back(&entry->second);
  }
}

}  // namespace rondo::train
