// Ranks of one node hand each other their memory over local sockets.
//
// A rank's memory and its process are descriptors, and only a UNIX socket passes those on. They are
// all that is needed to read and write the rank's memory, so the kernel is asked for the user at
// the other end before anything is sent or received. Everything here ends at the deadline, and the
// error names who is missing.

#include "bootstrap/node_connector.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <rondo/transport/error.hpp>
#include <rondo/transport/launcher.hpp>

#include "bootstrap/wire.hpp"
#include "recorder/names.hpp"

namespace rondo::transport::bootstrap {
namespace {

[[noreturn]] void fail_on_node(const std::string& what) {
  throw Error(Errc::bootstrap_failed, "bootstrap: " + what);
}

[[noreturn]] void fail_with_errno(const std::string& what) {
  const int number = errno;
  fail_on_node(what + ": " + std::generic_category().message(number));
}

// A rank listens by the first of its names that no other user has taken.
constexpr int names_per_rank = 16;

constexpr int backlog = 4096;

struct LocalAddress {
  sockaddr_un address = {};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&address);
  }
};

// A process that does not know the job cannot guess the name; 128 bits of the HMAC suffice.
LocalAddress address_of(const std::string& job, const std::string& what) {
  constexpr std::size_t hash_bytes = 16;
  const std::string name = "rondo-" + hexadecimal(hmac_sha256(job, what).substr(0, hash_bytes));
  LocalAddress found;
  found.address.sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract.
  std::memcpy(found.address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof found.address.sun_path - 1));
  found.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return found;
}

std::vector<LocalAddress> addresses_of(const std::string& job, int rank) {
  std::vector<LocalAddress> all;
  for (int i = 0; i < names_per_rank; ++i) {
    all.push_back(address_of(job, "rank " + std::to_string(rank) + " name " + std::to_string(i)));
  }
  return all;
}

shm::Descriptor make_local_socket(int type) {
  shm::Descriptor socket(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) fail_with_errno("cannot make a socket");
  return socket;
}

// The process of this user that listens by a name; 0: in a container where it cannot be seen.
std::optional<pid_t> own_listener(const LocalAddress& address, int type) {
  const shm::Descriptor probe = make_local_socket(type);
  ucred listener{};
  socklen_t length = sizeof listener;
  if (::connect(probe.get(), address.get(), address.length) != 0 || !is_same_user(probe.get()) ||
      ::getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &listener, &length) != 0) {
    return std::nullopt;
  }
  return listener.pid;
}

[[noreturn]] void fail_for_another(int rank, pid_t process) {
  fail_on_node("another process is rank " + std::to_string(rank) + " of this job already (pid " +
               std::to_string(process) +
               "); if that has started this one, unset here what made this one a rank: "
               "RONDO_RANK, RONDO_SIZE and RONDO_COORDINATOR, or the launcher's variables");
}

[[noreturn]] void fail_for_taken_names(int rank, std::optional<uid_t> user) {
  fail_on_node((user ? "user " + std::to_string(*user) : std::string("a user")) +
               " has taken names of rank " + std::to_string(rank) + ", and this is user " +
               std::to_string(::geteuid()) +
               "; were the ranks started by different users, or does another user know the id of "
               "the job?");
}

// Changes when what is sent changes.
constexpr std::string_view card_protocol = "RONDO002";

constexpr std::size_t descriptor_count = 4;

// Room for one card and its descriptors.
struct CardBuffer {
  std::array<char, 4096> bytes{};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(descriptor_count * sizeof(int))> control{};
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr message{};

  CardBuffer() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  CardBuffer(const CardBuffer&) = delete;
  CardBuffer& operator=(const CardBuffer&) = delete;
};

// Whether the socket blocks or not. A signal does not end it.
ssize_t receive_before(int socket, msghdr& message, Clock::time_point until) {
  while (wait_until_ready(socket, POLLIN, until)) {
    const ssize_t count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (count >= 0 || (errno != EINTR && errno != EAGAIN)) return count;
  }
  return -1;
}

// Takes every descriptor that came, so that none leaks, and keeps them if they are the four.
bool take_descriptors(msghdr& message, ReceivedCard& received) {
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
    return false;
  }
  const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  std::array<int, descriptor_count> fds{-1, -1, -1, -1};
  std::memcpy(fds.data(), CMSG_DATA(header), std::min(count, descriptor_count) * sizeof(int));
  received.control = shm::Descriptor(fds[0]);
  received.arena = shm::Descriptor(fds[1]);
  received.process = shm::Descriptor(fds[2]);
  received.recorder = shm::Descriptor(fds[3]);
  return count == descriptor_count && (message.msg_flags & MSG_CTRUNC) == 0;
}

// The launcher's, so that it can read what a rank recorded that is gone; else one of its own.
std::shared_ptr<recorder::Memory> recorder_for(const LaunchInfo& launch) {
  auto memory = recorder::Memory::inherit(launch.recorder);
  if (!memory) memory = recorder::Memory::create();
  return std::make_shared<recorder::Memory>(std::move(*memory));
}

// One rank's side.
class NodeConnector {
 public:
  NodeConnector(const LaunchInfo& launch, const std::vector<int>& members,
                const WorldOptions& options, const std::function<std::string()>& failure);
  NodePeers connect();

 private:
  void send_to_lower();
  void answer_higher();
  void receive_from_lower();
  [[nodiscard]] shm::Descriptor send_to(int rank) const;
  [[nodiscard]] bool is_expected(const NodeCard& card) const;
  void add(ReceivedCard received);
  void check(const NodeCard& card) const;
  [[nodiscard]] bool send(const shm::Descriptor& socket) const;
  [[noreturn]] void fail_for_missing(const std::vector<int>& awaited) const;

  LaunchInfo launch_;
  std::vector<int> members_;
  shm::Reserve reserve_;
  Clock::time_point deadline_;
  std::shared_ptr<shm::RankMemory> memory_;
  std::shared_ptr<shm::Descriptor> process_;
  std::shared_ptr<recorder::Memory> recorder_;
  NodeCard card_;
  shm::Descriptor listener_;
  struct Lower {
    int rank;
    shm::Descriptor socket;
  };
  std::vector<Lower> lower_;
  std::vector<bool> present_;
  NodePeers node_;
  std::function<std::string()> failure_;
};

constexpr auto pause_before_retry = std::chrono::milliseconds(1);

NodeConnector::NodeConnector(const LaunchInfo& launch, const std::vector<int>& members,
                             const WorldOptions& options,
                             const std::function<std::string()>& failure)
    : launch_(launch),
      members_(members),
      // Only for ranks that map each other: those of other nodes take no addresses here.
      reserve_(shm::Reserve::of(static_cast<int>(members.size()))),
      deadline_(Clock::now() + options.bootstrap_deadline),
      process_(std::make_shared<shm::Descriptor>(
          static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)))),
      recorder_(recorder_for(launch)),
      card_{.self = own_identity(launch),
            .pid = ::getpid(),
            .waiting = options.waiting,
            .nonce = random_number(),
            .small_bytes = options.small_bytes,
            .cpus = own_cpus()},
      present_(static_cast<std::size_t>(launch.size), false),
      failure_(failure) {
  allow_descriptors(
      static_cast<std::size_t>(descriptors_to_connect(static_cast<std::int64_t>(members.size()))),
      "connecting the ranks of this node");
  if (!process_->valid()) fail_with_errno("cannot open a pidfd (needs Linux 5.3)");
  memory_ = shm::RankMemory::create(reserve_, card_.nonce);
  node_.peers.resize(present_.size());
  const auto me = static_cast<std::size_t>(launch.rank);
  node_.peers[me] = {.memory = memory_,
                     .process = process_,
                     .recorder = recorder_,
                     .info = {.pid = card_.pid, .host = card_.self.host}};
  node_.cpus.push_back(card_.cpus);
  present_[me] = true;
}

NodePeers NodeConnector::connect() {
  listener_ = listen_as(launch_.job, launch_.rank);
  send_to_lower();
  answer_higher();
  receive_from_lower();
  return std::move(node_);
}

bool NodeConnector::send(const shm::Descriptor& socket) const {
  return send_card(socket.get(), card_,
                   {.control = memory_->control().descriptor(),
                    .arena = memory_->arena().descriptor(),
                    .process = process_->get(),
                    .recorder = recorder_->descriptor()});
}

void NodeConnector::send_to_lower() {
  for (const int rank : members_) {
    if (rank < launch_.rank) lower_.push_back({.rank = rank, .socket = send_to(rank)});
  }
}

// Until the deadline: who listens may be about to hang up.
shm::Descriptor NodeConnector::send_to(int rank) const {
  while (true) {
    shm::Descriptor socket = connect_to(launch_.job, rank, deadline_, SOCK_SEQPACKET,
                                        [this] { return !failure_().empty(); });
    if (!socket.valid()) fail_for_missing({rank});
    if (send(socket)) return socket;
    std::this_thread::sleep_for(pause_before_retry);
  }
}

void NodeConnector::answer_higher() {
  // A connection that sends nothing delays the others for so long.
  constexpr auto card_limit = std::chrono::milliseconds(2000);
  // And so often it is asked whether the job has failed.
  constexpr auto slice = std::chrono::milliseconds(100);
  std::vector<int> awaited = members_;
  std::erase_if(awaited, [this](int rank) { return rank <= launch_.rank; });
  while (!awaited.empty()) {
    const shm::Descriptor socket =
        accept_from(listener_, std::min(deadline_, Clock::now() + slice));
    if (!socket.valid()) {
      if (Clock::now() >= deadline_ || !failure_().empty()) fail_for_missing(awaited);
      continue;
    }
    std::optional<ReceivedCard> received =
        receive_card(socket.get(), std::min(deadline_, Clock::now() + card_limit));
    // Others are no rank of this job, or a rank that has left already and comes for the job's next
    // World: that one will come again.
    if (!received || !is_expected(received->card) || !send(socket)) continue;
    std::erase(awaited, static_cast<int>(received->card.self.rank));
    add(std::move(*received));
  }
}

// A higher rank of this job that has not come yet.
bool NodeConnector::is_expected(const NodeCard& card) const {
  const auto rank = static_cast<std::size_t>(card.self.rank);
  return card.self.job == launch_.job && rank > static_cast<std::size_t>(launch_.rank) &&
         rank < present_.size() && !present_[rank];
}

// A lower rank that hung up instead has not begun this World; it gets the card once more.
void NodeConnector::receive_from_lower() {
  for (Lower& lower : lower_) {
    std::optional<ReceivedCard> received = receive_card(lower.socket.get(), deadline_);
    while (!received) {
      std::this_thread::sleep_for(pause_before_retry);
      lower.socket = send_to(lower.rank);
      received = receive_card(lower.socket.get(), deadline_);
    }
    add(std::move(*received));
  }
}

// Checks what must be equal on both ranks; the error shows both values.
void NodeConnector::check(const NodeCard& card) const {
  if (const std::string why = mismatch(card_.self, card.self); !why.empty()) fail_on_node(why);
  const auto refuse = [&](const std::string& option, const std::string& theirs,
                          const std::string& mine) {
    fail_on_node(option + " is " + theirs + " on rank " + std::to_string(card.self.rank) + " and " +
                 mine + " on rank " + std::to_string(launch_.rank) +
                 "; all ranks must pass the same options");
  };
  if (card.small_bytes != card_.small_bytes) {
    refuse("small_bytes", std::to_string(card.small_bytes), std::to_string(card_.small_bytes));
  }
  if (card.waiting != card_.waiting) {
    refuse("waiting", name_of(card.waiting), name_of(card_.waiting));
  }
}

// From here on the peer is known by its memory, which this rank maps, and by its pidfd, which tells
// when the process ends.
void NodeConnector::add(ReceivedCard received) {
  const NodeCard& card = received.card;
  check(card);
  node_.peers[card.self.rank] = {
      .memory = shm::RankMemory::map(std::move(received.control), std::move(received.arena),
                                     reserve_, card.nonce),
      .process = std::make_shared<shm::Descriptor>(std::move(received.process)),
      .recorder =
          std::make_shared<recorder::Memory>(recorder::Memory::map(std::move(received.recorder))),
      .info = {.pid = card.pid, .host = printable(card.self.host)}};
  node_.cpus.push_back(card.cpus);
  present_[card.self.rank] = true;
}

// Others wait as this rank does, and are not named.
void NodeConnector::fail_for_missing(const std::vector<int>& awaited) const {
  if (const std::string failure = failure_(); !failure.empty()) {
    throw Error(Errc::bootstrap_failed, failure);
  }
  std::string names;
  for (const int rank : awaited) names += (names.empty() ? "" : ", ") + std::to_string(rank);
  fail_on_node("rank " + std::to_string(launch_.rank) + " of " + std::to_string(launch_.size) +
               " could not connect to rank " + names + " in time; did these end, or never start?");
}

}  // namespace

RankIdentity own_identity(const LaunchInfo& launch) {
  // The same for all Worlds of a process, but not for a process and one that it has forked.
  static const std::uint64_t drawn = random_number();
  return {.job = launch.job,
          .rank = static_cast<std::uint32_t>(launch.rank),
          .size = static_cast<std::uint32_t>(launch.size),
          .version = RONDO_VERSION,
          .host = host_name(),
          .process = drawn ^ static_cast<std::uint64_t>(::getpid())};
}

void claim_rank(const LaunchInfo& launch, const std::string& secret) {
  if (launch.size == 1) return;  // it waits for nobody
  static std::mutex mutex;
  static shm::Descriptor held;
  const std::scoped_lock lock(mutex);
  const LocalAddress address =
      address_of(launch.job, "claim " + std::to_string(launch.rank) + " " + secret);
  shm::Descriptor claim = make_local_socket(SOCK_STREAM);
  if (::bind(claim.get(), address.get(), address.length) == 0) {
    if (::listen(claim.get(), backlog) != 0) fail_with_errno("cannot listen");
    held = std::move(claim);
    return;
  }
  const pid_t process = own_listener(address, SOCK_STREAM).value_or(0);
  // One that has ended may have left the socket to a process that it had forked.
  const bool runs = process > 0 && ::kill(process, 0) == 0;
  if (runs && process != ::getpid()) fail_for_another(launch.rank, process);
}

NodePeers connect_node(const LaunchInfo& launch, const std::vector<int>& members,
                       const WorldOptions& options, const std::function<std::string()>& failure) {
  return NodeConnector(launch, members, options, failure).connect();
}

shm::Descriptor listen_as(const std::string& job, int rank, int type) {
  shm::Descriptor socket = make_local_socket(type);
  for (const LocalAddress& address : addresses_of(job, rank)) {
    if (::bind(socket.get(), address.get(), address.length) == 0) {
      if (::listen(socket.get(), backlog) != 0) fail_with_errno("cannot listen");
      return socket;
    }
    if (errno != EADDRINUSE) fail_with_errno("cannot bind a socket");
    // A name in use is either taken by another user, or by a process that was started as this rank.
    if (const auto process = own_listener(address, type)) fail_for_another(rank, *process);
  }
  fail_for_taken_names(rank, std::nullopt);
}

shm::Descriptor connect_to(const std::string& job, int rank, Clock::time_point deadline, int type,
                           const std::function<bool()>& given_up) {
  using namespace std::chrono_literals;
  const std::vector<LocalAddress> addresses = addresses_of(job, rank);
  std::optional<uid_t> other_user;
  for (auto pause = 100us; Clock::now() < deadline; pause = std::min(pause * 2, 10'000us)) {
    shm::Descriptor socket = make_local_socket(type);
    for (const LocalAddress& address : addresses) {
      if (::connect(socket.get(), address.get(), address.length) == 0) {
        // Nothing was sent yet: not even who this is.
        if (is_same_user(socket.get())) return socket;
        other_user = user_of_other_end(socket.get());
        socket = make_local_socket(type);
      } else if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
        // EAGAIN: too many wait to be accepted.
        fail_with_errno("cannot connect to rank " + std::to_string(rank));
      }
    }
    // The peer has not begun to listen.
    if (given_up()) return {};
    std::this_thread::sleep_for(pause);
  }
  if (other_user) fail_for_taken_names(rank, other_user);
  return {};
}

shm::Descriptor accept_from(const shm::Descriptor& listener, Clock::time_point deadline) {
  while (wait_until_ready(listener.get(), POLLIN, deadline)) {
    shm::Descriptor socket(
        ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid()) return socket;
    const bool passing = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    if (!passing) fail_with_errno("cannot accept a connection");
  }
  return {};
}

bool send_card(int socket, const NodeCard& card, const NodeDescriptors& descriptors) {
  if (!is_same_user(socket)) return false;
  std::string bytes = pack(card_protocol, card);
  CardBuffer buffer;
  buffer.part = {.iov_base = bytes.data(), .iov_len = bytes.size()};
  cmsghdr* header = CMSG_FIRSTHDR(&buffer.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptor_count * sizeof(int));
  const std::array<int, descriptor_count> fds{descriptors.control, descriptors.arena,
                                              descriptors.process, descriptors.recorder};
  std::memcpy(CMSG_DATA(header), fds.data(), sizeof fds);
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &buffer.message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

std::optional<ReceivedCard> receive_card(int socket, Clock::time_point until) {
  if (!is_same_user(socket)) return std::nullopt;
  ReceivedCard received;
  CardBuffer buffer;
  const ssize_t count = receive_before(socket, buffer.message, until);
  // Nothing that came may be skipped before its descriptors have an owner.
  if (count <= 0 || !take_descriptors(buffer.message, received)) return std::nullopt;
  std::string_view protocol;
  const std::string_view bytes(buffer.bytes.data(), static_cast<std::size_t>(count));
  if (!unpack(bytes, protocol, received.card) || protocol != card_protocol) return std::nullopt;
  return received;
}

}  // namespace rondo::transport::bootstrap
