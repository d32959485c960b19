// Point-to-point operations: their arguments become parts, handed to the links at once.

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "api/arena_core.hpp"
#include "core/communicator_core.hpp"
#include "core/names.hpp"
#include "core/world_core.hpp"

namespace rondo::transport {
namespace {

// The text is put together only when it is needed: posting allocates nothing.
template <typename... Parts>
[[noreturn]] void refuse(const char* call, const Parts&... parts) {
  std::ostringstream text;
  text << "rondo::transport: " << call << ": ";
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

std::size_t member_for(const Group& group, int peer, const char* call) {
  if (peer < 0 || peer >= group.size()) {
    refuse(call, "peer ", peer, " is not one of ", group.size(), " ranks");
  }
  return static_cast<std::size_t>(peer);
}

std::uint32_t label_for(int tag, const char* call) {
  if (tag < 0 || tag >= Communicator::max_tag) refuse(call, "tag ", tag, " is not in [0, 2^30)");
  return static_cast<std::uint32_t>(tag);
}

void check_rows(std::size_t rows, std::size_t row_bytes, std::size_t stride_bytes) {
  if (rows > 1 && stride_bytes < row_bytes) refuse("sendrecv", "rows overlap: stride < row");
}

}  // namespace

OperationRecord& CommunicatorCore::begin_parts(PointToPointCall call) {
  OperationRecord& record = take_record();
  record.parts.clear();
  record.call = call;
  record.ordered = false;
  record.lost_since.reset();
  record.stamp = {};
  return record;
}

Request CommunicatorCore::post_parts(OperationRecord& record) {
  record.held = true;
  if (failure_) return fail_at_once(record);
  record.stage = Stage::running;
  auto& operation = record.storage.emplace<PointToPoint>(group_, record.parts);
  record.operation = &operation;
  record_parts(record);
  if (operation.is_done()) {  // most signals and small sends are: they need no more progress
    group_.counters->operations += 1;
    record.end_untimed();
  } else {
    record.listed = true;
    parts_.push_back(&record);
  }
  return {shared_from_this(), &record};
}

bool CommunicatorCore::cancel(OperationRecord& record) noexcept {
  const bool receives =
      record.call == PointToPointCall::recv || record.call == PointToPointCall::wait_signal;
  if (record.ordered || !receives || record.finished()) return false;
  std::erase(parts_, &record);
  record.held = false;
  give_up(record);
  return true;
}

bool CommunicatorCore::step_parts() {
  bool moved = false;
  for (OperationRecord* record : parts_) {
    if (record->operation->step(group_, record->posted) != Progress::done) continue;
    record->enter(Stage::complete);
    moved = true;
  }
  if (!moved) return false;
  std::erase_if(parts_, [this](OperationRecord* record) {
    if (record->stage != Stage::complete) return false;
    group_.counters->operations += 1;
    record->listed = false;
    recycle(*record);
    return true;
  });
  return true;
}

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

OperationRecord& CommunicatorCore::prepare_sendrecv(std::span<const Neighbour> neighbours) {
  for (const Neighbour& neighbour : neighbours) {
    static_cast<void>(member_for(group_, neighbour.rank, "sendrecv"));
    static_cast<void>(label_for(neighbour.out_tag, "sendrecv"));
    static_cast<void>(label_for(neighbour.in_tag, "sendrecv"));
    check_rows(neighbour.out.rows, neighbour.out.row_bytes, neighbour.out.stride_bytes);
    check_rows(neighbour.in.rows, neighbour.in.row_bytes, neighbour.in.stride_bytes);
  }
  OperationRecord& record = begin_parts(PointToPointCall::sendrecv);
  for (const Neighbour& neighbour : neighbours) {
    Part& part = record.parts.add();
    part.member = static_cast<std::size_t>(neighbour.rank);
    if (neighbour.out.bytes() > 0) part.send(neighbour.out, label_for(neighbour.out_tag, ""));
    if (neighbour.in.bytes() > 0) part.receive(neighbour.in, label_for(neighbour.in_tag, ""));
  }
  return record;
}

std::vector<Block> CommunicatorCore::share(Block mine) {
  struct Place {
    std::int64_t offset;
    std::int64_t bytes;
  };
  const std::uint64_t offset = world_->arena_core().offset_of(mine.data, mine.bytes());
  if (offset == shm::private_memory) {
    refuse("share", "the memory does not lie in this rank's arena");
  }
  const Place place{.offset = static_cast<std::int64_t>(offset),
                    .bytes = static_cast<std::int64_t>(mine.bytes())};
  std::vector<Place> places(group_.count());
  const std::size_t bytes = places.size() * sizeof(Place);
  post(prepare_allgather(
           {reinterpret_cast<const std::byte*>(&place), ElementType::i64, 1, sizeof place,
            sizeof place},
           {reinterpret_cast<std::byte*>(places.data()), ElementType::i64, 1, bytes, bytes}, {}))
      .wait();
  std::vector<Block> blocks(group_.count());
  for (std::size_t r = 0; r < blocks.size(); ++r) {
    const int rank = group_.members[r].world_rank;
    if (!world_->same_node(rank)) continue;
    const auto length = static_cast<std::size_t>(places[r].bytes);
    blocks[r] = {world_->peer(rank).memory->arena().base() + places[r].offset, mine.type, 1, length,
                 length};
  }
  return blocks;
}

}  // namespace rondo::transport
