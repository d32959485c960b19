// Every call of a communicator becomes a record here: its arguments are checked (a wrong one throws
// std::invalid_argument, and nothing is posted), put into a record of the pool, and the record is
// posted at once or kept as the prototype of a Plan. Collectives go to the end of the queue (see
// queue.cpp). Messages run outside its order: they are handed to the links at once.

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "collective/blocks.hpp"
#include "communicator/communicator_core.hpp"
#include "memory/arena.hpp"
#include "recorder/names.hpp"
#include "world/world_core.hpp"

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

// A number for the rows and shares, so that ranks notice when theirs differ. 0: one row, equal
// shares.
std::uint64_t hash_of(std::size_t rows, std::span<const std::size_t> counts) {
  if (rows == 1 && counts.empty()) return 0;
  shm::Hash hash;
  hash.add(rows);
  for (const std::size_t count : counts) hash.add(count);
  return hash.value();
}

// Floating point has no bit operations, as in MPI.
void check_op(ElementType type, ReduceOp op, const char* operation) {
  const bool bits = op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
  require(!bits || is_integer(type), operation, name_of(op), " is for integers, not for ",
          name_of(type));
}

// Rows may lie apart in memory, but must not overlap.
template <typename AnyBlock>
void check_rows(const AnyBlock& block, const char* operation, const char* name) {
  require(block.rows <= 1 || block.stride_bytes >= block.row_bytes, operation, "the rows of `",
          name, "` overlap: stride < row");
}

// One of `in` and `out` is `whole`, the other is `part`. Dense buffers are either apart, or `part`
// lies exactly at `whole` + `offset`.
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
// A rank needs to know where its own share begins only to compare buffers.
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

// Equal shares need one number, others one per rank; the vector is the record's own and is used
// again.
void set_shares(Posted& posted, std::size_t row_bytes_each, std::span<const std::size_t> counts,
                std::size_t element) {
  posted.row_bytes_each = row_bytes_each;
  for (const std::size_t count : counts) posted.row_bytes_of.push_back(count * element);
}

// Where the ranks' parts begin, and where the last ends; all have `bytes_each`, unless there are
// counts.
void set_parts(std::vector<std::size_t>& at, std::size_t bytes_each,
               std::span<const std::size_t> counts, std::size_t element, std::size_t ranks) {
  at.push_back(0);
  for (std::size_t r = 0; r < ranks; ++r) {
    at.push_back(at.back() + (counts.empty() ? bytes_each : counts[r] * element));
  }
}

// The root is a rank of this communicator, not of the World.
void check_root(int root, const Group& group, const char* operation) {
  require(root >= 0 && root < group.size(), operation, "root ", root, " is not one of ",
          group.size(), " ranks");
}

void check_equal(const ConstBlock& in, const Block& out, const char* operation) {
  const std::size_t element = size_of(in.type);
  require(in.bytes() == out.bytes(), operation, "`in` has ", in.bytes() / element,
          " elements, `out` has ", out.bytes() / element);
}

std::size_t member_for(const Group& group, int peer, const char* call) {
  require(peer >= 0 && peer < group.size(), call, "peer ", peer, " is not one of ", group.size(),
          " ranks");
  return static_cast<std::size_t>(peer);
}

// A tag becomes the label of the messages, which has 30 bits.
std::uint32_t label_for(int tag, const char* call) {
  require(tag >= 0 && tag < Communicator::max_tag, call, "tag ", tag, " is not in [0, 2^30)");
  return static_cast<std::uint32_t>(tag);
}

void check_neighbour(const Neighbour& neighbour, const Group& group) {
  static_cast<void>(member_for(group, neighbour.rank, "sendrecv"));
  static_cast<void>(label_for(neighbour.out_tag, "sendrecv"));
  static_cast<void>(label_for(neighbour.in_tag, "sendrecv"));
  check_rows(neighbour.out, "sendrecv", "out");
  check_rows(neighbour.in, "sendrecv", "in");
}

}  // namespace

// The common beginning of all collectives. Ranks compare the fingerprint, so it holds nothing that
// may differ among them; a rank's own share is checked against `counts` before.
OperationRecord& CommunicatorCore::take_record(const ConstBlock& in, const Block& out,
                                               const shm::Fingerprint& fingerprint) {
  OperationRecord& record = take_record();
  record.ordered = true;  // the record may have been a message's, and a Plan never posts this one
  record.posted.fingerprint = fingerprint;
  record.posted.input = in;
  record.posted.output = out;
  record.posted.row_bytes_each = 0;
  record.posted.row_bytes_of.clear();
  record.posted.sent_at.clear();
  record.posted.received_at.clear();
  return record;
}

// In place or apart; both buffers are dense, because the public call takes spans.
OperationRecord& CommunicatorCore::prepare_allreduce(ConstBlock in, Block out, ReduceOp op) {
  check_op(in.type, op, "allreduce");
  check_equal(in, out, "allreduce");
  check_apart(in, as_const_block(out), 0, "allreduce");
  return take_record(in, out,
                     {.collective = shm::Collective::allreduce,
                      .type = in.type,
                      .op = op,
                      .count = in.bytes() / size_of(in.type)});
}

// Packed into one array of the arena, which is reduced in place. Ranks compare the lengths.
OperationRecord& CommunicatorCore::prepare_coalesced(std::span<const Block> arrays, ReduceOp op) {
  const ElementType type = arrays.empty() ? ElementType::u8 : arrays.front().type;
  check_op(type, op, "allreduce_coalesced");
  shm::Hash lengths;
  std::size_t bytes = 0;
  for (const Block& array : arrays) {
    lengths.add(array.bytes());
    bytes += array.bytes();
  }
  OperationRecord& record = take_record({}, {},
                                        {.collective = shm::Collective::allreduce,
                                         .type = type,
                                         .op = op,
                                         .count = bytes / size_of(type),
                                         .counts_hash = lengths.value()});
  try {
    if (!record.coalesced) {
      record.coalesced = std::make_unique<Coalesced>(world_->arena(), group_.team);
    }
    record.coalesced->begin(arrays);
  } catch (...) {  // the arena cannot grow
    recycle(record);
    throw;
  }
  record.posted.output = {record.coalesced->data(), type, 1, bytes, bytes};
  record.posted.input = as_const_block(record.posted.output);
  return record;
}

// The output counts at the root only.
OperationRecord& CommunicatorCore::prepare_reduce(ConstBlock in, Block out, int root, ReduceOp op) {
  check_op(in.type, op, "reduce");
  check_root(root, group_, "reduce");
  if (root == group_.rank) {
    check_equal(in, out, "reduce");
    check_apart(in, as_const_block(out), 0, "reduce");
  }
  return take_record(in, out,
                     {.collective = shm::Collective::reduce,
                      .type = in.type,
                      .op = op,
                      .root = root,
                      .count = in.bytes() / size_of(in.type)});
}

// `in` has every rank's share side by side in each row, `out` this rank's share. In place means
// that `out` lies exactly where the own share of `in` does.
OperationRecord& CommunicatorCore::prepare_reduce_scatter(ConstBlock in, Block out, ReduceOp op,
                                                          std::span<const std::size_t> counts) {
  check_op(in.type, op, "reduce_scatter");
  const std::size_t element = size_of(in.type);
  const Shares shares =
      check_shares(counts, group_, out.row_bytes, element, "reduce_scatter", "out");
  require(in.rows == out.rows, "reduce_scatter", "`in` and `out` have different numbers of rows");
  require(shares.row_bytes == in.row_bytes, "reduce_scatter", "the rows of `in` have ",
          in.row_bytes / element, " elements, the ranks receive ", shares.row_bytes / element);
  check_rows(in, "reduce_scatter", "in");
  check_rows(out, "reduce_scatter", "out");
  if (in.rows <= 1) check_apart(in, as_const_block(out), shares.before_bytes, "reduce_scatter");

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
  return take_record(as_const_block(data), data,
                     {.collective = shm::Collective::broadcast,
                      .type = data.type,
                      .root = root,
                      .count = data.bytes() / size_of(data.type)});
}

// The counterpart: `in` is this rank's share, `out` has all of them.
OperationRecord& CommunicatorCore::prepare_allgather(ConstBlock in, Block out,
                                                     std::span<const std::size_t> counts) {
  const std::size_t element = size_of(in.type);
  const Shares shares = check_shares(counts, group_, in.row_bytes, element, "allgather", "in");
  require(in.rows == out.rows, "allgather", "`in` and `out` have different numbers of rows");
  require(shares.row_bytes == out.row_bytes, "allgather", "the rows of `out` have ",
          out.row_bytes / element, " elements, the ranks send ", shares.row_bytes / element);
  check_rows(in, "allgather", "in");
  check_rows(out, "allgather", "out");
  if (in.rows <= 1) check_apart(as_const_block(out), in, shares.before_bytes, "allgather");

  OperationRecord& record = take_record(in, out,
                                        {.collective = shm::Collective::allgather,
                                         .type = in.type,
                                         .count = out.bytes() / element,
                                         .counts_hash = hash_of(in.rows, counts)});
  set_shares(record.posted, in.row_bytes, counts, element);
  return record;
}

// Never in place: a part that has arrived would overwrite one that is still to be sent.
OperationRecord& CommunicatorCore::prepare_alltoall(ConstBlock in, Block out) {
  const std::size_t element = size_of(in.type);
  check_equal(in, out, "alltoall");
  require(in.bytes() / element % group_.count() == 0, "alltoall", in.bytes() / element,
          " elements for ", group_.count(), " ranks; all parts must be equal");
  require(in.bytes() == 0 || out.data != in.data, "alltoall", "`out` must not be `in`");
  check_apart(in, as_const_block(out), 0, "alltoall");

  OperationRecord& record = take_record(
      in, out,
      {.collective = shm::Collective::alltoall, .type = in.type, .count = in.bytes() / element});
  set_shares(record.posted, in.bytes() / group_.count(), {}, element);
  return record;
}

// In place means that `in` lies exactly where the root wants its own share.
OperationRecord& CommunicatorCore::prepare_gather(ConstBlock in, Block out, int root,
                                                  std::span<const std::size_t> counts) {
  check_root(root, group_, "gather");
  const std::size_t element = size_of(in.type);
  const Shares shares = check_shares(counts, group_, in.bytes(), element, "gather", "in");
  if (root == group_.rank) {
    require(shares.row_bytes == out.bytes(), "gather", "`out` has ", out.bytes() / element,
            " elements, the ranks send ", shares.row_bytes / element);
    check_apart(as_const_block(out), in, shares.before_bytes, "gather");
  }
  OperationRecord& record = take_record(in, root == group_.rank ? out : Block{},
                                        {.collective = shm::Collective::gather,
                                         .type = in.type,
                                         .root = root,
                                         .count = shares.row_bytes / element,
                                         .counts_hash = hash_of(1, counts)});
  if (root == group_.rank) {
    set_parts(record.posted.received_at, in.bytes(), counts, element, group_.count());
  }
  return record;
}

// The counterpart of a gather. Only the root's input is looked at.
OperationRecord& CommunicatorCore::prepare_scatter(ConstBlock in, Block out, int root,
                                                   std::span<const std::size_t> counts) {
  check_root(root, group_, "scatter");
  const std::size_t element = size_of(out.type);
  const Shares shares = check_shares(counts, group_, out.bytes(), element, "scatter", "out");
  if (root == group_.rank) {
    require(shares.row_bytes == in.bytes(), "scatter", "`in` has ", in.bytes() / element,
            " elements, the ranks receive ", shares.row_bytes / element);
    check_apart(in, as_const_block(out), shares.before_bytes, "scatter");
  }
  OperationRecord& record = take_record(root == group_.rank ? in : ConstBlock{}, out,
                                        {.collective = shm::Collective::scatter,
                                         .type = out.type,
                                         .root = root,
                                         .count = shares.row_bytes / element,
                                         .counts_hash = hash_of(1, counts)});
  if (root == group_.rank) {
    set_parts(record.posted.sent_at, out.bytes(), counts, element, group_.count());
  }
  return record;
}

// The ranks send each other different counts, so they cannot compare them before they begin.
OperationRecord& CommunicatorCore::prepare_alltoallv(ConstBlock in,
                                                     std::span<const std::size_t> in_counts,
                                                     Block out,
                                                     std::span<const std::size_t> out_counts) {
  const std::size_t element = size_of(in.type);
  const auto check = [&](std::span<const std::size_t> counts, std::size_t bytes, const char* name) {
    require(counts.size() == group_.count(), "alltoallv", counts.size(), " counts of `", name,
            "` for ", group_.count(), " ranks");
    const std::size_t sum = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    require(sum * element == bytes, "alltoallv", "`", name, "` has ", bytes / element,
            " elements, its counts say ", sum);
  };
  check(in_counts, in.bytes(), "in");
  check(out_counts, out.bytes(), "out");
  require(in_counts[group_.index()] == out_counts[group_.index()], "alltoallv",
          "this rank sends itself ", in_counts[group_.index()], " elements and expects ",
          out_counts[group_.index()]);
  require(in.bytes() == 0 || out.data != in.data, "alltoallv", "`out` must not be `in`");
  check_apart(in, as_const_block(out), 0, "alltoallv");

  OperationRecord& record =
      take_record(in, out, {.collective = shm::Collective::alltoallv, .type = in.type});
  set_parts(record.posted.sent_at, 0, in_counts, element, group_.count());
  set_parts(record.posted.received_at, 0, out_counts, element, group_.count());
  return record;
}

// The output of rank 0 of an exscan is not written.
OperationRecord& CommunicatorCore::prepare_scan(ConstBlock in, Block out, ReduceOp op,
                                                bool exclusive) {
  const char* const name = exclusive ? "exscan" : "scan";
  check_op(in.type, op, name);
  require(op != ReduceOp::avg, name, "avg is no running reduction; divide the sums by rank");
  check_equal(in, out, name);
  check_apart(in, as_const_block(out), 0, name);
  return take_record(in, out,
                     {.collective = exclusive ? shm::Collective::exscan : shm::Collective::scan,
                      .type = in.type,
                      .op = op,
                      .count = in.bytes() / size_of(in.type)});
}

OperationRecord& CommunicatorCore::prepare_barrier() {
  return take_record({}, {}, {.collective = shm::Collective::barrier});
}

// A message has no sequence: it is matched by sender, receiver, tag and order alone.
OperationRecord& CommunicatorCore::begin_parts(PointToPointCall call) {
  OperationRecord& record = take_record();
  record.parts.clear();
  record.call = call;
  record.ordered = false;
  return record;
}

// A failure here, for want of memory, leaves nothing posted, and the record is free again.
PointToPoint& CommunicatorCore::start_parts(OperationRecord& record) {
  try {
    // Twice as many: one by one, each of many messages would move all before it.
    if (parts_.size() == parts_.capacity()) parts_.reserve(2 * parts_.size() + 8);
    auto& operation = record.storage.emplace<PointToPoint>(group_, record.parts);
    record.operation = &operation;
    return operation;
  } catch (...) {
    record.held = false;
    recycle(record);
    throw;
  }
}

// The links get the messages now. Operations that are done at once never enter the list.
Request CommunicatorCore::post_parts(OperationRecord& record) {
  record.held = true;
  record.forget_waits(round_of_checks_, world_->stalls().failures());
  record.stamp = {};
  if (failure_) return fail_at_once(record);
  const ArenaCore& arena = world_->arena_core();
  record.needs_others = false;
  for (std::size_t i = 0; i < record.parts.size(); ++i) {
    Part& part = record.parts[i];
    record.needs_others = record.needs_others || part.receives;
    part.out.data = arena.resolve(part.out.data, extent_of(part.out));
    part.in.data = arena.resolve(part.in.data, extent_of(as_const_block(part.in)));
  }
  record.stage = Stage::running;
  PointToPoint& operation = start_parts(record);
  record_parts(record);
  // The caller may compute for long before it calls progress().
  if (Link* const fabric = world_->fabric()) fabric->send_now();
  if (operation.is_done()) {  // most signals and small sends are: they need no more progress
    group_.counters->operations += 1;
    record.end_untimed();
  } else {
    record.listed = true;
    parts_.push_back(&record);
  }
  return {shared_from_this(), &record};
}

// Only a receive can be given up without a failure: what was sent, or stored into peers' memory,
// cannot be taken back.
bool CommunicatorCore::cancel(OperationRecord& record) noexcept {
  const bool receives =
      record.call == PointToPointCall::recv || record.call == PointToPointCall::wait_signal;
  if (record.ordered || !receives || record.finished()) return false;
  std::erase(parts_, &record);
  world_->stalls().end(record);
  record.held = false;
  give_up(record);
  return true;
}

// One message to or from one peer; `describe` fills in what it is.
template <typename Describe>
Request CommunicatorCore::post_one(PointToPointCall call, int peer, int tag, Describe describe) {
  const std::size_t member = member_for(group_, peer, name_of(call));
  const std::uint32_t label = label_for(tag, name_of(call));
  OperationRecord& record = begin_parts(call);
  Part& part = record.parts.add();
  part.member = member;
  describe(part, label);
  return post_parts(record);
}

Request CommunicatorCore::send(ConstBlock data, int peer, int tag) {
  return post_one(PointToPointCall::send, peer, tag,
                  [&](Part& part, std::uint32_t label) { part.send(data, label); });
}

Request CommunicatorCore::recv(Block data, int peer, int tag) {
  return post_one(PointToPointCall::recv, peer, tag,
                  [&](Part& part, std::uint32_t label) { part.receive(data, label); });
}

Request CommunicatorCore::put_signal(int peer, std::uint64_t value, int tag) {
  return post_one(PointToPointCall::put_signal, peer, tag,
                  [&](Part& part, std::uint32_t label) { part.put_signal(value, label); });
}

Request CommunicatorCore::wait_signal(int peer, std::uint64_t& value, int tag) {
  return post_one(PointToPointCall::wait_signal, peer, tag,
                  [&](Part& part, std::uint32_t label) { part.wait_signal(value, label); });
}

// All neighbours are checked before a record is taken. A side with no bytes has no message.
OperationRecord& CommunicatorCore::prepare_sendrecv(std::span<const Neighbour> neighbours) {
  for (const Neighbour& neighbour : neighbours) check_neighbour(neighbour, group_);
  OperationRecord& record = begin_parts(PointToPointCall::sendrecv);
  for (const Neighbour& neighbour : neighbours) {
    Part& part = record.parts.add();
    part.member = static_cast<std::size_t>(neighbour.rank);
    if (neighbour.out.bytes() > 0) part.send(neighbour.out, label_for(neighbour.out_tag, ""));
    if (neighbour.in.bytes() > 0) part.receive(neighbour.in, label_for(neighbour.in_tag, ""));
  }
  return record;
}

void CommunicatorCore::drop(OperationRecord& prototype) noexcept {
  prototype.held = false;
  recycle(prototype);
}

// The prototype of a Plan stays as it was made; each start posts a copy of its arguments.
Request CommunicatorCore::post_like(const OperationRecord& prototype) {
  OperationRecord& record = take_record();
  record.ordered = prototype.ordered;
  if (prototype.ordered) {
    record.posted = prototype.posted;
    return post(record);
  }
  record.call = prototype.call;
  record.parts.clear();
  for (std::size_t i = 0; i < prototype.parts.size(); ++i) {
    record.parts.add().describe_as(prototype.parts[i]);
  }
  return post_parts(record);
}

// For the communicator's own needs: bytes as i64, whose number is a multiple of eight.
void CommunicatorCore::allgather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) {
  post(prepare_allgather({mine.data(), ElementType::i64, 1, mine.size(), mine.size()},
                         {all.data(), ElementType::i64, 1, all.size(), all.size()}, {}))
      .wait();
}

std::vector<Block> CommunicatorCore::share(Block mine) {
  struct Extent {
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  const ArenaCore& arena = world_->arena_core();
  Extent own{.offset = 0, .bytes = mine.bytes()};
  if (own.bytes > 0) own.offset = arena.offset_of(arena.resolve(mine.data, own.bytes), own.bytes);
  require(own.offset != shm::private_memory, "share",
          "the memory does not lie in this rank's arena");
  std::vector<Extent> ranges(group_.count());
  allgather_bytes(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(ranges)));
  // Every process maps a peer's arena at an address of its own: offsets hold everywhere.
  std::vector<Block> blocks(group_.count());
  for (std::size_t r = 0; r < blocks.size(); ++r) {
    const int rank = group_.members[r].world_rank;
    if (!world_->same_node(rank)) continue;
    std::byte* const data = world_->peer(rank).memory->arena().base() + ranges[r].offset;
    blocks[r] = {data, mine.type, 1, ranges[r].bytes, ranges[r].bytes};
  }
  return blocks;
}

}  // namespace rondo::transport
