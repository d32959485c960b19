#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rondo/sync/replica.hpp>

namespace rondo::sync {

/// Elements that several ranks of a replica hold (Slices::copies).
///
/// The holders update them alike, but each sums them over the ranks that stand where it does in the
/// other replicas. Their bits stay equal if all these groups sum in the same order. They do not
/// where nodes cut the groups in different ways, or where the arrays are cut in different ways
/// because the ranks' slices of other layers differ in size. There the first holder sends the
/// others what it has.
class Copies {
 public:
  /// Which elements: all, or those of layers whose gradients each holder sums apart. Where the
  /// layer has an `inner` group, all holders get one sum of gradients.
  enum class Kind : std::uint8_t { all, summed_apart };

  /// Collective over all ranks. `replica` is not kept.
  Copies(const Replica& replica, Kind kind);

  /// Replaces the copies among `values`, which are the elements from `offset` on of a flat array
  /// and whole layers, by those of their first holder. Collective over the replica; waits.
  void make_equal(std::span<float> values, std::size_t offset = 0) const;

 private:
  std::vector<Slices::Copy> copies_;  // none where they cannot differ
};

}  // namespace rondo::sync
