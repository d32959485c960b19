// The sockets that libfabric's TCP has opened, which it does not show. Whoever connects reaches the
// other end's listening address; whoever is connected to has the port of its own.

#include "links/ofi/sockets.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>

#include "memory/memory.hpp"

namespace rondo::transport::ofi {
namespace {

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};

struct Address {
  std::string_view host = {};  // its bytes
  in_port_t port = 0;
};

// Empty where it is none of IP.
Address address_of(const sockaddr_storage& address) noexcept {
  if (address.ss_family == AF_INET) {
    const auto& ip = reinterpret_cast<const sockaddr_in&>(address);
    return {{reinterpret_cast<const char*>(&ip.sin_addr), sizeof(ip.sin_addr)}, ip.sin_port};
  }
  if (address.ss_family == AF_INET6) {
    const auto& ip = reinterpret_cast<const sockaddr_in6&>(address);
    return {{reinterpret_cast<const char*>(&ip.sin6_addr), sizeof(ip.sin6_addr)}, ip.sin6_port};
  }
  return {};
}

// A copy of a file's descriptor must not be made: to close it ends the process' locks of the file.
bool is_socket(int descriptor) noexcept {
  struct stat status{};
  return ::fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode);
}

bool joins(int descriptor, const Address& own, const Address& peer, Opened by) noexcept {
  sockaddr_storage here = {};
  sockaddr_storage there = {};
  socklen_t bytes = sizeof(here);
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&here), &bytes) != 0) return false;
  bytes = sizeof(there);
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&there), &bytes) != 0) return false;
  const Address from = address_of(here);
  const Address to = address_of(there);
  if (to.host.empty() || to.host != peer.host) return false;
  return by == Opened::here ? to.port == peer.port : from.port == own.port;
}

}  // namespace

void cut_connections(const sockaddr_storage& own, const sockaddr_storage& peer,
                     Opened by) noexcept {
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir("/proc/self/fd"));
  if (folder == nullptr) return;
  while (const dirent* const entry = ::readdir(folder.get())) {
    const std::string_view name(entry->d_name);
    int descriptor = -1;
    std::from_chars(name.data(), name.data() + name.size(), descriptor);
    if (descriptor < 0 || !is_socket(descriptor)) continue;
    // Another thread may close the descriptor and get its number for another socket; it cannot
    // close this copy.
    const shm::Descriptor same(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (joins(same.get(), address_of(own), address_of(peer), by)) ::shutdown(same.get(), SHUT_RDWR);
  }
}

}  // namespace rondo::transport::ofi
