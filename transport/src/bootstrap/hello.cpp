#include "bootstrap/hello.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "bootstrap/sockets.hpp"

namespace rondo::transport::rendezvous {
namespace {

constexpr std::size_t descriptor_count = 4;
constexpr std::size_t control_bytes = CMSG_SPACE(descriptor_count * sizeof(int));

// Whether the socket blocks or not. A signal does not end it: a profiler sends them all the time.
ssize_t receive_before(int socket, msghdr& message, std::chrono::steady_clock::time_point until) {
  while (wait_until_ready(socket, POLLIN, until)) {
    const ssize_t count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (count >= 0 || (errno != EINTR && errno != EAGAIN)) return count;
  }
  return -1;
}

// Takes every descriptor that came, so that none leaks, and keeps them if they are the four.
bool take_descriptors(msghdr& message, Greeting& greeting) {
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
    return false;
  }
  const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  std::array<int, descriptor_count> fds{-1, -1, -1, -1};
  std::memcpy(fds.data(), CMSG_DATA(header), std::min(count, descriptor_count) * sizeof(int));
  greeting.control = shm::Descriptor(fds[0]);
  greeting.arena = shm::Descriptor(fds[1]);
  greeting.process = shm::Descriptor(fds[2]);
  greeting.recorder = shm::Descriptor(fds[3]);
  return count == descriptor_count && (message.msg_flags & MSG_CTRUNC) == 0;
}

}  // namespace

bool send_hello(int socket, const Hello& hello, const Handles& handles) {
  if (!is_same_user(socket)) return false;
  Hello copy = hello;
  iovec part{.iov_base = &copy, .iov_len = sizeof copy};
  alignas(cmsghdr) std::array<std::byte, control_bytes> buffer{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = buffer.data();
  message.msg_controllen = buffer.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptor_count * sizeof(int));
  const std::array<int, descriptor_count> fds{handles.control, handles.arena, handles.process,
                                              handles.recorder};
  std::memcpy(CMSG_DATA(header), fds.data(), sizeof fds);
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof copy);
}

std::optional<Greeting> receive_hello(int socket, std::chrono::steady_clock::time_point until) {
  if (!is_same_user(socket)) return std::nullopt;
  Greeting greeting;
  iovec part{.iov_base = &greeting.hello, .iov_len = sizeof greeting.hello};
  alignas(cmsghdr) std::array<std::byte, control_bytes> buffer{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = buffer.data();
  message.msg_controllen = buffer.size();
  const ssize_t received = receive_before(socket, message, until);
  const bool complete = received == static_cast<ssize_t>(sizeof greeting.hello);
  if (received <= 0 || !take_descriptors(message, greeting) || !complete) return std::nullopt;
  if (greeting.hello.magic != Hello{}.magic) return std::nullopt;
  greeting.hello.version.back() = '\0';
  greeting.hello.host.back() = '\0';
  return greeting;
}

}  // namespace rondo::transport::rendezvous
