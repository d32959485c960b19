#include "bench/sampler.hpp"

#include <array>
#include <chrono>
#include <span>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

}  // namespace

void Sampler::sample(BenchOperation& operation, int iterations, int warm_up, BufferUse use,
                     std::vector<double>& times) {
  const int calls = operation.facts().calls;
  own_.clear();
  own_.reserve(static_cast<std::size_t>(iterations));
  for (int i = -warm_up; i < iterations; ++i) {
    if (use != BufferUse::untouched) operation.rewrite();
    line_.wait();
    const auto start = Clock::now();
    operation.run();
    if (use == BufferUse::read_back) operation.read_back();
    const Microseconds time = Clock::now() - start;
    if (i >= 0) own_.push_back(time.count() / calls);
  }
  world_.communicator().allreduce(std::span(own_), transport::ReduceOp::max).wait();
  times.insert(times.end(), own_.begin(), own_.end());
}

std::int64_t Sampler::check(BenchOperation& operation) {
  operation.spoil();
  operation.rewrite();
  line_.wait();
  operation.run();
  std::array<std::int64_t, 1> wrong = {operation.count_wrong()};
  world_.communicator().allreduce(std::span<std::int64_t>(wrong)).wait();
  return wrong[0];
}

}  // namespace rondo::tools
