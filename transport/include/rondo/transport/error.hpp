#pragma once

#include <string>
#include <system_error>

#include <rondo/transport/export.hpp>

namespace rondo::transport {

/// The ways in which a World, or an operation after it was posted, can fail.
enum class Errc {
  peer_lost = 1,      ///< a rank has ended, or left before it took part
  mismatch,           ///< ranks posted different operations
  deadline_exceeded,  ///< a peer is alive, but did not take part in time
  aborted,            ///< some rank called World::abort()
  bootstrap_failed,   ///< the ranks of the job did not find each other
  out_of_memory,      ///< an arena or control segment could not grow
  link_unavailable,   ///< a link to other nodes could not be loaded or opened
};

[[nodiscard]] RONDO_TRANSPORT_API const std::error_category& error_category() noexcept;
[[nodiscard]] RONDO_TRANSPORT_API std::error_code make_error_code(Errc code) noexcept;

/// The peer and the operation that an Error is about.
struct ErrorDetail {
  int rank = -1;               ///< the peer at fault in the World, or -1
  int pid = 0;                 ///< its process, or 0 when unknown
  std::string host = {};       ///< its host, or empty
  std::string operation = {};  ///< the operation that the reporting rank was in
};

/// A failure in flight. what() names the rank, its process and host, the operation, and what to
/// do about it.
///
/// code() compares equal to an Errc. After one the communicator is poisoned: every later call
/// reports the same Error. Ranks of the same node that wait on the communicator, or wait on it
/// later, get an Error with the same code, whose text names this rank and says why it gave up.
class RONDO_TRANSPORT_API Error : public std::system_error {
 public:
  Error(Errc code, const std::string& what, ErrorDetail detail = {});
  [[nodiscard]] const ErrorDetail& detail() const noexcept { return detail_; }

 private:
  ErrorDetail detail_;
};

}  // namespace rondo::transport

template <>
struct std::is_error_code_enum<rondo::transport::Errc> : std::true_type {};
