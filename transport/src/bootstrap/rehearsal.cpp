// Plays the ranks' side of a large bootstrap, so that its time and memory can be measured on one
// machine (`rondo bench bootstrap`).
//
// The store runs in a child process, which tells nothing but its memory. This process has one
// connection for each rank, and moves them on by poll(). A rank does here what StoreClient does and
// in the same order: handshake, roster of its node, and the rounds of join_nodes(). The frames are
// made and read by the same functions. Leaders read all parts of each round and look whether each
// is what its rank has sent.
//
// A rank sends about as much in a round as in a job of several machines over TCP or UCX.

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <rondo/transport/error.hpp>
#include <rondo/transport/rehearsal.hpp>

#include "bootstrap/auth.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/store.hpp"
#include "bootstrap/wire.hpp"

namespace rondo::transport {
namespace {

using namespace bootstrap;

// Address cards; what the nodes offer, of leaders alone; addresses of the link, and what the probe
// of it came to.
struct Round {
  std::size_t bytes;
  bool of_leaders;
};
constexpr std::array<Round, 4> rounds{{{240, false}, {600, true}, {320, false}, {16, false}}};

[[noreturn]] void fail_to_rehearse(const std::string& what) {
  throw Error(Errc::bootstrap_failed, "rehearsal: " + what);
}

// Different for each rank and round.
std::string part_of(std::size_t rank, std::size_t round, bool leads) {
  if (rounds[round].of_leaders && !leads) return {};
  std::string text = std::to_string(rank) + " in " + std::to_string(round);
  text.resize(rounds[round].bytes, '.');
  return text;
}

/// One rank as the store sees it.
class PlayedRank {
 public:
  PlayedRank(const Credentials& credentials, std::string node, Connection connection)
      : credentials_(&credentials), node_(std::move(node)), connection_(std::move(connection)) {}

  /// For rank 0, which is a member from the beginning.
  void begin_as_member() { ask_for_roster(); }

  [[nodiscard]] const Connection& connection() const noexcept { return connection_; }
  [[nodiscard]] bool knows_node() const noexcept { return !roster_.ranks.empty(); }
  [[nodiscard]] bool is_done() const noexcept { return round_ == rounds.size(); }
  [[nodiscard]] std::uint64_t received_bytes() const noexcept { return received_; }

  void exchange() {
    connection_.exchange();
    while (const auto frame = connection_.next()) {
      received_ += frame_header_bytes + frame->payload.size();
      take(*frame);
    }
    if (connection_.ended()) fail_as_rank(connection_.end());
  }

 private:
  void take(const Frame& frame) {
    switch (frame.type) {
      case Frame::Type::challenge:
        return answer(frame);
      case Frame::Type::welcome:
        return take_welcome(frame);
      case Frame::Type::roster:
        return take_roster(frame);
      case Frame::Type::blobs:
        return take_blobs(frame);
      case Frame::Type::status:
        return take_status(frame);
      default:
        fail_as_rank(printable(frame.payload));
    }
  }

  // The store says that another rank is lost: it could not send to that rank for too long.
  [[noreturn]] void take_status(const Frame& frame) const {
    const auto message = decode_status(frame.payload);
    fail_as_rank("the store says: " + (message ? printable(message->text) : "nothing readable"));
  }

  void answer(const Frame& challenge) {
    const auto answer = handshake_.answer(challenge, credentials_->self, credentials_->secret);
    if (!answer) fail_as_rank("the store is of another version");
    connection_.send(*answer);
  }

  void take_welcome(const Frame& welcome) {
    if (!handshake_.verify(welcome, credentials_->secret)) fail_as_rank("the store proved nothing");
    connection_.allow(largest_from_store);
    ask_for_roster();
  }

  void ask_for_roster() {
    Frame frame = encode(Blob{.bytes = node_});
    frame.type = Frame::Type::node;
    connection_.send(frame);
  }

  void take_roster(const Frame& frame) {
    if (auto roster = decode_roster(frame.payload)) roster_ = std::move(*roster);
    begin_round();
  }

  // The leader speaks for all ranks of the node, as after they have told it.
  void begin_round() {
    if (is_done() || !leads()) return;
    NodeParts parts{.round = round_ + 1};
    for (const std::uint32_t rank : roster_.ranks) {
      parts.parts.push_back({.rank = rank, .bytes = part_of(rank, round_, rank == own_rank())});
    }
    connection_.send(encode(parts));
  }

  void take_blobs(const Frame& frame) {
    const auto blobs = decode_blobs(frame.payload);
    if (!blobs || blobs->round != round_ + 1) fail_as_rank("an answer to another round");
    if (leads()) check(blobs->parts);
    round_ += 1;
    begin_round();
  }

  void check(const std::vector<std::string>& parts) const {
    if (parts.size() != credentials_->self.size) fail_as_rank("parts are missing");
    for (const std::uint32_t rank : roster_.ranks) {
      if (parts[rank] != part_of(rank, round_, rank == own_rank())) fail_as_rank("a wrong part");
    }
  }

  [[nodiscard]] std::uint32_t own_rank() const noexcept { return credentials_->self.rank; }
  [[nodiscard]] bool leads() const noexcept { return roster_.ranks.front() == own_rank(); }

  [[noreturn]] void fail_as_rank(const std::string& why) const {
    fail_to_rehearse("rank " + std::to_string(own_rank()) + ": " + why);
  }

  const Credentials* credentials_;
  std::string node_;
  Connection connection_;
  RankHandshake handshake_ = {};
  Roster roster_ = {};
  std::size_t round_ = 0;
  std::uint64_t received_ = 0;
};

/// The store in a process of its own, until this object's end.
class StoreProcess {
 public:
  StoreProcess(const Credentials& credentials, shm::Descriptor listener) {
    std::array<int, 2> ends{-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
      fail_to_rehearse("cannot make a socket pair");
    }
    rank_zero_ = shm::Descriptor(ends[0]);
    shm::Descriptor own(ends[1]);
#if defined(__GLIBC__)
    // Memory that an earlier rehearsal has freed would count as the child's.
    ::malloc_trim(0);
#endif
    process_ = ::fork();
    if (process_ < 0) fail_to_rehearse("cannot start the store's process");
    if (process_ == 0) run(credentials, std::move(listener), std::move(own));
  }
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;
  ~StoreProcess() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }

  /// Rank 0's end of its connection, which needs no handshake.
  [[nodiscard]] shm::Descriptor take_rank_zero() { return std::move(rank_zero_); }

  /// The most memory that it had.
  [[nodiscard]] std::size_t most_bytes() const {
    std::ifstream status("/proc/" + std::to_string(process_) + "/status");
    for (std::string name; status >> name;) {
      std::size_t kibibytes = 0;
      if (name == "VmHWM:" && status >> kibibytes) return kibibytes << 10U;
      status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    return 0;
  }

 private:
  // It is ended by a signal, also when the process that plays the ranks dies; no destructor runs.
  [[noreturn]] static void run(const Credentials& credentials, shm::Descriptor listener,
                               shm::Descriptor own) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    StoreServer server(credentials, std::move(listener), std::move(own));
    const ServiceThread service({&server});
    while (true) ::pause();
  }

  pid_t process_ = -1;
  shm::Descriptor rank_zero_;
};

/// All ranks, moved on by one thread.
class Rehearsal {
 public:
  Rehearsal(int ranks, int ranks_per_node, std::chrono::milliseconds deadline)
      : ranks_(static_cast<std::size_t>(ranks)),
        ranks_per_node_(static_cast<std::size_t>(ranks_per_node)),
        listener_(listen_at({.host = "127.0.0.1", .port = 0})),
        address_(own_address(listener_.get())) {
    const std::string job = hexadecimal(random_bytes(16));
    const std::string secret = hexadecimal(random_bytes(16));
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      credentials_.push_back({.self = {.job = job,
                                       .rank = static_cast<std::uint32_t>(rank),
                                       .size = static_cast<std::uint32_t>(ranks_),
                                       .version = RONDO_VERSION,
                                       .host = "played",
                                       .process = rank},
                              .secret = secret,
                              .bootstrap_deadline = deadline});
    }
    make_nonblocking(listener_.get());
  }

  BootstrapCost run() {
    StoreProcess store(credentials_.front(), std::move(listener_));
    BootstrapCost cost{.ranks = static_cast<int>(ranks_),
                       .nodes = static_cast<int>((ranks_ + ranks_per_node_ - 1) / ranks_per_node_)};
    began_ = Clock::now();
    add(0, store.take_rank_zero()).begin_as_member();
    move_until([](const PlayedRank& rank) { return rank.knows_node(); });
    cost.join_seconds = seconds();
    move_until([](const PlayedRank& rank) { return rank.is_done(); });
    cost.seconds = seconds();
    cost.store_bytes = store.most_bytes();
    for (const auto& rank : played_) cost.received_bytes += rank->received_bytes();
    return cost;
  }

 private:
  PlayedRank& add(std::size_t rank, shm::Descriptor socket) {
    const std::size_t cap = rank == 0 ? largest_from_store : handshake_cap;
    played_.push_back(std::make_unique<PlayedRank>(credentials_[rank],
                                                   "node " + std::to_string(rank / ranks_per_node_),
                                                   Connection(std::move(socket), cap)));
    return *played_.back();
  }

  // Some connect at a time, while those that have are moved on.
  void connect_some(Clock::time_point deadline) {
    constexpr int at_a_time = 64;
    for (int i = 0; i < at_a_time && played_.size() < ranks_; ++i) {
      shm::Descriptor socket = connect_until(address_, deadline);
      if (!socket.valid()) fail_to_rehearse("cannot connect to the store");
      detect_dead_peer(socket.get());
      add(played_.size(), std::move(socket));
    }
  }

  template <typename Look>
  void move_until(Look&& reached) {
    const auto deadline = began_ + credentials_.front().bootstrap_deadline;
    const auto has_reached = [&](const auto& rank) { return reached(*rank); };
    while (played_.size() < ranks_ || !std::ranges::all_of(played_, has_reached)) {
      if (Clock::now() > deadline)
        fail_to_rehearse("not at the end within the time that it was given");
      connect_some(deadline);
      move(deadline);
    }
  }

  void move(Clock::time_point deadline) {
    entries_.clear();
    for (const auto& rank : played_) {
      entries_.push_back({.fd = rank->connection().descriptor(),
                          .events = rank->connection().events(),
                          .revents = 0});
    }
    const bool connecting = played_.size() < ranks_;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    ::poll(entries_.data(), entries_.size(), connecting ? 0 : static_cast<int>(left.count()));
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].revents != 0) played_[i]->exchange();
    }
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(Clock::now() - began_).count();
  }

  std::size_t ranks_;
  std::size_t ranks_per_node_;
  shm::Descriptor listener_;
  Address address_;
  std::vector<Credentials> credentials_;
  std::vector<std::unique_ptr<PlayedRank>> played_;
  std::vector<pollfd> entries_;
  Clock::time_point began_ = {};
};

}  // namespace

BootstrapCost rehearse_bootstrap(int ranks, int ranks_per_node,
                                 std::chrono::milliseconds deadline) {
  if (ranks < 1 || ranks_per_node < 1) {
    throw Error(Errc::bootstrap_failed, "rehearsal: a bootstrap has at least one rank on a node");
  }
  // Each process has this limit: the store inherits it.
  allow_descriptors(static_cast<std::size_t>(ranks) + 256, "the bootstrap that is played");
  return Rehearsal(ranks, ranks_per_node, deadline).run();
}

}  // namespace rondo::transport
