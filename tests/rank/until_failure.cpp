#include <chrono>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "modes.hpp"

namespace rondo::test {

int reduce_until_failure(transport::World& world) {
  std::vector<float> data(10'000, 0.0F);
  const auto reduce = [&] { world.communicator().allreduce(std::span(data)).wait(); };
  try {
    reduce();
    std::printf("ready\n");
    std::fflush(stdout);
    while (true) reduce();
  } catch (const transport::Error& error) {
    const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
    std::printf("failed at=%.3f rank=%d host=%s: %s\n", now.count(), error.detail().rank,
                error.detail().host.c_str(), error.what());
  }
  return 0;
}

}  // namespace rondo::test
