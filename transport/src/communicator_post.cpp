// Checking and posting: the arguments of every collective become a record.

#include <stdexcept>
#include <string>

#include "communicator_core.hpp"
#include "world_core.hpp"

namespace rondo::transport {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument("rondo::transport: " + what);
}

Regime regime_for(std::size_t largest_share, const WorldOptions& options) {
  // Anything but small is settled when all ranks' buffers are known.
  return largest_share <= options.small_bytes ? Regime::small : Regime::staged;
}

// FNV-1a over the shares, so that ranks notice when their lists differ.
std::uint64_t hash_of(std::span<const std::size_t> counts) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const std::size_t count : counts) {
    for (unsigned shift = 0; shift < 64; shift += 8) {
      hash = (hash ^ ((count >> shift) & 0xFFU)) * 0x100000001B3U;
    }
  }
  return hash;
}

void check_rows(std::size_t rows, std::size_t row_bytes, std::size_t stride_bytes,
                const char* name) {
  require(rows <= 1 || stride_bytes >= row_bytes,
          std::string("allgather: the rows of `") + name + "` overlap: stride < row");
}

ConstBlock as_input(const Block& block) {
  return {block.data, block.type, block.rows, block.row_bytes, block.stride_bytes};
}

}  // namespace

Request CommunicatorCore::allreduce(Block data, ReduceOp op) {
  OperationRecord& record = take_record();
  record.posted.fingerprint = {.collective = shm::Collective::allreduce,
                               .type = data.type,
                               .op = op,
                               .count = data.bytes() / size_of(data.type)};
  record.posted.input = as_input(data);
  record.posted.output = data;
  record.posted.row_bytes_of.clear();
  record.regime = regime_for(data.bytes(), world_->options());
  return post(record);
}

Request CommunicatorCore::broadcast(Block data, int root) {
  require(root >= 0 && root < group_.size(), "broadcast: root " + std::to_string(root) +
                                                 " is not one of " + std::to_string(group_.size()) +
                                                 " ranks");
  OperationRecord& record = take_record();
  record.posted.fingerprint = {.collective = shm::Collective::broadcast,
                               .type = data.type,
                               .root = root,
                               .count = data.bytes() / size_of(data.type)};
  record.posted.input = as_input(data);
  record.posted.output = data;
  record.posted.row_bytes_of.clear();
  record.regime = regime_for(data.bytes(), world_->options());
  return post(record);
}

Request CommunicatorCore::allgather(ConstBlock in, Block out, std::span<const std::size_t> counts) {
  const std::size_t element = size_of(in.type);
  require(counts.empty() || counts.size() == group_.count(),
          "allgather: " + std::to_string(counts.size()) + " counts for " +
              std::to_string(group_.count()) + " ranks");
  require(counts.empty() || counts[group_.index()] * element == in.row_bytes,
          "allgather: `in` has rows of " + std::to_string(in.row_bytes / element) +
              " elements, counts[" + std::to_string(group_.rank) + "] says otherwise");
  require(in.rows == out.rows, "allgather: `in` and `out` have different numbers of rows");
  std::size_t row_bytes = counts.empty() ? in.row_bytes * group_.count() : 0;
  std::size_t largest = counts.empty() ? in.row_bytes : 0;
  for (const std::size_t count : counts) {
    row_bytes += count * element;
    largest = std::max(largest, count * element);
  }
  require(row_bytes == out.row_bytes,
          "allgather: the rows of `out` have " + std::to_string(out.row_bytes / element) +
              " elements, the ranks give " + std::to_string(row_bytes / element));
  check_rows(in.rows, in.row_bytes, in.stride_bytes, "in");
  check_rows(out.rows, out.row_bytes, out.stride_bytes, "out");

  OperationRecord& record = take_record();
  record.posted.fingerprint = {.collective = shm::Collective::allgather,
                               .type = in.type,
                               .count = out.bytes() / element,
                               .counts_hash = counts.empty() ? 0 : hash_of(counts)};
  record.posted.input = in;
  record.posted.output = out;
  record.posted.row_bytes_of.clear();
  for (const std::size_t count : counts) record.posted.row_bytes_of.push_back(count * element);
  record.regime = regime_for(largest * in.rows, world_->options());
  return post(record);
}

Request CommunicatorCore::barrier() {
  OperationRecord& record = take_record();
  record.posted.fingerprint = {.collective = shm::Collective::barrier};
  record.posted.input = {};
  record.posted.output = {};
  record.posted.row_bytes_of.clear();
  record.regime = Regime::small;
  return post(record);
}

}  // namespace rondo::transport
