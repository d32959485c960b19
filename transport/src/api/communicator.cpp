#include <rondo/transport/communicator.hpp>

#include <utility>

#include "core/communicator_core.hpp"

namespace rondo::transport {

Communicator::Communicator(std::shared_ptr<CommunicatorCore> core) noexcept
    : core_(std::move(core)) {}

Communicator::~Communicator() = default;

int Communicator::rank() const noexcept { return core_->group().rank; }

int Communicator::size() const noexcept { return core_->group().size(); }

Communicator Communicator::split(int color, int key) {
  return Communicator(core_->split(color, key));
}

Request Communicator::barrier() { return core_->post(core_->prepare_barrier()); }

Request Communicator::allreduce(ConstBlock in, Block out, ReduceOp op) {
  return core_->post(core_->prepare_allreduce(in, out, op));
}

Request Communicator::reduce(ConstBlock in, Block out, int root, ReduceOp op) {
  return core_->post(core_->prepare_reduce(in, out, root, op));
}

Request Communicator::reduce_scatter(ConstBlock in, Block out, ReduceOp op,
                                     std::span<const std::size_t> counts) {
  return core_->post(core_->prepare_reduce_scatter(in, out, op, counts));
}

Request Communicator::broadcast(Block data, int root) {
  return core_->post(core_->prepare_broadcast(data, root));
}

Request Communicator::allgather(ConstBlock in, Block out, std::span<const std::size_t> counts) {
  return core_->post(core_->prepare_allgather(in, out, counts));
}

Request Communicator::alltoall(ConstBlock in, Block out) {
  return core_->post(core_->prepare_alltoall(in, out));
}

Plan Communicator::plan_allreduce(ConstBlock in, Block out, ReduceOp op) {
  return {core_, core_->prepare_allreduce(in, out, op)};
}

Plan Communicator::plan_reduce_scatter(ConstBlock in, Block out, ReduceOp op,
                                       std::span<const std::size_t> counts) {
  return {core_, core_->prepare_reduce_scatter(in, out, op, counts)};
}

Plan Communicator::plan_broadcast(Block data, int root) {
  return {core_, core_->prepare_broadcast(data, root)};
}

Plan Communicator::plan_allgather(ConstBlock in, Block out, std::span<const std::size_t> counts) {
  return {core_, core_->prepare_allgather(in, out, counts)};
}

Plan Communicator::plan_sendrecv(std::span<const Neighbour> neighbours) {
  return {core_, core_->prepare_sendrecv(neighbours)};
}

Request Communicator::send(ConstBlock data, int peer, int tag) {
  return core_->send(data, peer, tag);
}

Request Communicator::recv(Block data, int peer, int tag) { return core_->recv(data, peer, tag); }

Request Communicator::sendrecv(std::span<const Neighbour> neighbours) {
  return core_->post_parts(core_->prepare_sendrecv(neighbours));
}

Request Communicator::put_signal(int peer, std::uint64_t value, int tag) {
  return core_->put_signal(peer, value, tag);
}

Request Communicator::wait_signal(int peer, std::uint64_t& value, int tag) {
  return core_->wait_signal(peer, value, tag);
}

std::vector<Block> Communicator::share(Block mine) { return core_->share(mine); }

}  // namespace rondo::transport
