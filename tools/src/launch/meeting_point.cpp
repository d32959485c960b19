#include "launch/meeting_point.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <vector>

namespace rondo::tools {
namespace {

constexpr std::size_t job_bytes = 16;
constexpr std::size_t secret_bytes = 32;

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

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

}  // namespace

MeetingPoint meet_on_this_node() {
  MeetingPoint point;
  point.coordinator = "local:" + random_digits(job_bytes);
  return point;
}

MeetingPoint meet_over_loopback() {
  MeetingPoint point = meet_at(loopback);
  point.secret = keep(random_digits(secret_bytes));
  return point;
}

MeetingPoint meet_at(const std::string& host) {
  MeetingPoint point;
  point.listener = listen_on(host == loopback ? INADDR_LOOPBACK : INADDR_ANY);
  point.coordinator =
      fmt::format("tcp:{}:{}/{}", host, port_of(point.listener), random_digits(job_bytes));
  return point;
}

}  // namespace rondo::tools
