#include <rondo/transport/team.hpp>

namespace rondo::transport {

Team::~Team() = default;

}  // namespace rondo::transport
