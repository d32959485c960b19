#include "bootstrap/hmac.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <array>

#include <rondo/transport/error.hpp>

namespace rondo::transport::rendezvous {

std::string hmac_sha256(std::string_view secret, std::string_view message) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> code{};
  unsigned length = 0;
  // An empty view may have a null pointer, which OpenSSL takes for "the key of last time".
  const char* key = secret.empty() ? "" : secret.data();
  if (HMAC(EVP_sha256(), key, static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(), code.data(),
           &length) == nullptr) {
    throw Error(Errc::rendezvous_failed, "rendezvous: OpenSSL cannot compute HMAC-SHA256");
  }
  return {reinterpret_cast<const char*>(code.data()), length};
}

bool equal_in_constant_time(std::string_view left, std::string_view right) noexcept {
  return left.size() == right.size() && CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (::getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count)) {
    throw Error(Errc::rendezvous_failed, "rendezvous: the kernel has no random numbers");
  }
  return bytes;
}

}  // namespace rondo::transport::rendezvous
