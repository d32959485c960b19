// Prepares how ranks find each other: an id of the job, and between nodes (real or fake) a socket
// that is bound before any rank starts, so that no two jobs can compete for a port.
//
// The secret travels in an inherited file in memory, never in the environment or among the
// arguments, which other users may read.

#include "launch/bootstrap.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "world.hpp"

namespace rondo::tools {
namespace {

constexpr std::size_t job_bytes = 16;
constexpr std::size_t secret_bytes = 32;

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// From the kernel: the secret must not be guessable.
std::string random_digits(std::size_t bytes) {
  std::vector<unsigned char> bits(bytes);
  if (getrandom(bits.data(), bytes, 0) != static_cast<ssize_t>(bytes)) fail("getrandom");
  std::string text;
  for (const unsigned char byte : bits) text += fmt::format("{:02x}", byte);
  return text;
}

constexpr const char* loopback = "127.0.0.1";

// On a port that the kernel chooses.
Descriptor listen_on(in_addr_t interface) {
  Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.value() < 0) fail("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(interface);
  if (bind(listener.value(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    fail("bind to a port");
  }
  if (listen(listener.value(), SOMAXCONN) != 0) fail("listen");
  return listener;
}

// The port that the kernel chose.
std::uint16_t port_of(const Descriptor& listener) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  if (getsockname(listener.value(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    fail("getsockname");
  }
  return ntohs(address.sin_port);
}

// A file, not a pipe: every rank can read it.
Descriptor keep(const std::string& secret) {
  Descriptor file(memfd_create("rondo-secret", MFD_CLOEXEC));
  if (file.value() < 0) fail("memfd_create");
  if (write(file.value(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size())) {
    fail("write to a file in memory");
  }
  return file;
}

// A bootstrap of the same kind as the one that `coordinator` names.
Bootstrap similar_to(const std::string& coordinator) {
  const std::string tcp = "tcp:";
  const std::size_t port = coordinator.rfind(':');
  if (!coordinator.starts_with(tcp) || port < tcp.size()) return bootstrap_on_this_node();
  return bootstrap_at(coordinator.substr(tcp.size(), port - tcp.size()));
}

}  // namespace

Bootstrap bootstrap_on_this_node() {
  Bootstrap bootstrap;
  bootstrap.coordinator = "local:" + random_digits(job_bytes);
  return bootstrap;
}

Bootstrap bootstrap_over_loopback() {
  Bootstrap bootstrap = bootstrap_at(loopback);
  bootstrap.secret = keep(random_digits(secret_bytes));
  return bootstrap;
}

Bootstrap bootstrap_at(const std::string& host) {
  Bootstrap bootstrap;
  bootstrap.listener = listen_on(host == loopback ? INADDR_LOOPBACK : INADDR_ANY);
  bootstrap.coordinator =
      fmt::format("tcp:{}:{}/{}", host, port_of(bootstrap.listener), random_digits(job_bytes));
  return bootstrap;
}

NextBootstrap::NextBootstrap(transport::World& world) {
  const char* now = std::getenv("RONDO_COORDINATOR");
  if (now == nullptr) return;
  if (world.rank() == 0) {
    Bootstrap next = similar_to(now);
    coordinator_ = std::move(next.coordinator);
    listener_ = std::move(next.listener);
  }
  coordinator_ = broadcast_text(world, coordinator_);
  world.communicator().barrier().wait();
}

// World::attach() reads the environment, and takes over the listening socket of rank 0.
void NextBootstrap::prepare() {
  if (coordinator_.empty()) return;
  setenv("RONDO_COORDINATOR", coordinator_.c_str(), 1);
  if (listener_.value() < 0) return;
  setenv("RONDO_LISTENER", std::to_string(listener_.release()).c_str(), 1);
}

}  // namespace rondo::tools
