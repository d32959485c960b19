// Checking and posting: the arguments of every collective become a record.

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "collective/blocks.hpp"
#include "core/communicator_core.hpp"
#include "core/world_core.hpp"

namespace rondo::transport {
namespace {

// The text is put together only when it is needed: posting allocates nothing.
template <typename... Parts>
void require(bool holds, const char* operation, Parts... parts) {
  if (holds) return;
  const auto text = [](auto part) {
    if constexpr (std::is_arithmetic_v<decltype(part)>) {
      return std::to_string(part);
    } else {
      return std::string(part);
    }
  };
  throw std::invalid_argument(
      (("rondo::transport: " + std::string(operation) + ": ") + ... + text(parts)));
}

Protocol regime_for(std::size_t largest_share, const WorldOptions& options) {
  // Anything but small is settled when all ranks' buffers are known.
  return largest_share <= options.small_bytes ? Protocol::small : Protocol::staged;
}

// FNV-1a, a number at a time.
std::uint64_t hashed(std::uint64_t hash, std::size_t number) {
  for (unsigned shift = 0; shift < 64; shift += 8) {
    hash = (hash ^ ((number >> shift) & 0xFFU)) * 0x100000001B3U;
  }
  return hash;
}

// Of rows and shares, so that ranks notice when theirs differ. 0: one row, equal shares.
std::uint64_t hash_of(std::size_t rows, std::span<const std::size_t> counts) {
  if (rows == 1 && counts.empty()) return 0;
  std::uint64_t hash = hashed(0xCBF29CE484222325U, rows);
  for (const std::size_t count : counts) hash = hashed(hash, count);
  return hash;
}

void check_rows(std::size_t rows, std::size_t row_bytes, std::size_t stride_bytes,
                const char* operation, const char* name) {
  require(rows <= 1 || stride_bytes >= row_bytes, operation, "the rows of `", name,
          "` overlap: stride < row");
}

// Of `in` and `out`, one is `whole` and one `part`. Dense buffers are either apart, or `part` lies
// exactly at `whole` + `offset`.
void check_apart(const ConstBlock& whole, const ConstBlock& part, std::size_t offset,
                 const char* operation) {
  if (!whole.dense() || !part.dense() || whole.bytes() == 0 || part.bytes() == 0) return;
  const std::less_equal<const std::byte*> before;
  const bool apart =
      before(whole.data + whole.bytes(), part.data) || before(part.data + part.bytes(), whole.data);
  require(apart || part.data == whole.data + offset, operation,
          "`in` and `out` overlap, but not as they do in place");
}

// The rows of a block that holds every rank's share side by side.
struct Shares {
  std::size_t row_bytes = 0;     // of all together
  std::size_t before_bytes = 0;  // of the ranks before this one
};

// Checks `counts` against this rank's own share of `row_bytes` bytes.
Shares check_shares(std::span<const std::size_t> counts, const Group& group, std::size_t row_bytes,
                    std::size_t element, const char* operation, const char* name) {
  if (counts.empty()) return {row_bytes * group.count(), row_bytes * group.index()};
  require(counts.size() == group.count(), operation, counts.size(), " counts for ", group.count(),
          " ranks");
  require(counts[group.index()] * element == row_bytes, operation, "`", name, "` has rows of ",
          row_bytes / element, " elements, counts[", group.rank, "] says otherwise");
  const auto own = counts.begin() + group.rank;
  return {std::accumulate(counts.begin(), counts.end(), std::size_t{0}) * element,
          std::accumulate(counts.begin(), own, std::size_t{0}) * element};
}

void set_shares(Posted& posted, std::size_t row_bytes_each, std::span<const std::size_t> counts,
                std::size_t element) {
  posted.row_bytes_each = row_bytes_each;
  for (const std::size_t count : counts) posted.row_bytes_of.push_back(count * element);
}

void check_root(int root, const Group& group, const char* operation) {
  require(root >= 0 && root < group.size(), operation, "root ", root, " is not one of ",
          group.size(), " ranks");
}

void check_equal(const ConstBlock& in, const Block& out, const char* operation) {
  const std::size_t element = size_of(in.type);
  require(in.bytes() == out.bytes(), operation, "`in` has ", in.bytes() / element,
          " elements, `out` has ", out.bytes() / element);
}

}  // namespace

OperationRecord& CommunicatorCore::take_record(const ConstBlock& in, const Block& out,
                                               const shm::Fingerprint& fingerprint) {
  OperationRecord& record = take_record();
  record.posted.fingerprint = fingerprint;
  record.posted.input = in;
  record.posted.output = out;
  record.posted.row_bytes_each = 0;
  record.posted.row_bytes_of.clear();
  record.protocol = regime_for(in.bytes(), world_->options());
  return record;
}

OperationRecord& CommunicatorCore::prepare_allreduce(ConstBlock in, Block out, ReduceOp op) {
  check_equal(in, out, "allreduce");
  check_apart(in, as_input(out), 0, "allreduce");
  return take_record(in, out,
                     {.collective = shm::Collective::allreduce,
                      .type = in.type,
                      .op = op,
                      .count = in.bytes() / size_of(in.type)});
}

OperationRecord& CommunicatorCore::prepare_reduce(ConstBlock in, Block out, int root, ReduceOp op) {
  check_root(root, group_, "reduce");
  if (root == group_.rank) {
    check_equal(in, out, "reduce");
    check_apart(in, as_input(out), 0, "reduce");
  }
  return take_record(in, out,
                     {.collective = shm::Collective::reduce,
                      .type = in.type,
                      .op = op,
                      .root = root,
                      .count = in.bytes() / size_of(in.type)});
}

OperationRecord& CommunicatorCore::prepare_reduce_scatter(ConstBlock in, Block out, ReduceOp op,
                                                          std::span<const std::size_t> counts) {
  const std::size_t element = size_of(in.type);
  const Shares shares =
      check_shares(counts, group_, out.row_bytes, element, "reduce_scatter", "out");
  require(in.rows == out.rows, "reduce_scatter", "`in` and `out` have different numbers of rows");
  require(shares.row_bytes == in.row_bytes, "reduce_scatter", "the rows of `in` have ",
          in.row_bytes / element, " elements, the ranks take ", shares.row_bytes / element);
  check_rows(in.rows, in.row_bytes, in.stride_bytes, "reduce_scatter", "in");
  check_rows(out.rows, out.row_bytes, out.stride_bytes, "reduce_scatter", "out");
  if (in.rows <= 1) check_apart(in, as_input(out), shares.before_bytes, "reduce_scatter");

  OperationRecord& record = take_record(in, out,
                                        {.collective = shm::Collective::reduce_scatter,
                                         .type = in.type,
                                         .op = op,
                                         .count = in.bytes() / element,
                                         .counts_hash = hash_of(in.rows, counts)});
  set_shares(record.posted, out.row_bytes, counts, element);
  return record;
}

OperationRecord& CommunicatorCore::prepare_broadcast(Block data, int root) {
  check_root(root, group_, "broadcast");
  return take_record(as_input(data), data,
                     {.collective = shm::Collective::broadcast,
                      .type = data.type,
                      .root = root,
                      .count = data.bytes() / size_of(data.type)});
}

OperationRecord& CommunicatorCore::prepare_allgather(ConstBlock in, Block out,
                                                     std::span<const std::size_t> counts) {
  const std::size_t element = size_of(in.type);
  const Shares shares = check_shares(counts, group_, in.row_bytes, element, "allgather", "in");
  require(in.rows == out.rows, "allgather", "`in` and `out` have different numbers of rows");
  require(shares.row_bytes == out.row_bytes, "allgather", "the rows of `out` have ",
          out.row_bytes / element, " elements, the ranks give ", shares.row_bytes / element);
  check_rows(in.rows, in.row_bytes, in.stride_bytes, "allgather", "in");
  check_rows(out.rows, out.row_bytes, out.stride_bytes, "allgather", "out");
  if (in.rows <= 1) check_apart(as_input(out), in, shares.before_bytes, "allgather");

  OperationRecord& record = take_record(in, out,
                                        {.collective = shm::Collective::allgather,
                                         .type = in.type,
                                         .count = out.bytes() / element,
                                         .counts_hash = hash_of(in.rows, counts)});
  set_shares(record.posted, in.row_bytes, counts, element);
  const std::size_t largest =
      counts.empty() ? in.row_bytes : *std::max_element(counts.begin(), counts.end()) * element;
  record.protocol = regime_for(largest * in.rows, world_->options());
  return record;
}

OperationRecord& CommunicatorCore::prepare_alltoall(ConstBlock in, Block out) {
  const std::size_t element = size_of(in.type);
  check_equal(in, out, "alltoall");
  require(in.bytes() / element % group_.count() == 0, "alltoall", in.bytes() / element,
          " elements for ", group_.count(), " ranks; all parts must be equal");
  require(in.bytes() == 0 || out.data != in.data, "alltoall", "`out` must not be `in`");
  check_apart(in, as_input(out), 0, "alltoall");

  OperationRecord& record = take_record(
      in, out,
      {.collective = shm::Collective::alltoall, .type = in.type, .count = in.bytes() / element});
  set_shares(record.posted, in.bytes() / group_.count(), {}, element);
  return record;
}

OperationRecord& CommunicatorCore::prepare_barrier() {
  return take_record({}, {}, {.collective = shm::Collective::barrier});
}

}  // namespace rondo::transport
