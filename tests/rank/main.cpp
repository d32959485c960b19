// A rank of a job, for tests that start ranks on several hosts.
//
//   rondo-test-rank collectives | until-failure | train FILE
//   rondo-test-rank compare FILE FILE
//
// Its rank and its job come from RONDO_COORDINATOR and its companions. RONDO_TEST_PATIENCE is how
// many seconds connecting may take.

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "modes.hpp"

namespace rondo::test {
namespace {

int usage() {
  std::fprintf(stderr, "rondo-test-rank: see the top of its main.cpp for its arguments\n");
  return 2;
}

// Says by which wire, and "ready"; then reduces until something fails, and says "failed at=SECONDS
// rank=R host=H:" and the error's text; the seconds are of the monotonic clock.
int reduce_until_failure(transport::World& world) {
  std::vector<float> data(200'000, 0.0F);
  const auto reduce = [&] { world.communicator().allreduce(std::span(data)).wait(); };
  try {
    reduce();
    std::printf("by %s\nready\n", world.route().c_str());
    std::fflush(stdout);
    while (true) reduce();
  } catch (const transport::Error& error) {
    const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
    std::printf("failed at=%.3f rank=%d host=%s: %s\n", now.count(), error.detail().rank,
                error.detail().host.c_str(), error.what());
  }
  return 0;
}

int run(const std::vector<std::string>& words) {
  constexpr double tolerance = 1e-5;
  if (words.size() == 3 && words[0] == "compare") {
    return compare_dumps(words[1], words[2], tolerance);
  }
  transport::WorldOptions options;
  options.deadline = std::chrono::seconds(60);
  if (const char* patience = std::getenv("RONDO_TEST_PATIENCE"); patience != nullptr) {
    options.bootstrap_deadline = std::chrono::seconds(std::stoi(patience));
  }
  if (words.empty()) return usage();
  transport::World world = transport::World::attach(options);
  if (words[0] == "collectives") return check_operations(world);
  if (words[0] == "until-failure") return reduce_until_failure(world);
  if (words.size() == 2 && words[0] == "train") return train_and_dump(world, words[1]);
  return usage();
}

}  // namespace
}  // namespace rondo::test

int main(int argc, char** argv) {
  try {
    return rondo::test::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rondo-test-rank: %s\n", error.what());
    return 3;
  }
}
