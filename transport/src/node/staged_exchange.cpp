#include "node/staged_exchange.hpp"

#include <algorithm>

#include "collective/traffic.hpp"
#include "node/columns.hpp"
#include "node/rows.hpp"
#include "node/slices.hpp"
#include "node/staging.hpp"

namespace rondo::transport {
namespace {

std::size_t share_sent(const Posted& posted, std::size_t member) {
  return posted.share_row_bytes(member) * posted.input.rows;
}

}  // namespace

StagedExchange::StagedExchange(Group& group, const Posted& posted)
    : reduce_(find_reduction(posted.fingerprint.type, posted.fingerprint.op)),
      reduces_(posted.fingerprint.collective == shm::Collective::reduce_scatter),
      packs_own_(reduces_ && posted.input.rows > 1),
      first_(group.staged_rounds),
      end_(first_),
      filled_(first_),
      taken_(first_) {
  cut_lanes(group, posted);
  make_staging(group);
  group.staged_rounds = end_;
}

void StagedExchange::cut_lanes(const Group& group, const Posted& posted) {
  std::size_t lanes = 0;
  std::size_t most = 0;
  for (std::size_t r = 0; r < group.count(); ++r) {
    const std::size_t share = share_sent(posted, r);
    if (r == group.index()) {
      own_lane_ = lanes;
      own_bytes_ = share;
    }
    lanes += share > 0 ? 1 : 0;
    most = std::max(most, share);
  }
  lane_bytes_ = staging_bytes / lanes / cache_line_bytes * cache_line_bytes;
  end_ = first_ + (most + lane_bytes_ - 1) / lane_bytes_;
}

std::byte* StagedExchange::lane_of(const Group& group, std::size_t giver, std::size_t lane,
                                   std::uint64_t round) const noexcept {
  return staging_of(group.members[giver], round) + lane * lane_bytes_;
}

// Bytes of a share that a round carries.
Range StagedExchange::window(std::uint64_t round, std::size_t share) const noexcept {
  const std::size_t begin = std::min(share, (round - first_) * lane_bytes_);
  return {begin, std::min(share, begin + lane_bytes_)};
}

Progress StagedExchange::step(Group& group, const Posted& posted) {
  if (taken_ < filled_ && all_beyond(group, &shm::ControlBlock::staged_filled, taken_)) {
    take(group, posted);
    if (taken_ < end_) return Progress::moved;
    // Not used here, but the next staged operation counts on it.
    publish(group, &shm::ControlBlock::staged_reduced, end_);
    count(*group.counters, traffic_of(posted, Protocol::staged, group.index(), group.count()));
    return Progress::done;
  }
  // This rank, too, may read from its own buffer: it must not run further ahead.
  if (filled_ < end_ && filled_ < taken_ + staging_buffers && staging_is_free(group, filled_)) {
    fill(group, posted);
    return Progress::moved;
  }
  return Progress::idle;
}

void StagedExchange::fill(Group& group, const Posted& posted) {
  std::size_t lane = 0;
  for (std::size_t r = 0; r < group.count(); ++r) {
    const std::size_t share = share_sent(posted, r);
    if (share == 0) continue;
    if (r != group.index() || packs_own_) {
      const Range bytes = window(filled_, share);
      copy_from_rows(lane_of(group, group.index(), lane, filled_),
                     column_of(posted.input, posted, r), bytes.begin, bytes.size());
    }
    lane += 1;
  }
  publish(group, &shm::ControlBlock::staged_filled, ++filled_);
}

void StagedExchange::take(Group& group, const Posted& posted) {
  const Range bytes = window(taken_, own_bytes_);
  if (bytes.size() > 0) {
    if (reduces_) {
      reduce_lanes(group, posted, bytes);
    } else {
      copy_lanes(group, posted, bytes);
    }
  }
  publish(group, &shm::ControlBlock::staged_read, ++taken_);
}

void StagedExchange::reduce_lanes(Group& group, const Posted& posted, Range bytes) {
  for (std::size_t r = 0; r < group.count(); ++r) {
    group.sources[r] = lane_of(group, r, own_lane_, taken_);
  }
  std::byte* into = posted.output.data + bytes.begin;
  if (packs_own_) {
    into = lane_of(group, group.index(), own_lane_, taken_);
  } else {
    group.sources[group.index()] =
        column_of(posted.input, posted, group.index()).data + bytes.begin;
  }
  reduce_(group.sources.data(), group.count(), &into, 1, 0,
          bytes.size() / size_of(posted.fingerprint.type));
  if (packs_own_) copy_into_rows(posted.output, bytes.begin, into, bytes.size());
}

void StagedExchange::copy_lanes(Group& group, const Posted& posted, Range bytes) {
  for (std::size_t r = 0; r < group.count(); ++r) {
    const std::byte* from = r == group.index()
                                ? column_of(posted.input, posted, r).data + bytes.begin
                                : lane_of(group, r, own_lane_, taken_);
    copy_into_rows(column_of(posted.output, posted, r), bytes.begin, from, bytes.size());
  }
}

bool StagedExchange::waits_for(const Group& group, std::size_t member) const {
  const shm::ControlBlock& block = *group.members[member].block;
  if (taken_ < filled_) return block.staged_filled.load(std::memory_order_acquire) <= taken_;
  return filled_ >= staging_buffers &&
         block.staged_read.load(std::memory_order_acquire) < filled_ - staging_buffers + 1;
}

}  // namespace rondo::transport
