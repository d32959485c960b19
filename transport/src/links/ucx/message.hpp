#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>

#include "links/link_v1.h"

namespace rondo::transport::ucx {

/// What the link keeps of a message in flight. It lives in the memory that UCX gives to each of
/// its requests, so posting allocates nothing.
struct Message {
  enum class State : std::uint8_t {
    posting,   ///< UCX has not returned from the call that posts it
    ended,     ///< ... and it has ended already
    listed,    ///< in its peer's list; a transfer waits for it
    forgotten  ///< its transfer was given up
  };
  Message* previous;
  Message* next;
  rondo_transfer* transfer;
  std::uint64_t bytes;
  ucs_status_t status;
  State state;
  bool receives;
};

/// As UCX finds a request's memory when it makes it.
void reset(Message& message) noexcept;

/// The end of a transfer.
void complete(rondo_transfer& transfer, ucs_status_t status, std::uint64_t bytes) noexcept;

/// Messages in flight with one peer, each once.
class MessageList {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] Message* first() const noexcept { return first_; }
  void add(Message& message) noexcept;
  void remove(Message& message) noexcept;

 private:
  Message* first_ = nullptr;
};

}  // namespace rondo::transport::ucx
