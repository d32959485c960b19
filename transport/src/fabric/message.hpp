#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include "core/channel.hpp"
#include "links/link.hpp"

namespace rondo::transport {

/// A message to or from a member could not be moved. Thrown by a step of an operation; the
/// communicator makes an Error of it that names the rank, its host and the operation.
class LinkFailure : public std::exception {
 public:
  LinkFailure(std::size_t member, std::string what, bool truncated)
      : member_(member), what_(std::move(what)), truncated_(truncated) {}
  [[nodiscard]] std::size_t member() const noexcept { return member_; }
  /// The message was longer than the memory of its receive: ranks differ, none is lost.
  [[nodiscard]] bool truncated() const noexcept { return truncated_; }
  [[nodiscard]] const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::size_t member_;
  std::string what_;
  bool truncated_;
};

/// Throws LinkFailure when `transfer`, to or from `member`, has failed.
inline void throw_if_failed(const Channel& channel, std::size_t member, const Transfer& transfer) {
  if (!transfer.failed()) return;
  throw LinkFailure(member, channel.link(member).error_text(transfer),
                    transfer.error == Transfer::truncated);
}

/// One message of an operation, to or from a member. Lives in its operation, and is cancelled with
/// it: after the destructor no link refers to it or its memory.
///
/// It is used again and again: send or receive, poll ended() until true, then the next.
class Message {
 public:
  Message() = default;
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  ~Message() {
    if (channel_ != nullptr) channel_->cancel(member_, transfer_);
  }

  void send(const Channel& channel, std::size_t member, std::uint64_t sequence, std::size_t step,
            std::span<const std::byte> data) {
    address(channel, member);
    channel.send(member, sequence, step, data, transfer_);
  }
  void receive(const Channel& channel, std::size_t member, std::uint64_t sequence, std::size_t step,
               std::span<std::byte> into) {
    address(channel, member);
    channel.recv(member, sequence, step, into, transfer_);
  }

  /// Is nothing under way (any more)? Throws LinkFailure when it has failed.
  [[nodiscard]] bool ended() const {
    if (transfer_.failed()) throw_if_failed(*channel_, member_, transfer_);
    return !transfer_.pending();
  }
  /// Is it under way, to or from `member`?
  [[nodiscard]] bool waits_for(std::size_t member) const noexcept {
    return transfer_.pending() && member_ == member;
  }

 private:
  void address(const Channel& channel, std::size_t member) noexcept {
    channel_ = &channel;
    member_ = member;
  }

  Transfer transfer_;
  const Channel* channel_ = nullptr;
  std::size_t member_ = 0;
};

/// Is any of `messages` under way, to or from `member`?
template <typename Messages>
[[nodiscard]] bool any_waits_for(const Messages& messages, std::size_t member) noexcept {
  return std::ranges::any_of(
      messages, [member](const Message& message) { return message.waits_for(member); });
}

/// Is none of `messages` under way? Throws LinkFailure when one has failed.
template <typename Messages>
[[nodiscard]] bool all_ended(const Messages& messages) {
  return std::ranges::all_of(messages, [](const Message& message) { return message.ended(); });
}

/// Counts in `ended` those of the messages numbered below `posted` that have ended, the oldest
/// first. Message k is window[k % size]. True when it counted any.
template <typename Window>
bool count_ended(const Window& window, std::size_t size, std::size_t posted, std::size_t& ended) {
  const std::size_t before = ended;
  while (ended < posted && window[ended % size].ended()) ended += 1;
  return ended > before;
}

}  // namespace rondo::transport
