#include "bench/starting_line.hpp"

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "launch/environment.hpp"

namespace rondo::tools {

StartingLine::StartingLine(transport::World& world, std::size_t buffer_bytes, bool messages)
    : world_(world) {
  if (messages || world.nodes() > 1) meanwhile_ = [this] { world_.progress(); };
  if (on_one_machine(world)) block_.emplace(world, buffer_bytes);
}

void StartingLine::wait() {
  if (block_) {
    block_->barrier(meanwhile_);
  } else {
    world_.communicator().barrier().wait();
  }
}

bool on_one_machine(const transport::World& world) {
  return world.nodes() == 1 || fake_nodes_from_environment() > 1;
}

}  // namespace rondo::tools
