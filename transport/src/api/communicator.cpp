// Communicator and the handles that its operations return, Request and Plan: a thin layer over
// CommunicatorCore, where everything happens. A handle refers to a record in the core's pool.
//
// Every call holds the World's lock, which lets in one thread at a time (WorldLock).

#include <rondo/transport/communicator.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <rondo/transport/request.hpp>

#include "communicator/communicator_core.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {

namespace {

// Posts what `prepare` makes of the arguments of a call.
template <typename... Parameters, typename... Arguments>
Request post(CommunicatorCore& core, OperationRecord& (CommunicatorCore::*prepare)(Parameters...),
             const Arguments&... arguments) {
  const std::lock_guard entry(core.world().lock());
  return core.post((core.*prepare)(arguments...));
}

}  // namespace

Communicator::Communicator(std::shared_ptr<CommunicatorCore> core) noexcept
    : core_(std::move(core)) {}

Communicator::~Communicator() = default;

int Communicator::rank() const noexcept { return core_->group().rank; }

int Communicator::size() const noexcept { return core_->group().size(); }

std::vector<int> Communicator::members() const {
  std::vector<int> ranks;
  for (const Member& member : core_->group().members) ranks.push_back(member.world_rank);
  return ranks;
}

Communicator Communicator::split(int color, int key) {
  const std::lock_guard entry(core_->world().lock());
  return Communicator(core_->split(color, key));
}

std::optional<Communicator> Communicator::split(std::optional<int> color, int key) {
  const std::lock_guard entry(core_->world().lock());
  std::shared_ptr<CommunicatorCore> part = core_->split(color, key);
  if (part == nullptr) return std::nullopt;
  return Communicator(std::move(part));
}

Communicator Communicator::dup() { return split(0, rank()); }

Request Communicator::barrier() { return post(*core_, &CommunicatorCore::prepare_barrier); }

Request Communicator::allreduce(ConstBlock in, Block out, ReduceOp op) {
  return post(*core_, &CommunicatorCore::prepare_allreduce, in, out, op);
}

Request Communicator::allreduce_coalesced(std::span<const Block> arrays, ReduceOp op) {
  return post(*core_, &CommunicatorCore::prepare_coalesced, arrays, op);
}

Request Communicator::reduce(ConstBlock in, Block out, int root, ReduceOp op) {
  return post(*core_, &CommunicatorCore::prepare_reduce, in, out, root, op);
}

Request Communicator::reduce_scatter(ConstBlock in, Block out, ReduceOp op,
                                     std::span<const std::size_t> counts) {
  return post(*core_, &CommunicatorCore::prepare_reduce_scatter, in, out, op, counts);
}

Request Communicator::broadcast(Block data, int root) {
  return post(*core_, &CommunicatorCore::prepare_broadcast, data, root);
}

Request Communicator::allgather(ConstBlock in, Block out, std::span<const std::size_t> counts) {
  return post(*core_, &CommunicatorCore::prepare_allgather, in, out, counts);
}

Request Communicator::alltoall(ConstBlock in, Block out) {
  return post(*core_, &CommunicatorCore::prepare_alltoall, in, out);
}

Request Communicator::alltoallv(ConstBlock in, std::span<const std::size_t> in_counts, Block out,
                                std::span<const std::size_t> out_counts) {
  return post(*core_, &CommunicatorCore::prepare_alltoallv, in, in_counts, out, out_counts);
}

Request Communicator::gather(ConstBlock in, Block out, int root,
                             std::span<const std::size_t> counts) {
  return post(*core_, &CommunicatorCore::prepare_gather, in, out, root, counts);
}

Request Communicator::scatter(ConstBlock in, Block out, int root,
                              std::span<const std::size_t> counts) {
  return post(*core_, &CommunicatorCore::prepare_scatter, in, out, root, counts);
}

Request Communicator::scan(ConstBlock in, Block out, ReduceOp op) {
  return post(*core_, &CommunicatorCore::prepare_scan, in, out, op, false);
}

Request Communicator::exscan(ConstBlock in, Block out, ReduceOp op) {
  return post(*core_, &CommunicatorCore::prepare_scan, in, out, op, true);
}

// A Plan keeps the record that would be posted as its prototype.

Plan Communicator::plan_allreduce(ConstBlock in, Block out, ReduceOp op) {
  const std::lock_guard entry(core_->world().lock());
  return {core_, core_->prepare_allreduce(in, out, op)};
}

Plan Communicator::plan_reduce_scatter(ConstBlock in, Block out, ReduceOp op,
                                       std::span<const std::size_t> counts) {
  const std::lock_guard entry(core_->world().lock());
  return {core_, core_->prepare_reduce_scatter(in, out, op, counts)};
}

Plan Communicator::plan_broadcast(Block data, int root) {
  const std::lock_guard entry(core_->world().lock());
  return {core_, core_->prepare_broadcast(data, root)};
}

Plan Communicator::plan_allgather(ConstBlock in, Block out, std::span<const std::size_t> counts) {
  const std::lock_guard entry(core_->world().lock());
  return {core_, core_->prepare_allgather(in, out, counts)};
}

Plan Communicator::plan_sendrecv(std::span<const Neighbour> neighbours) {
  const std::lock_guard entry(core_->world().lock());
  return {core_, core_->prepare_sendrecv(neighbours)};
}

Request Communicator::send(ConstBlock data, int peer, int tag) {
  const std::lock_guard entry(core_->world().lock());
  return core_->send(data, peer, tag);
}

Request Communicator::recv(Block data, int peer, int tag) {
  const std::lock_guard entry(core_->world().lock());
  return core_->recv(data, peer, tag);
}

Request Communicator::sendrecv(std::span<const Neighbour> neighbours) {
  const std::lock_guard entry(core_->world().lock());
  return core_->post_parts(core_->prepare_sendrecv(neighbours));
}

Request Communicator::put_signal(int peer, std::uint64_t value, int tag) {
  const std::lock_guard entry(core_->world().lock());
  return core_->put_signal(peer, value, tag);
}

Request Communicator::wait_signal(int peer, std::uint64_t& value, int tag) {
  const std::lock_guard entry(core_->world().lock());
  return core_->wait_signal(peer, value, tag);
}

std::vector<Block> Communicator::share(Block mine) {
  const std::lock_guard entry(core_->world().lock());
  return core_->share(mine);
}

Request::Request(std::shared_ptr<CommunicatorCore> core, OperationRecord* record) noexcept
    : core_(std::move(core)), record_(record) {}

Request::Request(Request&& other) noexcept
    : core_(std::move(other.core_)), record_(std::exchange(other.record_, nullptr)) {}

// The old operation is waited for first: its buffers may be gone afterwards.
Request& Request::operator=(Request&& other) noexcept {
  if (this == &other) return *this;
  release();
  core_ = std::move(other.core_);
  record_ = std::exchange(other.record_, nullptr);
  return *this;
}

Request::~Request() { release(); }

void Request::release() noexcept {
  OperationRecord* const record = std::exchange(record_, nullptr);
  if (record == nullptr || core_->world().lock().is_copy()) return;
  const std::lock_guard entry(core_->world().lock());
  core_->release(*record);
}

// Peers are checked only when progress did not end the operation.
bool Request::test() {
  if (record_ == nullptr) return true;
  const std::lock_guard entry(core_->world().lock());
  if (!record_->finished()) {
    // As long as something arrives, no rank gives up.
    core_->world().progress();
    const std::uint64_t moves = core_->world().moves();
    if (std::exchange(record_->moves_seen, moves) != moves && record_->loss) {
      record_->loss->quiet_since.reset();
    }
    if (!record_->finished()) core_->check_peers(*record_);
    if (record_->finished()) {
      record_->stamp.end();
    }
  }
  if (record_->finished()) core_->world().stalls().end(*record_);
  if (record_->stage == Stage::failed) throw Error(core_->failure().value());
  return record_->stage == Stage::complete;
}

bool Request::finished() const noexcept {
  if (record_ == nullptr || core_->world().lock().is_copy()) return true;
  const std::lock_guard entry(core_->world().lock());
  return record_->finished();
}

void Request::wait() {
  if (record_ == nullptr) return;
  const std::lock_guard entry(core_->world().lock());
  static_cast<void>(core_->wait(*record_, {}));
}

void Request::wait(const std::function<bool()>& has_moved) {
  if (record_ == nullptr) return;
  const std::lock_guard entry(core_->world().lock());
  static_cast<void>(core_->wait(*record_, {.has_moved = &has_moved}));
}

bool Request::wait_for(std::chrono::nanoseconds limit) {
  if (record_ == nullptr) return true;
  const std::lock_guard entry(core_->world().lock());
  return core_->wait(*record_, {.limit = limit});
}

void Request::cancel() noexcept {
  if (record_ == nullptr || core_->world().lock().is_copy()) return;
  const std::lock_guard entry(core_->world().lock());
  if (core_->cancel(*record_)) record_ = nullptr;
}

std::size_t Request::received_bytes() const noexcept {
  if (record_ == nullptr || core_->world().lock().is_copy()) return 0;
  const std::lock_guard entry(core_->world().lock());
  if (record_->ordered || record_->stage != Stage::complete) return 0;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < record_->parts.size(); ++i) {
    if (record_->parts[i].signal == nullptr) bytes += record_->parts[i].received.bytes;
  }
  return bytes;
}

std::error_code Request::status() const noexcept {
  if (record_ == nullptr || core_->world().lock().is_copy()) return {};
  const std::lock_guard entry(core_->world().lock());
  return record_->stage == Stage::failed ? core_->failure().value().code() : std::error_code();
}

void wait_all(std::span<Request> requests) {
  for (Request& request : requests) request.wait();
}

bool wait_all_for(std::span<Request> requests, std::chrono::nanoseconds limit) {
  // A limit may be the greatest that there is: no time is added to it.
  const auto begin = std::chrono::steady_clock::now();
  return std::ranges::all_of(requests, [begin, limit](Request& request) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    return request.wait_for(std::max<std::chrono::nanoseconds>(limit - waited, {}));
  });
}

std::optional<std::size_t> wait_any(std::span<Request> requests) {
  return CommunicatorCore::wait_any(requests, std::nullopt);
}

std::optional<std::size_t> wait_any_for(std::span<Request> requests,
                                        std::chrono::nanoseconds limit) {
  return CommunicatorCore::wait_any(requests, limit);
}

Plan::Plan(std::shared_ptr<CommunicatorCore> core, OperationRecord& prototype) noexcept
    : core_(std::move(core)), prototype_(&prototype) {
  prototype.held = true;
}

Plan::Plan(Plan&& other) noexcept
    : core_(std::move(other.core_)), prototype_(std::exchange(other.prototype_, nullptr)) {}

// The previous contents are dropped with `other`.
Plan& Plan::operator=(Plan&& other) noexcept {
  std::swap(core_, other.core_);
  std::swap(prototype_, other.prototype_);
  return *this;
}

Plan::~Plan() {
  if (prototype_ == nullptr || core_->world().lock().is_copy()) return;
  const std::lock_guard entry(core_->world().lock());
  core_->drop(*prototype_);
}

Request Plan::start() {
  const std::lock_guard entry(core_->world().lock());
  return core_->post_like(*prototype_);
}

}  // namespace rondo::transport
