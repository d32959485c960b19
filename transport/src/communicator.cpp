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

Request Communicator::allreduce(Block data, ReduceOp op) { return core_->allreduce(data, op); }

Request Communicator::broadcast(Block data, int root) { return core_->broadcast(data, root); }

Request Communicator::allgather(ConstBlock in, Block out, std::span<const std::size_t> counts) {
  return core_->allgather(in, out, counts);
}

}  // namespace rondo::transport
