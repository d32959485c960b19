#pragma once

#include <cstdint>
#include <string>

#include <rondo/transport/element.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "memory/control_block.hpp"
#include "recorder/log.hpp"

// The names of things in messages and flight records.

namespace rondo::transport {

[[nodiscard]] const char* name_of(shm::Collective collective) noexcept;
[[nodiscard]] const char* name_of(PointToPointCall call) noexcept;
[[nodiscard]] const char* name_of(ElementType type) noexcept;
[[nodiscard]] const char* name_of(ReduceOp op) noexcept;
[[nodiscard]] const char* name_of(Stage stage) noexcept;
[[nodiscard]] const char* name_of(Waiting waiting) noexcept;

/// Has the operation a ReduceOp?
[[nodiscard]] bool reduces(shm::Collective collective) noexcept;

/// "allreduce #12 of 1024 f32 (sum)"; `number` counts the communicator's operations from 1.
[[nodiscard]] std::string describe(const shm::Fingerprint& fingerprint, std::uint64_t number);

/// The text of an Error, without what its code adds: a rank that is told adds that again.
[[nodiscard]] std::string text_of(const Error& error);

/// Notes for peers why this rank fails; without memory, what the code adds stays in the text.
void write_note(shm::FailureNote& note, const Error& error) noexcept;

}  // namespace rondo::transport
