#include "bootstrap/store_meeting.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <utility>
#include <vector>

#include <rondo/transport/error.hpp>

#include "bootstrap/interfaces.hpp"
#include "bootstrap/local_meeting.hpp"
#include "bootstrap/secret.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/store_client.hpp"
#include "bootstrap/tcp.hpp"

namespace rondo::transport::rendezvous {
namespace {

// The same for all Worlds of a process, but not for a process and one that it has forked.
std::uint64_t own_process() {
  static const std::uint64_t drawn = random_nonce();
  return drawn ^ static_cast<std::uint64_t>(::getpid());
}

shm::Descriptor inherit(int number) {
  int listening = 0;
  socklen_t length = sizeof listening;
  if (::getsockopt(number, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || listening == 0) {
    throw Error(Errc::rendezvous_failed, "rendezvous: RONDO_LISTENER=" + std::to_string(number) +
                                             " is no listening socket; unset it, and rank 0 "
                                             "makes its own");
  }
  // A later World of this process may listen, too, so the inherited one stays.
  shm::Descriptor own(::fcntl(number, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) {
    throw Error(Errc::rendezvous_failed, "rendezvous: rank 0 has run out of descriptors");
  }
  return own;
}

std::unique_ptr<StoreClient> serve(const Credentials& credentials, const Placement& placement) {
  // One for each rank, and what strangers and the World itself take.
  allow_descriptors(static_cast<std::size_t>(placement.size) + 256, "the store of rank 0");
  shm::Descriptor listener =
      placement.listener >= 0 ? inherit(placement.listener) : listen_at(*placement.coordinator);
  if (credentials.secret.empty() && !own_address(listener.get()).loopback()) {
    throw Error(Errc::rendezvous_failed,
                "rendezvous: rank 0 on host " + credentials.self.host +
                    " has no secret, and does not listen to other hosts at " +
                    to_string(*placement.coordinator) +
                    " without one; set RONDO_SECRET, or make ~/.rondo/secret on all hosts");
  }
  return StoreClient::serve(credentials, std::move(listener));
}

}  // namespace

StoreMeeting meet_at_store(const Placement& placement, std::string_view interfaces,
                           std::chrono::milliseconds deadline) {
  const std::vector<Interface> all = list_interfaces();
  // A typing error is told before anybody waits for anybody.
  if (!interfaces.empty()) (void)select_interfaces(all, interfaces);
  const Credentials credentials{.self = {.job = placement.job,
                                         .rank = static_cast<std::uint32_t>(placement.rank),
                                         .size = static_cast<std::uint32_t>(placement.size),
                                         .version = RONDO_VERSION,
                                         .host = host_name(),
                                         .process = own_process()},
                                .secret = read_secret().value_or(""),
                                .rendezvous_deadline = deadline};
  std::unique_ptr<StoreClient> channel =
      placement.rank == 0 ? serve(credentials, placement)
                          : StoreClient::join(credentials, *placement.coordinator);
  (void)channel->allgather("");
  const std::string reached = channel->local_address();
  std::string interface =
      reached.empty() ? std::string("lo") : choose_interface(all, interfaces, reached);
  return {.channel = std::move(channel), .interface = std::move(interface)};
}

}  // namespace rondo::transport::rendezvous
