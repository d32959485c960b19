#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::transport {

/// How many awaited ranks one rank tells of at most.
inline constexpr std::size_t most_awaited = 8;

/// Which ranks of a job that stalls wait for which others: the wait-for graph that tools for MPI
/// look for deadlocks in.
class WaitGraph {
 public:
  explicit WaitGraph(std::size_t ranks) : awaited_(ranks) {}

  /// `rank` waits for `awaited`; when these are none, it does not wait. Numbers that are no ranks
  /// of the job are left out.
  void set(int rank, std::span<const int> awaited);

  /// The rank at fault when some rank waits for `missing` in vain: the nearest, along those that
  /// wait, that does not wait itself. The first of `missing` when all wait for each other; -1 when
  /// there is none. A list of `most_awaited` ranks may have been cut by encode_ranks(): when all
  /// other lists lead nowhere, it is taken for one of all ranks.
  [[nodiscard]] int fault(std::span<const int> missing) const;

 private:
  [[nodiscard]] bool has(int rank) const noexcept {
    return rank >= 0 && static_cast<std::size_t>(rank) < awaited_.size();
  }

  [[nodiscard]] std::vector<int> all_ranks() const;

  std::vector<std::vector<int>> awaited_;  // by rank
};

/// The first `most_awaited` of some ranks, as the text of a StatusMessage.
[[nodiscard]] std::string encode_ranks(std::span<const int> ranks);
/// None when the text cannot be of encode_ranks().
[[nodiscard]] std::vector<int> decode_ranks(std::string_view text);

}  // namespace rondo::transport
