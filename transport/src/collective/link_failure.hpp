#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <utility>

#include "channel.hpp"

namespace rondo::transport {

/// A message to or from a member could not be moved. Thrown by a step of an operation; the
/// communicator makes an Error of it that names the rank, its host and the operation.
class LinkFailure : public std::exception {
 public:
  LinkFailure(std::size_t member, std::string what) : member_(member), what_(std::move(what)) {}
  [[nodiscard]] std::size_t member() const noexcept { return member_; }
  [[nodiscard]] const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::size_t member_;
  std::string what_;
};

/// Throws LinkFailure when `transfer`, to or from `member`, has failed.
inline void throw_if_failed(const Channel& channel, std::size_t member, const Transfer& transfer) {
  if (transfer.failed()) throw LinkFailure(member, channel.link(member).error_text(transfer));
}

}  // namespace rondo::transport
