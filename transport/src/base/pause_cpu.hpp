#pragma once

namespace rondo::transport {

/// Tells the processor that this thread looks at a word again and again.
inline void pause_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace rondo::transport
