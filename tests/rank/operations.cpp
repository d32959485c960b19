#include <cstddef>
#include <cstdio>
#include <memory_resource>
#include <string>

#include <rondo/transport/element.hpp>

#include "modes.hpp"
#include "support/call_buffers.hpp"
#include "support/random_operations.hpp"

namespace rondo::test {

int check_operations(transport::World& world) {
  int checks = 0;
  int wrong = 0;
  const auto check = [&](const std::string& fault) {
    checks += 1;
    if (fault.empty()) return;
    wrong += 1;
    std::fprintf(stderr, "rank %d: %s\n", world.rank(), fault.c_str());
  };
  transport::Communicator& ranks = world.communicator();
  const auto size = static_cast<std::size_t>(world.size());
  // Each type meets one operation of the reductions that are not allreduces.
  const auto chosen = [](CallKind kind, transport::ElementType type, transport::ReduceOp op) {
    return kind == CallKind::allreduce || static_cast<int>(type) % 8 == static_cast<int>(op);
  };
  int root = 0;
  for (const bool arena : {true, false}) {
    auto* memory = arena ? static_cast<std::pmr::memory_resource*>(&world.arena())
                         : std::pmr::get_default_resource();
    for (const Call& call : all_calls()) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, size - 1, size, size + 1,
                                      std::size_t{1000}, std::size_t{20'007}}) {
        root = (root + 1) % world.size();
        check(fault_of_call(ranks, memory, call, count, root));
      }
    }
    for_each_reduction(ranks, memory, 1000, chosen, check);
  }
  RandomOperations operations(world, 1);
  for (int round = 0; round < 60; ++round) {
    operations.round([&](RandomKind /*kind*/) { checks += 1; });  // it throws where one is wrong
  }
  ranks.barrier().wait();
  std::printf("rank %d of %d on %d node(s) by %s: %d checks, %d wrong\n", world.rank(),
              world.size(), world.nodes(), world.route().c_str(), checks, wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace rondo::test
