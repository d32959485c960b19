#include "schemes/lazy_controller.hpp"

#include <algorithm>

namespace rondo::sync {

ProbeTests test_probe(const ProbeProducts& products, std::int64_t iterations) {
  return {products.last_sum - products.last_last >= 0.0,
          static_cast<double>(iterations) * products.last_last <= products.sum_sum};
}

std::int64_t next_interval(LazyController controller, const WindowTests& tests,
                           std::int64_t interval, std::int64_t max_interval) {
  bool grow = tests.last_probe.angle && tests.last_probe.magnitude;
  bool shrink = !tests.last_probe.angle && !tests.last_probe.magnitude;
  if (controller == LazyController::every_layer) {
    grow = tests.angles_passed == tests.probes;
    shrink = 2 * (tests.probes - tests.angles_passed) > tests.probes;
  }
  if (grow) ++interval;
  if (shrink) --interval;
  interval = std::max<std::int64_t>(interval, 1);
  return max_interval == 0 ? interval : std::min(interval, max_interval);
}

}  // namespace rondo::sync
