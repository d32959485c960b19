// Tensors in an arena: what lies there is reduced in one pass over shared memory.
//
// PyTorch makes storage by the allocator that is registered for the CPU. Ours asks the one before
// it, except on a thread that has chosen an arena. A block keeps its World alive until the last
// tensor in it is gone.

#include "arena_allocator.hpp"

#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "portable_allocator.hpp"

namespace rondo::torch_backend {

namespace {

constexpr std::size_t smallest_block = 4096;

thread_local std::shared_ptr<Engine> chosen;

struct ArenaBlock {
  std::shared_ptr<Engine> engine;
  void* data;
  std::size_t bytes;
};

void free_block(void* context) {
  const std::unique_ptr<ArenaBlock> block(static_cast<ArenaBlock*>(context));
  block->engine->deallocate(block->data, block->bytes);
}

class ArenaAllocator final : public PortableAllocator {
 public:
  explicit ArenaAllocator(c10::Allocator* fallback) : fallback_(fallback) {}

  c10::DataPtr make(std::size_t bytes) const override {
    // A forked child has the arena's pages in common with its parent, and takes none of them.
    if (chosen && bytes >= smallest_block && !chosen->is_forked_copy()) {
      if (void* data = chosen->allocate(bytes)) {
        auto block = std::make_unique<ArenaBlock>(ArenaBlock{chosen, data, bytes});
        return {data, block.release(), free_block, c10::Device(c10::DeviceType::CPU)};
      }
    }
    return fallback_->allocate(bytes);
  }

  // For raw_allocate(), which hands out memory without its context; it is never asked for by the
  // code that runs while an arena is chosen.
  c10::DeleterFnPtr raw_deleter() const override { return fallback_->raw_deleter(); }

 private:
  c10::Allocator* fallback_;
};

}  // namespace

void install_arena_allocator() {
  static ArenaAllocator allocator(c10::GetCPUAllocator());
  constexpr std::uint8_t above_the_default = 1;
  c10::SetCPUAllocator(&allocator, above_the_default);
}

std::shared_ptr<Engine> choose_arena(std::shared_ptr<Engine> engine) {
  return std::exchange(chosen, std::move(engine));
}

}  // namespace rondo::torch_backend
