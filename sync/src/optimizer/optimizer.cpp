#include <rondo/sync/optimizer.hpp>

namespace rondo::sync {

Optimizer::~Optimizer() = default;

}  // namespace rondo::sync
