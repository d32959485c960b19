#include "schemes/averaging_schedule.hpp"

#include <cstddef>
#include <stdexcept>
#include <string>

#include <rondo/transport/communicator.hpp>

namespace rondo::sync {
namespace {

void check_period(const std::string& what, std::int64_t period, std::int64_t faster) {
  if (period < 1) {
    throw std::invalid_argument(what + " is " + std::to_string(period) + "; it is at least 1");
  }
  if (period % faster != 0) {
    throw std::invalid_argument(what + " is " + std::to_string(period) +
                                ", which is no multiple of the faster level's " +
                                std::to_string(faster));
  }
}

void check_group(const std::string& where, int size, int slower) {
  if (size <= slower) return;
  throw std::invalid_argument(where + " has a group of " + std::to_string(size) +
                              " ranks, which does not fit into the next slower one of " +
                              std::to_string(slower));
}

}  // namespace

AveragingSchedule::AveragingSchedule(std::string_view scheme, const HierarchicalOptions& options,
                                     const transport::Communicator& outer)
    : period_(options.period), levels_(options.levels) {
  const std::string name(scheme);
  std::int64_t faster = 1;
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    const std::string level = name + ": level " + std::to_string(i);
    if (levels_[i].group == nullptr) throw std::invalid_argument(level + " has no group");
    check_period(level + "'s period", levels_[i].period, faster);
    const bool last = i + 1 == levels_.size();
    if (!last && levels_[i + 1].group == nullptr) continue;  // found in the next turn
    check_group(level, levels_[i].group->size(),
                last ? outer.size() : levels_[i + 1].group->size());
    faster = levels_[i].period;
  }
  check_period(name + ": the global period", period_, faster);
}

transport::Communicator* AveragingSchedule::group_due_after(std::int64_t steps) const noexcept {
  for (std::size_t i = levels_.size(); i-- > 0;) {
    if (steps % levels_[i].period != 0) continue;
    return levels_[i].group->size() > 1 ? levels_[i].group : nullptr;
  }
  return nullptr;
}

}  // namespace rondo::sync
