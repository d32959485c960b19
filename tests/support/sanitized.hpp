#pragma once

// Does a sanitizer watch this build? What only repeats there, or compares results that the other
// builds compare, may be shorter.

#if defined(__SANITIZE_ADDRESS__)
#define RONDO_ADDRESS_SANITIZED
#elif defined(__SANITIZE_THREAD__)
#define RONDO_THREAD_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RONDO_ADDRESS_SANITIZED
#elif __has_feature(thread_sanitizer)
#define RONDO_THREAD_SANITIZED
#endif
#endif

#if defined(RONDO_ADDRESS_SANITIZED) || defined(RONDO_THREAD_SANITIZED)
#define RONDO_SANITIZED
#endif

namespace rondo::test {

#ifdef RONDO_ADDRESS_SANITIZED
inline constexpr bool address_sanitized = true;
#else
inline constexpr bool address_sanitized = false;
#endif

/// By the address or the thread sanitizer.
#ifdef RONDO_SANITIZED
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace rondo::test
