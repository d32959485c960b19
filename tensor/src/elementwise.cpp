#include <rondo/tensor/elementwise.hpp>

#include <algorithm>
#include <cstddef>

#include "engine_impl.hpp"
#include "kernels/kernels.hpp"
#include "staged.hpp"

namespace rondo::tensor {
namespace {

using Loop = void (*)(const float* from, float* into, std::size_t count);

// Runs `loop` over both views on the team, in fixed cuts that may lie inside an image.
void run(Engine::Impl& engine, Loop loop, const View<const float>& from, const View<float>& into) {
  engine.enter();
  const std::int64_t image = from.shape.image();
  for_each_part(engine.threads(), [&](int part) {
    const Cut elements = cut(from.shape.size(), part, engine.threads());
    for (auto i = elements.first; i < elements.last;) {
      const std::int64_t n = i / image;
      const std::int64_t end = std::min(elements.last, (n + 1) * image);
      loop(from.image(n) + i % image, into.image(n) + i % image, static_cast<std::size_t>(end - i));
      i = end;
    }
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
