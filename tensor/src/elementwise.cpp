#include <rondo/tensor/elementwise.hpp>

#include <cstddef>

#include "engine_impl.hpp"
#include "kernels/kernels.hpp"
#include "pieces.hpp"
#include "staged.hpp"

namespace rondo::tensor {
namespace {

using Loop = void (*)(const float* from, float* into, std::size_t count);

// Runs `loop` over both views on the team.
void run(Engine::Impl& engine, Loop loop, const View<const float>& from, const View<float>& into) {
  engine.enter();
  for_each_part(engine.threads(), [&](int part) {
    for_each_piece(from.shape, part, engine.threads(), Order::forward, [&](const Piece& piece) {
      loop(from.image(piece.image) + piece.first, into.image(piece.image) + piece.first,
           piece.count);
    });
  });
}

}  // namespace

void backward_relu(Engine& engine, View<const float> y, View<float> dy) {
  require_shape("backward_relu", "dy", dy, y.shape);
  require_shape("backward_relu", "y", y, y.shape);
  run(engine.impl(), kernels().backward_relu, y, dy);
}

void add(Engine& engine, View<const float> from, View<float> into) {
  require_shape("add", "into", into, from.shape);
  require_shape("add", "from", from, from.shape);
  run(engine.impl(), kernels().add, from, into);
}

}  // namespace rondo::tensor
