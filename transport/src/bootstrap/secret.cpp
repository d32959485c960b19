#include "bootstrap/secret.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include <rondo/transport/error.hpp>

#include "shm/memory.hpp"

namespace rondo::transport::rendezvous {
namespace {

[[noreturn]] void refuse_secret(const std::string& what) {
  throw Error(Errc::rendezvous_failed, "rendezvous: " + what);
}

std::string reason() { return std::generic_category().message(errno); }

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
    if (count < 0)
      refuse_secret("the job's secret cannot be read from " + source + ": " + reason());
    if (count == 0) break;
    bytes.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return bytes;
}

std::string checked(std::string secret, const std::string& source) {
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.size() < shortest_secret) {
    refuse_secret("the job's secret in " + source + " has fewer than " +
                  std::to_string(shortest_secret) + " bytes; make one with: openssl rand -hex 32");
  }
  return secret;
}

std::string from_descriptor(std::string_view text) {
  int descriptor = -1;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, descriptor);
  if (error != std::errc{} || rest != end || descriptor < 0) {
    refuse_secret("RONDO_SECRET_FD='" + std::string(text) + "' is not a descriptor's number");
  }
  // It stays open for a later World, but is nothing for the programs that this one starts.
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  const std::string source = "RONDO_SECRET_FD=" + std::string(text);
  return checked(read_all(descriptor, source), source);
}

std::optional<std::string> from_file(const std::string& path) {
  const shm::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid() && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (!file.valid())
    refuse_secret("the job's secret cannot be read from " + path + ": " + reason());
  struct stat status{};
  constexpr mode_t others = S_IRWXG | S_IRWXO;
  if (::fstat(file.get(), &status) != 0 || (status.st_mode & others) != 0) {
    refuse_secret("the job's secret in " + path + " is open to other users; run: chmod 600 " +
                  path);
  }
  if (status.st_uid != ::geteuid())
    refuse_secret("the job's secret in " + path + " is another user's");
  return checked(read_all(file.get(), path), path);
}

}  // namespace

std::optional<std::string> read_secret() {
  if (const char* text = std::getenv("RONDO_SECRET_FD"); text != nullptr && *text != '\0') {
    return from_descriptor(text);
  }
  if (const char* text = std::getenv("RONDO_SECRET"); text != nullptr && *text != '\0') {
    return checked(text, "RONDO_SECRET");
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return std::nullopt;
  return from_file(std::string(home) + "/.rondo/secret");
}

}  // namespace rondo::transport::rendezvous
