// The link over TCP sockets: it needs no library, and any network with IP will do.
//
// A send is held back until progress() or send_now(), so that what one operation posts leaves in
// one packet; peers with something to do are visited by each call of progress(). Connections of
// other ranks are looked for often while somebody is awaited who has none, else now and then. A
// rank that sleeps does so on an epoll descriptor that watches exactly what it would visit.

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "links/plugin.hpp"
#include "links/tcp/endpoint.hpp"
#include "links/tcp/link.hpp"
#include "links/tcp/peer.hpp"

namespace rondo::transport::tcp {
namespace {

// Calls of progress() between two looks for connections, when nobody is awaited, and between two
// looks for peers that are cut off.
constexpr unsigned calls_between_looks = 64;
// Connections that have sent no request, besides those that the peers may have under way; the
// oldest goes when there are more.
constexpr std::size_t spare_unverified = 128;

class TcpLink final : public Link {
 public:
  explicit TcpLink(const LinkOptions& options);
  TcpLink(const TcpLink&) = delete;
  TcpLink& operator=(const TcpLink&) = delete;
  ~TcpLink() override;

  void post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                 Transfer& transfer) override;
  void post_recv(int peer, std::uint64_t tag, std::span<std::byte> data,
                 Transfer& transfer) override;
  bool progress() override;
  void send_now() override;
  void cancel(Transfer& transfer) override;
  void discard(int peer, std::uint64_t tag, std::uint64_t mask) override;
  [[nodiscard]] std::string held_back(int peer) const override;
  [[nodiscard]] std::optional<int> arm() override;

  [[nodiscard]] std::string address() const override { return endpoint_.address(); }
  [[nodiscard]] std::string route() const override {
    return "tcp: sockets over " + endpoint_.interface();
  }
  [[nodiscard]] std::string error_text(const Transfer& transfer) const override;

 private:
  [[nodiscard]] std::string try_connect(int rank, const std::string& address) override;

  using Clock = std::chrono::steady_clock;

  [[nodiscard]] Peer* known(int rank) noexcept;
  Message* start(Message::Kind kind, int peer, std::uint64_t tag, const std::byte* data,
                 std::size_t bytes, Transfer& transfer);
  void list(int rank);
  [[nodiscard]] ConnectRequest request() const noexcept;
  [[nodiscard]] bool is_making_connection(const Peer& peer) const noexcept;
  bool step(int rank, Peer& peer);
  void look_for_cuts();
  bool look_for_connections();
  bool verify(UnverifiedConnection& connection);
  void fail_callers(int error);
  void admit(const ConnectRequest& request, shm::Descriptor socket);
  void watch(Peer& peer);
  void watch(int descriptor, std::uint32_t events, std::uint32_t& watched) noexcept;
  void progress_while(bool (Peer::*is_busy)() const noexcept, Clock::time_point deadline);

  Endpoint endpoint_;
  shm::Descriptor epoll_;
  std::uint32_t rank_;
  Pools pools_;
  std::vector<Peer> peers_;  // by rank
  std::vector<int> listed_;  // those that progress() visits; as large as peers_ from the start
  std::vector<UnverifiedConnection> unverified_;  // connections whose request has not been received
  std::uint32_t watched_ = 0;                     // of the listening socket
  unsigned calls_ = 0;
  bool someone_is_awaited_ = false;  // who has no connection
  bool watches_all_ = true;          // false: the kernel refused to watch a socket
};

TcpLink::TcpLink(const LinkOptions& options)
    : endpoint_(options),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      rank_(static_cast<std::uint32_t>(options.rank)),
      peers_(static_cast<std::size_t>(options.size)) {
  if (!epoll_.valid()) {
    throw OpenError("tcp: no epoll descriptor can be made: " +
                    std::generic_category().message(errno));
  }
  listed_.reserve(peers_.size());
  for (Peer& peer : peers_) peer.keep_at_most(options.most_unexpected);
}

// Until all has been written, and the other side has it: what the kernel would still send may be
// lost when something comes that nobody reads.
TcpLink::~TcpLink() {
  const auto deadline = Clock::now() + link_close_timeout;
  progress_while(&Peer::has_outgoing, deadline);
  for (Peer& peer : peers_) peer.finish_sending();
  progress_while(&Peer::has_unacknowledged, deadline);
  for (Peer& peer : peers_) peer.fail(pools_, Failure::link_closed);
}

void TcpLink::progress_while(bool (Peer::*is_busy)() const noexcept, Clock::time_point deadline) {
  while (std::ranges::any_of(peers_, is_busy) && Clock::now() < deadline) {
    if (progress()) continue;
    constexpr int a_moment_ms = 1;
    pollfd armed{.fd = arm().value_or(-1), .events = POLLIN, .revents = 0};
    ::poll(&armed, 1, a_moment_ms);
  }
}

std::string TcpLink::try_connect(int rank, const std::string& address) {
  const std::optional<Destination> to = Destination::parse(address, endpoint_.interface());
  if (!to) return "'" + address + "' is not of the form HOST PORT KEY";
  if (rank < 0 || static_cast<std::size_t>(rank) >= peers_.size()) return "there is no such rank";
  peers_[static_cast<std::size_t>(rank)].know(*to);
  return {};
}

std::string TcpLink::error_text(const Transfer& transfer) const {
  switch (static_cast<Failure>(transfer.error)) {
    case Failure::none:
      return "no error";
    case Failure::truncated:
      return "the message is longer than its receive";
    case Failure::cancelled:
      return "it was cancelled";
    case Failure::unknown_peer:
      return "the link knows no way to the rank";
    case Failure::closed:
      return "the other side closed the connection";
    case Failure::refused:
      return "the other side refused the connection";
    case Failure::no_memory:
      return "there is no memory for its messages";
    case Failure::link_closed:
      return "this side closed the link";
    case Failure::given_up:
      return "this side gave up a long message that had begun";
    default:
      return std::generic_category().message(transfer.error);
  }
}

// Null for ranks without an address.
Peer* TcpLink::known(int rank) noexcept {
  if (rank < 0 || static_cast<std::size_t>(rank) >= peers_.size()) return nullptr;
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  return peer.state() == Peer::State::unknown ? nullptr : &peer;
}

Message* TcpLink::start(Message::Kind kind, int peer, std::uint64_t tag, const std::byte* data,
                        std::size_t bytes, Transfer& transfer) {
  if (known(peer) == nullptr) {
    transfer.end(static_cast<std::int32_t>(Failure::unknown_peer), 0);
    return nullptr;
  }
  Message& message = pools_.messages.acquire();
  message.transfer = &transfer;
  message.kind = kind;
  message.peer = peer;
  message.header = {.tag = tag, .bytes = bytes};
  // A receive writes through the same pointer; a send never does.
  message.data = const_cast<std::byte*>(data);
  message.sent = 0;
  transfer.begin(&message);
  return &message;
}

void TcpLink::list(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (std::exchange(peer.listed, true)) return;
  listed_.push_back(rank);
}

void TcpLink::post_send(int rank, std::uint64_t tag, std::span<const std::byte> data,
                        Transfer& transfer) {
  Message* const message =
      start(Message::Kind::send, rank, tag, data.data(), data.size(), transfer);
  if (message == nullptr) return;
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.state() == Peer::State::failed) return end(pools_, *message, peer.failure(), 0);
  peer.post_send(*message);
  if (peer.state() == Peer::State::apart) peer.connect(pools_);
  list(rank);
}

void TcpLink::post_recv(int rank, std::uint64_t tag, std::span<std::byte> data,
                        Transfer& transfer) {
  Message* const message =
      start(Message::Kind::receive, rank, tag, data.data(), data.size(), transfer);
  if (message == nullptr) return;
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  peer.post_receive(pools_, *message);
  if (peer.awaits()) list(rank);
}

void TcpLink::cancel(Transfer& transfer) {
  if (!transfer.pending()) return;
  auto& message = *static_cast<Message*>(transfer.handle);
  peers_[static_cast<std::size_t>(message.peer)].cancel(pools_, message);
}

void TcpLink::discard(int rank, std::uint64_t tag, std::uint64_t mask) {
  if (Peer* const peer = known(rank)) peer->discard(pools_, tag, mask);
}

std::string TcpLink::held_back(int rank) const {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (!peer.is_held_back()) return {};
  return "its messages that no receive awaits take " + std::to_string(peer.kept_bytes()) +
         " bytes here, and no more are kept; post receives for them, or in the order in which it "
         "sends";
}

ConnectRequest TcpLink::request() const noexcept {
  return {.magic = request_magic, .rank = rank_, .size = static_cast<std::uint32_t>(peers_.size())};
}

bool TcpLink::is_making_connection(const Peer& peer) const noexcept {
  return peer.state() == Peer::State::connecting || peer.state() == Peer::State::handshake;
}

// All that can be done for one peer now.
bool TcpLink::step(int rank, Peer& peer) {
  if (is_making_connection(peer)) {
    return peer.continue_connecting(pools_, request(), rank_ > static_cast<std::uint32_t>(rank));
  }
  const bool moved = peer.send(pools_);
  return peer.receive(pools_) || moved;
}

// Peers that have nothing to do any more are not visited again.
bool TcpLink::progress() {
  bool moved = false;
  someone_is_awaited_ = false;
  for (std::size_t i = 0; i < listed_.size();) {
    const int rank = listed_[i];
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    moved = step(rank, peer) || moved;
    someone_is_awaited_ = someone_is_awaited_ || peer.state() < Peer::State::open;
    if (peer.has_outgoing() || peer.awaits() || is_making_connection(peer)) {
      i += 1;
      continue;
    }
    peer.listed = false;
    listed_[i] = listed_.back();
    listed_.pop_back();
  }
  calls_ += 1;
  const bool looks = calls_ % calls_between_looks == 0;
  if (looks) look_for_cuts();
  if (someone_is_awaited_ || !unverified_.empty() || looks) {
    moved = look_for_connections() || moved;
  }
  return moved;
}

void TcpLink::send_now() {
  for (const int rank : listed_) peers_[static_cast<std::size_t>(rank)].send(pools_);
}

void TcpLink::look_for_cuts() {
  const Clock::time_point now = Clock::now();
  for (const int rank : listed_) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    peer.give_up_if_cut_off(pools_);
    peer.connect_again(pools_, now);
  }
}

bool TcpLink::look_for_connections() {
  bool moved = false;
  Endpoint::Accepted came = endpoint_.accept();
  for (; came.socket.valid(); came = endpoint_.accept()) {
    moved = true;
    UnverifiedConnection connection{.socket = std::move(came.socket)};
    if (verify(connection)) continue;
    // Each peer may have made its connection and compute before it sends the request.
    if (unverified_.size() >= peers_.size() + spare_unverified) {
      unverified_.erase(unverified_.begin());
    }
    unverified_.push_back(std::move(connection));
  }
  if (came.error != 0) {
    fail_callers(came.error);
    moved = true;
  }
  for (std::size_t i = 0; i < unverified_.size();) {
    if (!verify(unverified_[i])) {
      i += 1;
      continue;
    }
    unverified_.erase(unverified_.begin() + static_cast<std::ptrdiff_t>(i));
    moved = true;
  }
  return moved;
}

// Receives its request. False: that has not come yet. Else the connection has been admitted, or is
// to be closed.
bool TcpLink::verify(UnverifiedConnection& connection) {
  ConnectRequest request;
  const HandshakeStep step = receive_request(connection, request, Clock::now());
  if (step == HandshakeStep::waits) return false;
  watch(connection.socket.get(), 0, connection.watched);
  if (step == HandshakeStep::done && endpoint_.knows(request)) {
    admit(request, std::move(connection.socket));
  }
  return true;
}

// A connection could not be taken, and nobody knows whose it was. So all fail that are awaited and
// may have made it. Where both ranks make one and that of this rank counts, the other can wait for
// it.
void TcpLink::fail_callers(int error) {
  for (const int rank : listed_) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    const bool own_counts = is_making_connection(peer) && rank_ < static_cast<std::uint32_t>(rank);
    if (peer.state() < Peer::State::open && !own_counts) peer.fail(pools_, failure_of(error));
  }
}

// When both ranks make a connection, the lower rank's counts. Connections not admitted are closed.
void TcpLink::admit(const ConnectRequest& request, shm::Descriptor socket) {
  const auto rank = static_cast<int>(request.rank);
  Peer* const peer = known(rank);
  if (peer == nullptr) return;
  const bool own_counts = is_making_connection(*peer) && rank_ < request.rank;
  if (own_counts || peer->state() >= Peer::State::open) return;
  peer->admit(pools_, std::move(socket));
  list(rank);
}

// Watches exactly what progress() would do something for: a socket that nobody reads would keep
// its rank awake.
std::optional<int> TcpLink::arm() {
  watches_all_ = true;
  look_for_cuts();
  for (const int rank : listed_) watch(peers_[static_cast<std::size_t>(rank)]);
  for (Peer& peer : peers_) {
    if (!peer.listed && peer.watched != 0) watch(peer);
  }
  for (UnverifiedConnection& connection : unverified_)
    watch(connection.socket.get(), EPOLLIN, connection.watched);
  watch(endpoint_.socket(), EPOLLIN, watched_);
  if (!watches_all_) return std::nullopt;
  return epoll_.get();
}

void TcpLink::watch(Peer& peer) {
  std::uint32_t events = 0;
  if (peer.state() == Peer::State::handshake || peer.reads()) events |= EPOLLIN;
  if (peer.state() == Peer::State::connecting || peer.writes()) events |= EPOLLOUT;
  if (peer.descriptor() >= 0) watch(peer.descriptor(), events, peer.watched);
}

// The kernel tells of lost connections even when it was asked for nothing: so such sockets are
// not watched at all.
void TcpLink::watch(int descriptor, std::uint32_t events, std::uint32_t& watched) noexcept {
  if (events == watched) return;
  epoll_event event{};
  event.events = events;
  if (events == 0) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, &event);
  } else if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0 &&
             ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, descriptor, &event) != 0) {
    watches_all_ = false;
    return;
  }
  watched = events;
}

std::unique_ptr<Link> open(const LinkOptions& options) {
  return std::make_unique<TcpLink>(options);
}

std::string describe() {
  std::string text = "version " RONDO_VERSION "\nprovider tcp over";
  for (const std::string& name : usable_interfaces()) text += " " + name;
  return text;
}

}  // namespace

constinit const LinkPlugin plugin = {
    .release = RONDO_VERSION, .open = &open, .describe = &describe};

}  // namespace rondo::transport::tcp
