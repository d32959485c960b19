#pragma once

#include <rondo/transport/element.hpp>
#include <rondo/transport/reduce_op.hpp>
#include <rondo/transport/world.hpp>

#include "fabric/point_to_point.hpp"
#include "core/stage.hpp"
#include "shm/layout.hpp"

// What things are called in messages and flight records.

namespace rondo::transport {

[[nodiscard]] const char* name_of(shm::Collective collective) noexcept;
[[nodiscard]] const char* name_of(PointToPointCall call) noexcept;
[[nodiscard]] const char* name_of(ElementType type) noexcept;
[[nodiscard]] const char* name_of(ReduceOp op) noexcept;
[[nodiscard]] const char* name_of(Stage stage) noexcept;
[[nodiscard]] const char* name_of(Waiting waiting) noexcept;

/// Has the operation a ReduceOp?
[[nodiscard]] bool reduces(shm::Collective collective) noexcept;

}  // namespace rondo::transport
