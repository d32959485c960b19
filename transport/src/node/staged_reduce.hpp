#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/operation.hpp"
#include "node/slices.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {

/// Allreduce and reduce by way of staging buffers, for buffers of which at least one is in
/// ordinary memory.
///
/// Round by round (staging_bytes of the data each), cut into one slice per rank: fill the own
/// buffer with the peers' slices; reduce the own slice from all buffers, in rank order, into the
/// output and, at the same place, into the peers' buffers (reduce: into the root's alone); take
/// what the peers have stored into the own buffer. A line of a buffer thus crosses twice, once
/// with an input and once with the result, and the owner has it back when it fills it again. The
/// own slice is never copied. The stages of different rounds overlap, as far as the buffers reach.
///
/// Loads and stores, per rank, (P-1) times the own slice of each round, as between arenas.
class StagedReduce final : public Operation {
 public:
  StagedReduce(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  [[nodiscard]] Range bytes_of(std::uint64_t round) const noexcept;
  void fill(Group& group, const Posted& posted);
  void reduce(Group& group, const Posted& posted);
  void take(const Group& group);

  Reduction reduce_;
  std::size_t element_bytes_;
  std::size_t bytes_;
  std::byte* output_;    // null where the result is not wanted
  std::uint64_t first_;  // round
  std::uint64_t end_;
  std::uint64_t filled_;
  std::uint64_t reduced_;
  std::uint64_t taken_;
};

}  // namespace rondo::transport
