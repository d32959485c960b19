#include "collective/direct_pull.hpp"

#include <algorithm>
#include <cstring>

#include "collective/rows.hpp"
#include "collective/slots.hpp"
#include "collective/traffic.hpp"

namespace rondo::transport {
namespace {

// The columns of an allgather's result that `member` gives.
Block column_of(const Posted& posted, std::size_t member) {
  Block column = posted.output;
  for (std::size_t r = 0; r < member; ++r) column.data += posted.share_row_bytes(r);
  column.row_bytes = posted.share_row_bytes(member);
  return column;
}

// Dense blocks are cut into rows of a tile's size, so that a step stays short.
std::size_t rows_per_step(const Block& block) {
  return std::max<std::size_t>(1, tile_bytes / std::max<std::size_t>(1, block.row_bytes));
}

void as_tiles(Block& into, ConstBlock& from) {
  if (into.rows != 1 || into.row_bytes % tile_bytes != 0) return;
  into.rows = from.rows = into.row_bytes / tile_bytes;
  into.row_bytes = from.row_bytes = tile_bytes;
  into.stride_bytes = from.stride_bytes = tile_bytes;
}

}  // namespace

Progress DirectPull::step(Group& group, const Posted& posted) {
  const bool gathers = posted.fingerprint.collective == shm::Collective::allgather;
  const std::size_t root = gathers ? 0 : static_cast<std::size_t>(posted.fingerprint.root);
  const std::size_t sources = gathers ? group.count() : 1;
  const std::size_t member = gathers ? (group.index() + source_) % group.count() : root;

  Block into = gathers ? column_of(posted, member) : posted.output;
  ConstBlock from = remote_input(group, member, posted);
  as_tiles(into, from);
  const std::size_t last = std::min(into.rows, row_ + rows_per_step(into));
  if (gathers || group.index() != root) copy_rows(into, from, row_, last);
  row_ = last;
  if (row_ < into.rows) return Progress::moved;

  row_ = 0;
  source_ += 1;
  if (source_ < sources) return Progress::moved;
  count(*group.counters, traffic_of(posted, Regime::direct, group.index(), group.count()));
  return Progress::done;
}

bool DirectPull::waits_for(const Group& /*group*/, std::size_t /*member*/) const { return false; }

}  // namespace rondo::transport
