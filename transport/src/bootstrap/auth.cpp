// Where the job's secret comes from, and the handshake by which rank and store prove to know it.
//
// A secret that others may have read, or that can be guessed, is refused with the command that
// repairs it: the store would otherwise look protected and not be. The proofs are HMAC-SHA256 of
// OpenSSL, compared in a time that does not depend on where they differ.

#include "bootstrap/auth.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include <rondo/transport/error.hpp>

#include "memory/memory.hpp"

namespace rondo::transport::bootstrap {
namespace {

constexpr std::string_view store_protocol = "RONDOST3";
constexpr std::size_t nonce_bytes = 32;
constexpr std::size_t longest_name = 255;  // a host's, by POSIX

[[noreturn]] void refuse(const std::string& what) {
  throw Error(Errc::bootstrap_failed, "bootstrap: " + what);
}

[[noreturn]] void refuse_unreadable(const std::string& source) {
  refuse("the job's secret cannot be read from " + source + ": " +
         std::generic_category().message(errno));
}

std::string read_all(int descriptor, const std::string& source) {
  constexpr std::size_t most = 4096;
  std::string bytes;
  std::array<char, most> buffer{};
  while (bytes.size() < most) {
    // A file's offset is shared with the other ranks that inherited it; a pipe has none.
    ssize_t count =
        ::pread(descriptor, buffer.data(), buffer.size(), static_cast<off_t>(bytes.size()));
    if (count < 0 && errno == ESPIPE) count = ::read(descriptor, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse_unreadable(source);
    if (count == 0) break;
    bytes.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return bytes;
}

// Editors and `echo` end a text with a newline, which is no part of the secret.
std::string checked(std::string secret, const std::string& source) {
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.size() < shortest_secret) {
    refuse("the job's secret in " + source + " has fewer than " + std::to_string(shortest_secret) +
           " bytes; make one with: openssl rand -hex 32");
  }
  return secret;
}

// The launcher passes a memfd, so that the secret stands in no environment and no command line.
std::string secret_from_descriptor(std::string_view text) {
  int descriptor = -1;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, descriptor);
  if (error != std::errc{} || rest != end || descriptor < 0) {
    refuse("RONDO_SECRET_FD='" + std::string(text) + "' is not a descriptor's number");
  }
  const std::string source = "RONDO_SECRET_FD=" + std::string(text);
  // It stays open for a later World, but the programs that this one starts must not have it.
  if (::fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0) {
    refuse("the job's secret cannot be read, because " + source +
           " is not open; let the program that has started this one leave the launcher's "
           "descriptors open (in Python close_fds=False), or unset it and set RONDO_SECRET");
  }
  return checked(read_all(descriptor, source), source);
}

std::optional<std::string> secret_from_file(const std::string& path) {
  const shm::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  // No such file is no error: the job may be on this host alone, and need no secret.
  if (!file.valid() && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (!file.valid()) refuse_unreadable(path);
  struct stat status{};
  constexpr mode_t others = S_IRWXG | S_IRWXO;
  if (::fstat(file.get(), &status) != 0 || (status.st_mode & others) != 0) {
    refuse("the job's secret in " + path + " is open to other users; run: chmod 600 " + path);
  }
  if (status.st_uid != ::geteuid()) refuse("the job's secret in " + path + " is another user's");
  return checked(read_all(file.get(), path), path);
}

bool equal_in_constant_time(std::string_view left, std::string_view right) noexcept {
  return left.size() == right.size() && CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

// The proof of one side: it knows the secret, saw both nonces and says `said`.
std::string proof(std::string_view secret, std::string_view label, std::string_view store_nonce,
                  std::string_view rank_nonce, std::string_view said) {
  return hmac_sha256(secret, pack(label, store_nonce, rank_nonce, said));
}

}  // namespace

std::optional<std::string> read_secret() {
  if (const char* text = std::getenv("RONDO_SECRET_FD"); text != nullptr && *text != '\0') {
    return secret_from_descriptor(text);
  }
  if (const char* text = std::getenv("RONDO_SECRET"); text != nullptr && *text != '\0') {
    return checked(text, "RONDO_SECRET");
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return std::nullopt;
  return secret_from_file(std::string(home) + "/.rondo/secret");
}

std::string hmac_sha256(std::string_view secret, std::string_view message) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> code{};
  unsigned length = 0;
  // An empty view may have a null pointer, which OpenSSL takes for "the key of last time".
  const char* key = secret.empty() ? "" : secret.data();
  if (HMAC(EVP_sha256(), key, static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(), code.data(),
           &length) == nullptr) {
    refuse("OpenSSL cannot compute HMAC-SHA256");
  }
  return {reinterpret_cast<const char*>(code.data()), length};
}

// getrandom() gives up to 256 bytes whole, whatever signals come.
std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (::getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count)) {
    refuse("the kernel has no random numbers");
  }
  return bytes;
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  std::memcpy(&number, random_bytes(sizeof number).data(), sizeof number);
  return number;
}

std::string rank_on_host(const RankIdentity& who) {
  return "rank " + std::to_string(who.rank) + " on host " + printable(who.host);
}

std::string mismatch(const RankIdentity& self, const RankIdentity& other) {
  if (other.version != self.version) {
    return rank_on_host(other) + " runs version " + printable(other.version) + ", " +
           rank_on_host(self) + " runs " + self.version + "; install the same on all hosts";
  }
  if (other.size != self.size) {
    return rank_on_host(other) + " was started as one of " + std::to_string(other.size) +
           " ranks, " + rank_on_host(self) + " as one of " + std::to_string(self.size) +
           "; RONDO_SIZE must be equal on all ranks";
  }
  return {};
}

StoreHandshake::StoreHandshake() : store_nonce_(random_bytes(nonce_bytes)) {}

Frame StoreHandshake::challenge() const {
  return {.type = Frame::Type::challenge, .payload = std::string(store_protocol) + store_nonce_};
}

std::optional<RankIdentity> StoreHandshake::verify(const Frame& answer, std::string_view secret) {
  std::string_view said;
  std::string_view nonce;
  std::string_view code;
  if (answer.type != Frame::Type::answer || !unpack(answer.payload, said, nonce, code) ||
      nonce.size() != nonce_bytes ||
      !equal_in_constant_time(code, proof(secret, "rank", store_nonce_, nonce, said))) {
    return std::nullopt;
  }
  // Only now is what the answer says used.
  rank_nonce_ = nonce;
  RankIdentity who;
  return unpack(said, who) ? std::optional(std::move(who)) : std::nullopt;
}

Frame StoreHandshake::welcome(std::string_view host, std::string_view secret) const {
  // The proof covers what is sent, so both are cut.
  host = host.substr(0, longest_name);
  return {.type = Frame::Type::welcome,
          .payload = pack(host, proof(secret, "store", store_nonce_, rank_nonce_, host))};
}

RankHandshake::RankHandshake() : rank_nonce_(random_bytes(nonce_bytes)) {}

std::optional<Frame> RankHandshake::answer(const Frame& challenge, const RankIdentity& self,
                                           std::string_view secret) {
  const std::string_view payload = challenge.payload;
  if (challenge.type != Frame::Type::challenge || !payload.starts_with(store_protocol) ||
      payload.size() != store_protocol.size() + nonce_bytes) {
    return std::nullopt;
  }
  store_nonce_ = payload.substr(store_protocol.size());
  // Cut, so that the answer fits into handshake_cap whatever the host is called.
  RankIdentity short_self = self;
  short_self.version = self.version.substr(0, longest_name);
  short_self.host = self.host.substr(0, longest_name);
  const std::string said = pack(short_self);
  return Frame{
      .type = Frame::Type::answer,
      .payload = pack(said, rank_nonce_, proof(secret, "rank", store_nonce_, rank_nonce_, said))};
}

std::optional<std::string> RankHandshake::verify(const Frame& welcome,
                                                 std::string_view secret) const {
  std::string_view host;
  std::string_view code;
  if (welcome.type != Frame::Type::welcome || !unpack(welcome.payload, host, code) ||
      !equal_in_constant_time(code, proof(secret, "store", store_nonce_, rank_nonce_, host))) {
    return std::nullopt;
  }
  return std::string(host);
}

}  // namespace rondo::transport::bootstrap
