#pragma once

#include <memory>

#include "engine.hpp"

namespace rondo::torch_backend {

/// From now on PyTorch's allocations on the CPU go through the arena allocator, which passes them
/// on as before, unless the calling thread has chosen an arena. Called once, at import.
void install_arena_allocator();

/// Tensors that the calling thread makes from now on lie in the arena of `engine`'s World, if they
/// have at least 4 KiB; null: as PyTorch does it. Returns what was chosen before.
std::shared_ptr<Engine> choose_arena(std::shared_ptr<Engine> engine);

}  // namespace rondo::torch_backend
