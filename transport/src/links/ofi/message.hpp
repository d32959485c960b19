#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include <rdma/fabric.h>

#include "links/link_v1.h"
#include "links/ofi/memory.hpp"

namespace rondo::transport::ofi {

/// What the link knows of one message, from post to libfabric's last word on it.
struct Message {
  enum class Kind : std::uint8_t { send, recv };
  /// abandoned: its caller has its answer, its memory is out of libfabric's reach, and only the
  /// context must not be used again before libfabric has reported it, if it ever does.
  enum class State : std::uint8_t { unused, queued, posted, abandoned };

  fi_context2 context{};               // first: libfabric gives its address back
  rondo_transfer* transfer = nullptr;  ///< null when the caller has its answer already
  void* data = nullptr;                ///< a send's is only read
  std::size_t bytes = 0;
  std::uint64_t tag = 0;
  std::uint64_t ignored = 0;  ///< bits of the tag that a receive does not compare
  Memory::Lease lease;
  Message* next = nullptr;
  std::int32_t peer = 0;
  Kind kind = Kind::send;
  State state = State::unused;
  bool cancelled = false;
  bool discards = false;  ///< a receive whose messages nobody wants; posted again and again
};
static_assert(std::is_standard_layout_v<Message>);

/// Messages wait here in the order posted while libfabric cannot take them.
class MessageQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] Message& front() const noexcept { return *first_; }

  void push(Message& message) noexcept {
    message.next = nullptr;
    *(first_ == nullptr ? &first_ : &last_->next) = &message;
    last_ = &message;
  }
  void push_front(Message& message) noexcept {
    message.next = first_;
    if (first_ == nullptr) last_ = &message;
    first_ = &message;
  }
  void pop() noexcept { first_ = first_->next; }

  void remove(const Message& message) noexcept {
    Message* before = nullptr;
    for (Message* at = first_; at != nullptr; before = at, at = at->next) {
      if (at != &message) continue;
      *(before == nullptr ? &first_ : &before->next) = at->next;
      if (last_ == at) last_ = before;
      return;
    }
  }

 private:
  Message* first_ = nullptr;
  Message* last_ = nullptr;
};

/// Messages are used again; memory grows to the most that were in flight at once.
class MessagePool {
 public:
  /// Throws std::bad_alloc.
  [[nodiscard]] Message& take();
  void give_back(Message& message) noexcept;
  [[nodiscard]] bool owns(const void* message) const noexcept;

  /// Calls `visit` with each message that is in use; it may give it back.
  template <typename Visit>
  void for_each(Visit visit) {
    for (const auto& block : blocks_) {
      for (std::size_t i = 0; i < block_size; ++i) {
        if (block[i].state != Message::State::unused) visit(block[i]);
      }
    }
  }

 private:
  static constexpr std::size_t block_size = 64;

  std::vector<std::unique_ptr<Message[]>> blocks_;
  Message* free_ = nullptr;
};

}  // namespace rondo::transport::ofi
