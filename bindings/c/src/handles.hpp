#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

#include <rondo/rondo.h>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

// Defines the handles of rondo.h, and how each of its functions treats arguments and exceptions.

/// Belongs to a World, or was made by a split.
struct rondo_communicator {
  rondo::transport::Communicator* communicator = nullptr;
  std::unique_ptr<rondo::transport::Communicator> own = {};
};

struct rondo_world {
  explicit rondo_world(rondo::transport::World joined)
      : world(std::move(joined)), communicator{.communicator = &world.communicator()} {}

  rondo::transport::World world;
  rondo_communicator communicator;
  std::mutex mutex = {};  ///< for threads that allocate at the same time
  std::unordered_map<void*, std::size_t> allocations = {};  ///< bytes of each; guarded by mutex
};

struct rondo_request {
  rondo::transport::Request request = {};
};

struct rondo_plan {
  rondo::transport::Plan plan;
};

struct rondo_adopted {
  rondo::transport::AdoptedMemory memory;
};

namespace rondo::c {

/// Remembers the exception being handled as the thread's last error; its status.
[[nodiscard]] rondo_status remember_failure() noexcept;

/// Calls `body`, and turns what it throws into a status: no exception leaves the library.
template <typename Body>
[[nodiscard]] rondo_status guarded(Body&& body) noexcept {
  try {
    body();
    return RONDO_OK;
  } catch (...) {
    return remember_failure();
  }
}

/// The same for functions that return a value, and `failed` after an error.
template <typename Value, typename Body>
[[nodiscard]] Value guarded_value(Value failed, Body&& body) noexcept {
  Value value = failed;
  return guarded([&] { value = body(); }) == RONDO_OK ? value : failed;
}

[[noreturn]] inline void refuse(const std::string& what) {
  throw std::invalid_argument("rondo: " + what);
}

/// Returns what a pointer argument points at, and refuses null; `name` is the argument's.
template <typename T>
[[nodiscard]] T& at(T* pointer, const char* name) {
  if (pointer == nullptr) refuse(std::string("the argument '") + name + "' is a null pointer");
  return *pointer;
}

/// The fields that the caller's version of a structure has; those that it lacks are zero.
template <typename Struct>
[[nodiscard]] Struct read_struct(const Struct& given, const char* name) {
  const std::size_t size = given.struct_size;
  if (size < sizeof(std::size_t)) {
    refuse(std::string("set struct_size of ") + name + " to its size");
  }
  Struct own = {};
  std::memcpy(static_cast<void*>(&own), &given, std::min(size, sizeof own));
  // A field of a newer version that is set would be ignored in silence.
  const auto* bytes = reinterpret_cast<const char*>(&given);
  for (std::size_t i = sizeof own; i < size; ++i) {
    if (bytes[i] != 0) refuse(std::string(name) + " has a field that this version does not know");
  }
  return own;
}

/// Fills as much as the caller's version of a structure has room for.
template <typename Struct>
void write_struct(Struct own, Struct& given, const char* name) {
  const std::size_t size = given.struct_size;
  if (size < sizeof(std::size_t)) {
    refuse(std::string("set struct_size of ") + name + " to its size");
  }
  own.struct_size = size;
  std::memcpy(static_cast<void*>(&given), &own, std::min(size, sizeof own));
}

/// Elements of a buffer of the caller's, checked as far as it can be.
template <typename T, typename Pointer>
[[nodiscard]] std::span<T> elements(Pointer* data, std::size_t count, const char* name) {
  if (count == 0) return {};
  if (data == nullptr) refuse(std::string("the buffer '") + name + "' is a null pointer");
  if (count > std::numeric_limits<std::ptrdiff_t>::max() / sizeof(T)) {
    refuse(std::string("the buffer '") + name + "' cannot have " + std::to_string(count) +
           " elements");
  }
  if (reinterpret_cast<std::uintptr_t>(data) % alignof(T) != 0) {
    refuse(std::string("the buffer '") + name + "' is not aligned to its elements");
  }
  return {static_cast<T*>(data), count};
}

/// Calls body(T{}) with the C++ type of the elements.
template <typename Body>
auto with_type(rondo_type type, Body&& body) {
  switch (type) {
    case RONDO_F32:
      return body(float{});
    case RONDO_F64:
      return body(double{});
    case RONDO_BF16:
      return body(transport::Bfloat16{});
    case RONDO_I32:
      return body(std::int32_t{});
    case RONDO_I64:
      return body(std::int64_t{});
    case RONDO_U8:
      return body(std::uint8_t{});
    case RONDO_F16:
      return body(transport::Float16{});
    case RONDO_I8:
      return body(std::int8_t{});
    case RONDO_I16:
      return body(std::int16_t{});
    case RONDO_U16:
      return body(std::uint16_t{});
    case RONDO_U32:
      return body(std::uint32_t{});
    case RONDO_U64:
      return body(std::uint64_t{});
    default:
      refuse("type " + std::to_string(type) + " is none of RONDO_F32 (0) to RONDO_U64 (11)");
  }
}

}  // namespace rondo::c
