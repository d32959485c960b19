// Tensors in an arena: what lies there is reduced in one pass over shared memory.
//
// PyTorch makes storage by the allocator that is registered for the CPU. Ours asks the one before
// it, except on a thread that has chosen an arena. A block keeps its World alive until the last
// tensor in it is gone.
//
// oneDNN takes scratch memory by raw_allocate() and gives it back by its address alone, from any
// thread, after the arena was chosen, too. So a table tells which addresses are ours.

#include "arena_allocator.hpp"

#include <pthread.h>

#include <mutex>
#include <unordered_map>
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
  std::size_t bytes;
};

/// The blocks that are in use, by their addresses.
class ArenaBlocks {
 public:
  void add(void* data, ArenaBlock block) {
    const std::lock_guard lock(mutex_);
    blocks_.emplace(data, std::move(block));
  }

  /// The block at `data` and its address; empty if that is not memory of an arena.
  auto take(void* data) {
    const std::lock_guard lock(mutex_);
    return blocks_.extract(data);
  }

  [[nodiscard]] std::mutex& mutex() noexcept { return mutex_; }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, ArenaBlock> blocks_;
};

/// Never destroyed: tensors may be freed at the very end of the process.
ArenaBlocks& arena_blocks() {
  static auto& blocks = *new ArenaBlocks;
  return blocks;
}

/// Frees what was allocated while no arena was chosen. Set once, at import.
c10::DeleterFnPtr free_of_fallback = nullptr;

/// The engine's lock is taken when the table is unlocked again.
void free_block(void* data) {
  auto block = arena_blocks().take(data);
  if (block.empty()) return free_of_fallback(data);
  block.mapped().engine->deallocate(data, block.mapped().bytes);
}

class ArenaAllocator final : public PortableAllocator {
 public:
  explicit ArenaAllocator(c10::Allocator* fallback) : fallback_(fallback) {}

  c10::DataPtr make(std::size_t bytes) const override {
    // A forked child has the arena's pages in common with its parent, and takes none of them.
    if (chosen && bytes >= smallest_block && !chosen->is_forked_copy()) {
      if (void* data = chosen->allocate(bytes)) {
        arena_blocks().add(data, {chosen, bytes});
        return {data, data, free_block, c10::Device(c10::DeviceType::CPU)};
      }
    }
    return fallback_->allocate(bytes);
  }

  // raw_allocate() drops the deleter of its block, so this one frees blocks of an arena and others.
  c10::DeleterFnPtr raw_deleter() const override { return free_block; }

 private:
  c10::Allocator* fallback_;
};

}  // namespace

void install_arena_allocator() {
  c10::Allocator* const fallback = c10::GetCPUAllocator();
  free_of_fallback = fallback->raw_deleter();
  // A fork waits until no thread is in the table: its copy in the child could not be unlocked.
  (void)::pthread_atfork([] { arena_blocks().mutex().lock(); },
                         [] { arena_blocks().mutex().unlock(); },
                         [] { arena_blocks().mutex().unlock(); });
  static ArenaAllocator allocator(fallback);
  constexpr std::uint8_t above_the_default = 1;
  c10::SetCPUAllocator(&allocator, above_the_default);
}

std::shared_ptr<Engine> choose_arena(std::shared_ptr<Engine> engine) {
  return std::exchange(chosen, std::move(engine));
}

}  // namespace rondo::torch_backend
