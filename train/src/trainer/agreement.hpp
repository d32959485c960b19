#pragma once

#include <functional>

namespace rondo::transport {
class World;
}

namespace rondo::train {

/// Runs `work`, which does not communicate, on every rank; when it threw on some rank, throws on
/// all of them: its own error on a rank that has one, else that of the first failing rank, with
/// the rank named in front. ConfigError, DataError and std::invalid_argument keep their types,
/// others become std::runtime_error. Collective.
void agree_on(transport::World& world, const std::function<void()>& work);

}  // namespace rondo::train
