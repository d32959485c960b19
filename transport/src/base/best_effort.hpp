#pragma once

#include <new>

namespace rondo::transport {

/// Calls `call`, which is of use but may be left out; false when it has run out of memory. For
/// what must not throw: a rank that lacks memory still says that it fails, with fewer words.
template <typename Call>
bool if_memory_allows(Call call) noexcept {
  try {
    call();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace rondo::transport
