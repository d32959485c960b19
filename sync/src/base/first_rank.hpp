#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include <rondo/sync/replica.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::sync {

/// Where the ranks of a replica could see different things, such as what has arrived by now, the
/// first of them looks, and all act on what it saw.
///
/// A replica of one rank sends nothing, one of n a broadcast of 4 bytes over n ranks each time.
class FirstRank {
 public:
  /// `replica` is lent.
  explicit FirstRank(const Replica& replica)
      : over_(replica.slices.over), word_(1, 0, &replica.world->arena()) {}

  /// What `look()`, a yes or no, gives on the first rank; the others do not call it. Collective
  /// over the replica's ranks.
  template <typename Look>
  [[nodiscard]] bool sees(Look look) {
    if (over_ == nullptr) return look();
    if (over_->rank() == 0) word_[0] = look() ? 1 : 0;
    over_->broadcast(std::span(word_), 0).wait();
    return word_[0] != 0;
  }

 private:
  transport::Communicator* over_;
  std::pmr::vector<std::int32_t> word_;
};

}  // namespace rondo::sync
