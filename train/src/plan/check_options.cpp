#include "plan/check_options.hpp"

#include <cmath>
#include <stdexcept>
#include <string>

namespace rondo::train {
namespace {

void require(bool possible, const char* what) {
  if (!possible) throw std::invalid_argument(std::string("plan: ") + what);
}

void check(const LinkCost& link) {
  const bool possible = std::isfinite(link.alpha_seconds) && link.alpha_seconds >= 0.0;
  require(possible, "alpha must be a number of seconds, at least 0");
  require(link.bandwidth > 0.0, "bandwidth must be greater than 0");
}

}  // namespace

void check(const PlanOptions& options) {
  check(options.fabric);
  check(options.node);
  require(options.ranks >= 1, "needs at least one rank");
  require(options.batch >= 1, "needs at least one sample in a step");
  require(options.flops >= 0.0, "flops must be at least 0");
  require(options.optimizer_words >= 0, "optimizer_words must be at least 0");
  require(options.pieces >= 1, "needs at least one piece of a batch");
  require(options.threads >= 1, "needs at least one thread of a rank");
  require(options.ranks_per_node >= 1, "needs at least one rank per node");
  require(options.ranks % options.ranks_per_node == 0,
          "ranks must be a multiple of the ranks per node");
}

}  // namespace rondo::train
