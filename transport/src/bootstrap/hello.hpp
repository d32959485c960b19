#pragma once

#include <sched.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "shm/memory.hpp"

namespace rondo::transport::rendezvous {

/// What two ranks of a node tell each other when they meet, beside four descriptors.
struct Hello {
  std::array<char, 8> magic = {'R', 'O', 'N', 'D', 'O', '0', '0', '1'};
  std::array<char, 16> version = {};  ///< of the library, zero-terminated
  std::array<char, 32> job = {};      ///< hexadecimal
  std::array<char, 64> host = {};     ///< zero-terminated, for messages only
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int32_t pid = 0;
  std::uint32_t waiting = 0;  ///< as WorldOptions::waiting
  std::uint64_t nonce = 0;
  std::uint64_t small_bytes = 0;  ///< must be equal on all ranks: it decides the protocol
  cpu_set_t cpus = {};            ///< where the sender may run
};

/// The sender's memory and itself, for a Hello to hand over.
struct Handles {
  int control = -1;   ///< memfd
  int arena = -1;     ///< memfd
  int process = -1;   ///< pidfd
  int recorder = -1;  ///< memfd
};

struct Greeting {
  Hello hello = {};
  shm::Descriptor control = {};
  shm::Descriptor arena = {};
  shm::Descriptor process = {};
  shm::Descriptor recorder = {};
};

/// Sends `hello` with the descriptors, which stay the caller's. False if the peer is gone, or
/// belongs to another user.
[[nodiscard]] bool send_hello(int socket, const Hello& hello, const Handles& handles);

/// Receives one before `until`; nothing when the peer sent something else or nothing, or belongs
/// to another user.
[[nodiscard]] std::optional<Greeting> receive_hello(int socket,
                                                    std::chrono::steady_clock::time_point until);

}  // namespace rondo::transport::rendezvous
