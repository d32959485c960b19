#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "bootstrap/wire.hpp"

// The job's secret, and how a rank and the store come to trust each other by it.

namespace rondo::transport::bootstrap {

/// A shorter secret could be guessed by an attacker who has recorded a handshake.
inline constexpr std::size_t shortest_secret = 16;

/// The job's secret, from the first of these that is set, without a newline at its end:
///
///   1. RONDO_SECRET_FD   an inherited descriptor; a memfd can be read by several ranks, a pipe
///                        once
///   2. RONDO_SECRET
///   3. ~/.rondo/secret   a file that its owner alone can read (0600)
///
/// Nothing when none is. Throws Error(bootstrap_failed) when one is set, but is not usable.
[[nodiscard]] std::optional<std::string> read_secret();

/// HMAC-SHA256 (RFC 2104): 32 bytes. An empty secret is a secret, too.
[[nodiscard]] std::string hmac_sha256(std::string_view secret, std::string_view message);

/// From the kernel's generator. Both throw Error(bootstrap_failed) when it has none.
[[nodiscard]] std::string random_bytes(std::size_t count);
[[nodiscard]] std::uint64_t random_number();

/// The identity that a rank claims to have.
struct RankIdentity {
  std::string job = {};
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::string version = {};  ///< of the library
  std::string host = {};     ///< for messages
  /// Tells the rank's process from others that say to be the same rank: random.
  std::uint64_t process = 0;

  static auto fields(auto& self) {
    return std::tie(self.job, self.rank, self.size, self.version, self.host, self.process);
  }
  bool operator==(const RankIdentity&) const = default;
};

/// "rank 3 on host node7", fit for an error message.
[[nodiscard]] std::string rank_on_host(const RankIdentity& who);

/// Why `other` cannot be in one World with `self`: another version or size. Empty when it can.
[[nodiscard]] std::string mismatch(const RankIdentity& self, const RankIdentity& other);

// The handshake. Neither side tells the secret:
//
//   store -> rank   challenge   protocol, nonce s
//   rank -> store   answer      who I am, nonce r, HMAC(secret, "rank", s, r, who I am)
//   store -> rank   welcome     its host,          HMAC(secret, "store", s, r, its host)
//
// Fresh nonces make a recorded answer worthless; the two labels make one side's proof worthless as
// the other's. The job is part of what is proved. Later frames are neither encrypted nor signed.

/// No frame of the handshake is longer.
inline constexpr std::size_t handshake_cap = 1024;

/// The store's side, for one connection.
class StoreHandshake {
 public:
  StoreHandshake();

  [[nodiscard]] Frame challenge() const;

  /// The rank that proved to know the secret; nothing if none did.
  [[nodiscard]] std::optional<RankIdentity> verify(const Frame& answer, std::string_view secret);

  /// The reply to an answer that was verified; `host` is the store's.
  [[nodiscard]] Frame welcome(std::string_view host, std::string_view secret) const;

 private:
  std::string store_nonce_;
  std::string rank_nonce_;
};

/// The rank's side.
class RankHandshake {
 public:
  RankHandshake();

  /// Nothing when `challenge` is none, or of another protocol.
  [[nodiscard]] std::optional<Frame> answer(const Frame& challenge, const RankIdentity& self,
                                            std::string_view secret);

  /// The store's host when it proved to know the secret.
  [[nodiscard]] std::optional<std::string> verify(const Frame& welcome,
                                                  std::string_view secret) const;

 private:
  std::string store_nonce_;
  std::string rank_nonce_;
};

}  // namespace rondo::transport::bootstrap
