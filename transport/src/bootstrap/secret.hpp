#pragma once

#include <optional>
#include <string>

namespace rondo::transport::rendezvous {

/// A secret has at least so many bytes: whoever sees a handshake may try to guess it.
inline constexpr std::size_t shortest_secret = 16;

/// The job's secret, from the first of these that is set, without a newline at its end:
///
///   1. RONDO_SECRET_FD   an inherited descriptor; a memfd can be read by several ranks, a pipe
///   once
///   2. RONDO_SECRET
///   3. ~/.rondo/secret   a file that its owner alone can read (0600)
///
/// Nothing when none is. Throws Error(rendezvous_failed) when one is set, but is not usable.
[[nodiscard]] std::optional<std::string> read_secret();

}  // namespace rondo::transport::rendezvous
