#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <utility>

#include "core/channel.hpp"

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

}  // namespace rondo::transport
