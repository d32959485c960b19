#include "node/staged_reduce.hpp"

#include <algorithm>
#include <cstring>

#include "collective/traffic.hpp"
#include "node/slices.hpp"
#include "node/staging.hpp"

namespace rondo::transport {
StagedReduce::StagedReduce(Group& group, const Posted& posted)
    : reduce_(find_reduction(posted.fingerprint.type, posted.fingerprint.op)),
      element_bytes_(size_of(posted.fingerprint.type)),
      bytes_(posted.input.bytes()),
      output_(posted.fingerprint.collective == shm::Collective::allreduce ||
                      posted.fingerprint.root == group.rank
                  ? posted.output.data
                  : nullptr),
      first_(group.staged_rounds),
      end_(first_ + (bytes_ + staging_bytes - 1) / staging_bytes),
      filled_(first_),
      reduced_(first_),
      taken_(first_) {
  make_staging(group);
  group.staged_rounds = end_;
}

Range StagedReduce::bytes_of(std::uint64_t round) const noexcept {
  const std::size_t begin = (round - first_) * staging_bytes;
  return {begin, std::min(bytes_, begin + staging_bytes)};
}

// The oldest stage that can run goes first: it is what peers wait for longest.
Progress StagedReduce::step(Group& group, const Posted& posted) {
  using shm::ControlBlock;
  if (taken_ < reduced_ && all_beyond(group, &ControlBlock::staged_reduced, taken_)) {
    take(group);
    if (taken_ < end_) return Progress::moved;
    count(*group.counters, traffic_of(posted, Protocol::staged, group.index(), group.count()));
    return Progress::done;
  }
  if (reduced_ < filled_ && all_beyond(group, &ControlBlock::staged_filled, reduced_)) {
    reduce(group, posted);
    return Progress::moved;
  }
  if (filled_ < end_ && filled_ < taken_ + staging_buffers && staging_is_free(group, filled_)) {
    fill(group, posted);
    return Progress::moved;
  }
  return Progress::idle;
}

void StagedReduce::fill(Group& group, const Posted& posted) {
  const Range bytes = bytes_of(filled_);
  const Range own = slice(bytes.size(), group.count(), group.index(), cache_line_bytes);
  std::byte* buffer = staging_of(group.members[group.index()], filled_);
  const std::byte* data = posted.input.data + bytes.begin;
  std::memcpy(buffer, data, own.begin);
  std::memcpy(buffer + own.end, data + own.end, bytes.size() - own.end);
  publish(group, &shm::ControlBlock::staged_filled, ++filled_);
}

void StagedReduce::reduce(Group& group, const Posted& posted) {
  const Range bytes = bytes_of(reduced_);
  const Range own = slice(bytes.size(), group.count(), group.index(), cache_line_bytes);
  const bool to_all = posted.fingerprint.collective == shm::Collective::allreduce;
  std::size_t destinations = 0;
  for (std::size_t r = 0; r < group.count(); ++r) {
    std::byte* const staged = staging_of(group.members[r], reduced_);
    const bool mine = r == group.index();
    group.sources[r] = mine ? posted.input.data + bytes.begin : staged;
    if (to_all || posted.fingerprint.root == static_cast<std::int32_t>(r)) {
      group.destinations[destinations++] = mine ? output_ + bytes.begin : staged;
    }
  }
  reduce_(group.sources.data(), group.count(), group.destinations.data(), destinations,
          own.begin / element_bytes_, own.end / element_bytes_);
  // Beyond this, no peer's buffer is read or written in this round.
  reduced_ += 1;
  publish(group, &shm::ControlBlock::staged_read, reduced_);
  publish(group, &shm::ControlBlock::staged_reduced, reduced_);
}

void StagedReduce::take(const Group& group) {
  if (output_ != nullptr) {
    const Range bytes = bytes_of(taken_);
    const Range own = slice(bytes.size(), group.count(), group.index(), cache_line_bytes);
    const std::byte* buffer = staging_of(group.members[group.index()], taken_);
    std::byte* output = output_ + bytes.begin;
    std::memcpy(output, buffer, own.begin);
    std::memcpy(output + own.end, buffer + own.end, bytes.size() - own.end);
  }
  taken_ += 1;
}

bool StagedReduce::waits_for(const Group& group, std::size_t member) const {
  const shm::ControlBlock& block = *group.members[member].block;
  if (taken_ < reduced_) return block.staged_reduced.load(std::memory_order_acquire) <= taken_;
  if (reduced_ < filled_) return block.staged_filled.load(std::memory_order_acquire) <= reduced_;
  return filled_ >= staging_buffers &&
         block.staged_read.load(std::memory_order_acquire) < filled_ - staging_buffers + 1;
}

}  // namespace rondo::transport
