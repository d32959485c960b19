// Which algorithm runs an operation whose ranks are on several nodes.

#include <stdexcept>

#include "communicator_core.hpp"

namespace rondo::transport {

void CommunicatorCore::start_spanning(OperationRecord& record) {
  throw std::logic_error("no algorithm between nodes yet for " + describe(record));
}

}  // namespace rondo::transport
