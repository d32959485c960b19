#pragma once

// The data of collectives over links, and how it is posted.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory_resource>
#include <string>
#include <vector>

#include <rondo/transport/block.hpp>

#include "collective/algorithms.hpp"
#include "support/call_buffers.hpp"

namespace rondo::test {

/// Operation 17, as one rank posts it.
inline transport::Posted posted_of(transport::shm::Collective collective,
                                   transport::ConstBlock input, transport::Block output) {
  transport::Posted posted;
  posted.sequence = 17;
  posted.fingerprint.collective = collective;
  posted.fingerprint.type = input.type;
  posted.fingerprint.count = input.bytes() / transport::size_of(input.type);
  posted.input = input;
  posted.output = output;
  return posted;
}

/// The collective that is posted for a call of the table.
inline transport::shm::Collective collective_of(CallKind kind) {
  using enum transport::shm::Collective;
  // In the order of CallKind.
  constexpr transport::shm::Collective collectives[] = {
      allreduce, allreduce, reduce,  reduce_scatter, allgather, broadcast, alltoall,
      alltoallv, gather,    scatter, scan,           exscan,    barrier};
  return collectives[static_cast<std::size_t>(kind)];
}

/// Where parts of so many elements begin, and where the last ends, in bytes.
inline std::vector<std::size_t> begins_of(const std::vector<std::size_t>& parts) {
  std::vector<std::size_t> begins{0};
  for (const std::size_t part : parts) {
    begins.push_back(begins.back() + part * sizeof(std::int32_t));
  }
  return begins;
}

inline std::vector<std::size_t> equal_parts(const transport::ConstBlock& part, std::size_t ranks) {
  return std::vector<std::size_t>(ranks, part.bytes() / sizeof(std::int32_t));
}

/// A call of the table, as one of `ranks` posts it.
inline transport::Posted posted_of(const CallBuffers<>& data, std::size_t ranks) {
  const CallKind kind = data.call().kind;
  const bool is_root = data.rank() == data.root();
  transport::ConstBlock in = transport::as_const_block(data.input());
  transport::Block out = transport::as_block(data.output());
  if (!is_root && (kind == CallKind::reduce || kind == CallKind::gather)) out = {};
  if (!is_root && kind == CallKind::scatter) in = {};
  transport::Posted posted = posted_of(collective_of(kind), in, out);
  posted.fingerprint.root = static_cast<std::int32_t>(data.root());
  if (kind == CallKind::reduce_scatter) posted.row_bytes_each = out.row_bytes;
  if (kind == CallKind::allgather) posted.row_bytes_each = in.row_bytes;
  if (kind == CallKind::alltoall) posted.row_bytes_each = in.row_bytes / ranks;
  const std::vector<std::size_t> counts = data.counts();
  if (kind == CallKind::alltoallv) {
    posted.sent_at = begins_of(data.parts_sent());
    posted.received_at = begins_of(data.parts_received());
  } else if (kind == CallKind::gather && is_root) {
    posted.received_at = begins_of(counts.empty() ? equal_parts(in, ranks) : counts);
  } else if (kind == CallKind::scatter && is_root) {
    posted.sent_at = begins_of(counts.empty() ? equal_parts(as_const_block(out), ranks) : counts);
  } else {
    for (const std::size_t count : counts) {
      posted.row_bytes_of.push_back(count * sizeof(std::int32_t));
    }
  }
  return posted;
}

/// A call of the table by all of `ranks`, and its buffers.
class PostedCall {
 public:
  /// `elements` are those of an array, or of each rank's share.
  PostedCall(const Call& call, std::size_t ranks, std::size_t elements, std::size_t root = 0) {
    for (std::size_t r = 0; r < ranks; ++r) {
      buffers_.emplace_back(call, r, ranks, std::pmr::get_default_resource(), elements, root);
      buffers_.back().fill();
      posted_.push_back(posted_of(buffers_.back(), ranks));
    }
  }

  [[nodiscard]] const std::vector<transport::Posted>& posted() const { return posted_; }
  [[nodiscard]] const std::deque<CallBuffers<>>& buffers() const { return buffers_; }
  /// The fault on the first rank that has one; empty if none has.
  [[nodiscard]] std::string fault() {
    for (CallBuffers<>& data : buffers_) {
      if (std::string fault = data.fault(); !fault.empty()) return fault;
    }
    return {};
  }

 private:
  std::deque<CallBuffers<>> buffers_;
  std::vector<transport::Posted> posted_;
};

}  // namespace rondo::test
