#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <rondo/train/export.hpp>
#include <rondo/train/partition.hpp>

namespace rondo::train {

/// A box that goes to, or comes from, another rank. Its indices are those of the whole array.
struct Transfer {
  int peer = 0;
  Box box = {};

  [[nodiscard]] bool operator==(const Transfer&) const = default;
};

/// The boxes that one rank sends, receives and keeps while the layout of an array changes.
///
/// Between two ranks there is at most one box in each direction; none is empty, none goes to the
/// rank itself. The boxes that a rank receives and keeps are disjoint and make up all that it
/// needs. Sends begin with the next rank, receives with the previous one, so that not all ranks
/// meet at the same peer first.
struct RONDO_TRAIN_API Redistribution {
  std::vector<Transfer> sends = {};
  std::vector<Transfer> receives = {};
  Box kept = {};  ///< held before and needed after; possibly empty

  /// Elements.
  [[nodiscard]] std::int64_t elements_sent() const noexcept;
  [[nodiscard]] std::int64_t elements_received() const noexcept;
};

/// The plan of `rank` where array and ranks are `from`'s, and rank r needs `wanted[r]`, a box of
/// any place and size within the array; such boxes may overlap.
///
/// A rank takes what it holds itself. Where several ranks hold a block, its receivers are dealt out
/// to them: in rank order, each to the holder that has least to send so far, the lowest rank of
/// equals. All ranks compute the same plan without messages.
///
/// Throws std::invalid_argument unless there is a box for each rank.
[[nodiscard]] RONDO_TRAIN_API Redistribution redistribution(const Partition& from,
                                                            std::span<const Box> wanted, int rank);

/// From one partition to another of the same array over the same ranks; else
/// std::invalid_argument.
[[nodiscard]] RONDO_TRAIN_API Redistribution redistribution(const Partition& from,
                                                            const Partition& to, int rank);

/// Elements that `rank` receives, without making lists: what it needs less what it keeps,
/// |to(rank)| - |from(rank) and to(rank)|.
[[nodiscard]] RONDO_TRAIN_API std::int64_t elements_received(const Partition& from,
                                                             const Partition& to, int rank);

/// Elements that all ranks send together: the sum of the above.
[[nodiscard]] RONDO_TRAIN_API std::int64_t elements_moved(const Partition& from,
                                                          const Partition& to);

/// The same where rank r needs `wanted[r]`.
[[nodiscard]] RONDO_TRAIN_API std::int64_t elements_moved(const Partition& from,
                                                          std::span<const Box> wanted);

}  // namespace rondo::train
