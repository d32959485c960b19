#include "support/simulated_step.hpp"

#include <algorithm>
#include <stdexcept>

namespace rondo::test {

std::vector<double> simulate_steps(SimulatedHierarchy& ranks, const SimulatedWork& work,
                                   std::span<const double> slowness, std::size_t steps) {
  if (slowness.size() != ranks.ranks()) {
    throw std::invalid_argument("every rank needs a slowness");
  }
  std::vector<double> begin(slowness.size(), 0.0);
  std::vector<double> ends;
  while (ends.size() < steps) {
    std::vector<double> network = begin;  // until when each rank's reductions go on
    for (const SimulatedWork::Bucket& bucket : work.buckets) {
      std::vector<double> ready(slowness.size());
      for (std::size_t r = 0; r < ready.size(); ++r) {
        ready[r] = std::max(network[r], begin[r] + bucket.final_seconds * slowness[r]);
      }
      network = ranks.allreduce(bucket.bytes, ready);
    }
    for (std::size_t r = 0; r < begin.size(); ++r) {
      begin[r] = std::max(network[r], begin[r] + work.backward_end * slowness[r]) +
                 work.update_seconds * slowness[r];
    }
    ends.push_back(*std::ranges::max_element(begin));
  }
  return ends;
}

}  // namespace rondo::test
