#include <rondo/transport/communicator.hpp>

#include <utility>

#include "communicator_core.hpp"

namespace rondo::transport {

Communicator::Communicator(std::shared_ptr<CommunicatorCore> core) noexcept
    : core_(std::move(core)) {}

Communicator::~Communicator() = default;

int Communicator::rank() const noexcept { return core_->group().rank; }

int Communicator::size() const noexcept { return core_->group().size(); }

Communicator Communicator::split(int color, int key) {
  return Communicator(core_->split(color, key));
}

Request Communicator::barrier() { return core_->barrier(); }

Request Communicator::allreduce(ConstBlock in, Block out, ReduceOp op) {
  return core_->allreduce(in, out, op);
}

Request Communicator::reduce(ConstBlock in, Block out, int root, ReduceOp op) {
  return core_->reduce(in, out, root, op);
}

Request Communicator::reduce_scatter(ConstBlock in, Block out, ReduceOp op,
                                     std::span<const std::size_t> counts) {
  return core_->reduce_scatter(in, out, op, counts);
}

Request Communicator::broadcast(Block data, int root) { return core_->broadcast(data, root); }

Request Communicator::allgather(ConstBlock in, Block out, std::span<const std::size_t> counts) {
  return core_->allgather(in, out, counts);
}

Request Communicator::alltoall(ConstBlock in, Block out) { return core_->alltoall(in, out); }

Request Communicator::send(ConstBlock data, int peer, int tag) {
  return core_->send(data, peer, tag);
}

Request Communicator::recv(Block data, int peer, int tag) { return core_->recv(data, peer, tag); }

Request Communicator::sendrecv(std::span<const Neighbour> neighbours) {
  return core_->sendrecv(neighbours);
}

Request Communicator::put_signal(int peer, std::uint64_t value, int tag) {
  return core_->put_signal(peer, value, tag);
}

Request Communicator::wait_signal(int peer, std::uint64_t& value, int tag) {
  return core_->wait_signal(peer, value, tag);
}

std::vector<Block> Communicator::share(Block mine) { return core_->share(mine); }

}  // namespace rondo::transport
