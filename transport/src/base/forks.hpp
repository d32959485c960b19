#pragma once

#include <memory>
#include <utility>

namespace rondo::transport {

// fork() copies a World into the child, but not its threads, and other threads may have held its
// locks. The ranks that it talks to are the parent's. So a child leaves such copies alone: it
// neither uses nor ends them, and the kernel frees their memory when the child ends. Objects that
// the child makes itself are its own.

namespace detail {
extern int fork_count;
}

/// How many forks lie between the process that loaded this library and this one. An object is this
/// process's own as long as this number is the same as when it was made.
[[nodiscard]] inline int forks() noexcept { return detail::fork_count; }

/// Makes an object that is destroyed only by the process that made it.
template <typename T, typename... Arguments>
std::shared_ptr<T> make_in_this_process(Arguments&&... arguments) {
  const auto destroy = [made = forks()](T* object) {
    if (made == forks()) delete object;
  };
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), destroy);
}

}  // namespace rondo::transport
