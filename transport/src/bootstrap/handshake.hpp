#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bootstrap/frame.hpp"

namespace rondo::transport::rendezvous {

// How a rank and the store come to trust each other, without telling the secret:
//
//   store -> rank   challenge   protocol, nonce s
//   rank -> store   answer      who I am, nonce r, HMAC(secret, "rank", s, r, who I am)
//   store -> rank   welcome     its host,          HMAC(secret, "store", s, r, its host)
//
// Fresh nonces make a recorded answer worthless; the two labels make one side's proof worthless as
// the other's. The job is part of what is proved. What follows is neither encrypted nor signed.

/// Who a rank says that it is.
struct Introduction {
  std::string job = {};
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::string version = {};  ///< of the library
  std::string host = {};     ///< for messages
  /// Tells the rank's process from others that say to be the same rank: random.
  std::uint64_t process = 0;

  bool operator==(const Introduction&) const = default;
};

/// No frame of the handshake is longer.
inline constexpr std::size_t handshake_cap = 1024;

/// The store's side, for one connection.
class Challenger {
 public:
  Challenger();

  [[nodiscard]] Frame challenge() const;

  /// Who proved to know the secret; nothing for a stranger.
  [[nodiscard]] std::optional<Introduction> verify(const Frame& answer, std::string_view secret);

  /// The reply to an answer that was verified; `host` is the store's.
  [[nodiscard]] Frame welcome(std::string_view host, std::string_view secret) const;

 private:
  std::string store_nonce_;
  std::string rank_nonce_;
};

/// The rank's side.
class Applicant {
 public:
  Applicant();

  /// Nothing when `challenge` is none, or of another protocol.
  [[nodiscard]] std::optional<Frame> answer(const Frame& challenge, const Introduction& self,
                                            std::string_view secret);

  /// The store's host when it proved to know the secret.
  [[nodiscard]] std::optional<std::string> verify(const Frame& welcome,
                                                  std::string_view secret) const;

 private:
  std::string store_nonce_;
  std::string rank_nonce_;
};

}  // namespace rondo::transport::rendezvous
