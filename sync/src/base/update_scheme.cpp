#include <rondo/sync/update_scheme.hpp>

namespace rondo::sync {

UpdateScheme::~UpdateScheme() = default;

}  // namespace rondo::sync
