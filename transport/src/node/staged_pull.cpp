#include "node/staged_pull.hpp"

#include <algorithm>

#include "collective/traffic.hpp"
#include "node/rows.hpp"
#include "node/slices.hpp"
#include "node/staging.hpp"

namespace rondo::transport {
namespace {

std::size_t share_bytes(const Posted& posted, std::size_t member) {
  if (posted.fingerprint.collective == shm::Collective::broadcast) return posted.output.bytes();
  return posted.share_row_bytes(member) * posted.output.rows;
}

std::uint64_t rounds_of(const Group& group, const Posted& posted) {
  std::size_t most = 0;
  for (std::size_t r = 0; r < group.count(); ++r) most = std::max(most, share_bytes(posted, r));
  return (most + staging_bytes - 1) / staging_bytes;
}

// Bytes of `share` that round `round` of an operation carries.
Range window(std::uint64_t round, std::size_t share) {
  const std::size_t begin = std::min(share, static_cast<std::size_t>(round) * staging_bytes);
  return {begin, std::min(share, begin + staging_bytes)};
}

}  // namespace

StagedPull::StagedPull(Group& group, const Posted& posted)
    : first_(group.staged_rounds),
      end_(first_ + rounds_of(group, posted)),
      filled_(first_),
      read_(first_),
      root_(posted.fingerprint.collective == shm::Collective::broadcast ? posted.fingerprint.root
                                                                        : -1) {
  make_staging(group);
  group.staged_rounds = end_;
}

bool StagedPull::gives(std::size_t member) const noexcept {
  return root_ < 0 || static_cast<std::size_t>(root_) == member;
}

bool StagedPull::readable(const Group& group) const noexcept {
  for (std::size_t r = 0; r < group.count(); ++r) {
    if (r == group.index() || !gives(r)) continue;
    // Acquire: the buffer's bytes are read next.
    if (group.members[r].block->staged_filled.load(std::memory_order_acquire) <= read_)
      return false;
  }
  return true;
}

Progress StagedPull::step(Group& group, const Posted& posted) {
  // This rank, too, reads its own share from its buffer: it must not run further ahead.
  const bool free = filled_ < read_ + staging_buffers &&
                    (!gives(group.index()) || staging_is_free(group, filled_));
  if (filled_ < end_ && free) {
    fill(group, posted);
    return Progress::moved;
  }
  if (read_ < end_ && read_ < filled_ && readable(group)) {
    read(group, posted);
    return Progress::moved;
  }
  if (read_ < end_) return Progress::idle;
  // Not used here, but the next staged allreduce counts on it.
  publish(group, &shm::ControlBlock::staged_reduced, end_);
  count(*group.counters, traffic_of(posted, Protocol::staged, group.index(), group.count()));
  return Progress::done;
}

void StagedPull::fill(Group& group, const Posted& posted) {
  if (gives(group.index())) {
    const Range bytes = window(filled_ - first_, posted.input.bytes());
    copy_from_rows(staging_of(group.members[group.index()], filled_), posted.input, bytes.begin,
                   bytes.size());
  }
  publish(group, &shm::ControlBlock::staged_filled, ++filled_);
}

void StagedPull::read(Group& group, const Posted& posted) {
  Block column = posted.output;
  for (std::size_t r = 0; r < group.count(); ++r) {
    if (root_ < 0) column.row_bytes = posted.share_row_bytes(r);
    const Range bytes = window(read_ - first_, share_bytes(posted, r));
    const bool in_place = column.data == posted.input.data;
    if (gives(r) && !(r == group.index() && in_place)) {
      copy_into_rows(column, bytes.begin, staging_of(group.members[r], read_), bytes.size());
    }
    if (root_ < 0) column.data += column.row_bytes;
  }
  publish(group, &shm::ControlBlock::staged_read, ++read_);
}

bool StagedPull::waits_for(const Group& group, std::size_t member) const {
  const shm::ControlBlock& block = *group.members[member].block;
  if (read_ < filled_) {
    return gives(member) && block.staged_filled.load(std::memory_order_acquire) <= read_;
  }
  return filled_ >= staging_buffers &&
         block.staged_read.load(std::memory_order_acquire) < filled_ - staging_buffers + 1;
}

}  // namespace rondo::transport
