#include "plan/relayout_table.hpp"

namespace rondo::train {
namespace {

double seconds_of(const GridJob& job, const ValueLayout& from, const ValueLayout& to,
                  const tensor::Shape& extents) {
  const Messages messages = redistribution_of(from, to, extents, job.grid);
  return messages_seconds(messages, job.group(), job.options);
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

RelayoutTable::RelayoutTable(const GridJob& job, const std::vector<ValueLayout>& layouts)
    : layouts_(layouts.size()) {
  for (const tensor::Shape& shape : job.shapes) {
    const auto [place, is_new] = by_extents_.try_emplace({shape.h, shape.w, shape.c});
    if (is_new) place->second = table_of(job, layouts, shape);
    tables_.push_back(&place->second);
  }
}

}  // namespace rondo::train
