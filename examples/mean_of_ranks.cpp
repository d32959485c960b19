// Every rank contributes an array; all get the mean. Start it with
//
//   rondo run -n 2 -- mean_of_ranks

#include <cstdio>
#include <memory_resource>
#include <span>
#include <vector>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

int main() {
  auto world = rondo::transport::World::attach();
  auto& ranks = world.communicator();
  std::pmr::vector<float> data(1'000'000, static_cast<float>(world.rank()), &world.arena());

  auto request = ranks.allreduce(std::span(data));
  // ... compute something else meanwhile, and call world.progress() now and then ...
  request.wait();

  for (float& value : data) value /= static_cast<float>(ranks.size());
  std::printf("rank %d of %d: mean %g\n", ranks.rank(), ranks.size(), data.front());
}
