// A rank's side of the store: how it gets there, and its side channel over that connection.
//
// Connecting happens on the thread that makes the World, which may wait and retry until the
// deadline. After that the connection belongs to the service thread; the World's thread puts what
// it wants to say into a list, wakes the service thread and waits for the parts of an allgather.

#include "bootstrap/store.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <optional>
#include <random>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include <rondo/transport/error.hpp>

namespace rondo::transport::bootstrap {
namespace {

// The pause between two attempts. It grows from try to try, and half of it is random.
class Backoff {
 public:
  void pause(Clock::time_point deadline) {
    using namespace std::chrono_literals;
    std::uniform_real_distribution<double> part(0.5, 1.0);
    const auto length = std::chrono::duration_cast<Clock::duration>(next_ * part(random_));
    std::this_thread::sleep_until(std::min(deadline, Clock::now() + length));
    next_ = std::min(next_ * 2, Clock::duration(500ms));
  }

 private:
  Clock::duration next_ = std::chrono::milliseconds(5);
  std::minstd_rand random_{std::random_device{}()};
};

// The frame that comes until `until`; nothing when the connection ended or stayed silent.
std::optional<Frame> wait_for_frame(Connection& connection, Clock::time_point until) {
  while (true) {
    if (std::optional<Frame> frame = connection.next()) return frame;
    if (connection.ended()) return std::nullopt;
    if (!wait_until_ready(connection.descriptor(), connection.events(), until)) return std::nullopt;
    connection.exchange();
  }
}

// Why an allgather cannot succeed after such a message; empty when it can.
std::string consequence(const StatusMessage& message) {
  switch (message.kind) {
    case StatusMessage::Kind::left:
      return "rendezvous: rank " + std::to_string(message.rank) + " has left already";
    case StatusMessage::Kind::lost:
      return "rendezvous: lost " + message.text;
    case StatusMessage::Kind::aborted:
      return "rendezvous: rank " + std::to_string(message.rank) + " aborted: " + message.text;
    case StatusMessage::Kind::diverged:
      break;
  }
  return {};
}

}  // namespace

// A connection to the store, after the handshake.
struct StoreClient::StoreConnection {
  Connection connection;
  std::string host = {};           // rank 0's
  std::string local_address = {};  // this host's, on the way there
};

// Connects to the store at `endpoint`, and proves to be a member.
class StoreClient::Connector {
 public:
  Connector(const Credentials& credentials, const Endpoint& endpoint)
      : credentials_(credentials),
        endpoint_(endpoint),
        deadline_(Clock::now() + credentials.rendezvous_deadline) {}

  StoreConnection connect() {
    Backoff backoff;
    do {
      for (const Address& address : resolve(endpoint_)) {
        if (std::optional<StoreConnection> store = attempt(address)) return std::move(*store);
      }
      backoff.pause(deadline_);
    } while (Clock::now() < deadline_);
    fail("cannot reach the store of rank 0 at " + to_string(endpoint_) + " in time: " + problem_ +
         "; is rank 0 running, and the port open between the hosts?");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const RankIdentity& self = credentials_.self;
    throw Error(Errc::rendezvous_failed, "rendezvous: rank " + std::to_string(self.rank) + " of " +
                                             std::to_string(self.size) + " on host " + self.host +
                                             " " + what);
  }

  std::optional<StoreConnection> attempt(const Address& address) {
    if (credentials_.secret.empty() && !address.loopback()) {
      fail("has no secret, and does not connect to another host (" + address.host() +
           ") without one; set RONDO_SECRET, or make ~/.rondo/secret");
    }
    // Another address of the same name may work where this one is dead.
    constexpr std::chrono::seconds patience{3};
    shm::Descriptor socket = connect_until(address, std::min(deadline_, Clock::now() + patience));
    if (!socket.valid()) {
      problem_ = address.host() + ": " + std::generic_category().message(errno);
      return std::nullopt;
    }
    detect_dead_peer(socket.get());
    return shake_hands(std::move(socket), address);
  }

  // Nothing when another attempt may succeed; `problem_` then says why this one did not.
  std::optional<StoreConnection> shake_hands(shm::Descriptor socket, const Address& address) {
    const auto until = std::min(deadline_, Clock::now() + handshake_limit);
    StoreConnection store{.connection = Connection(std::move(socket), handshake_cap)};
    Connection& connection = store.connection;
    RankHandshake handshake;
    const auto challenge = wait_for_frame(connection, until);
    if (!challenge) return note_silence(connection, address);
    if (credentials_.secret.empty() && !is_trusted(connection, address)) return std::nullopt;
    const auto answer = handshake.answer(*challenge, credentials_.self, credentials_.secret);
    if (!answer) {
      fail("found no store at " + to_string(endpoint_) +
           " but another program, or another version of Rondo; choose another port");
    }
    connection.send(*answer);
    const auto reply = wait_for_frame(connection, until);
    if (!reply) return note_silence(connection, address);
    if (reply->type == Frame::Type::later) {
      problem_ = printable(reply->payload);
      return std::nullopt;
    }
    if (reply->type == Frame::Type::refused) {
      fail("was refused by rank 0 at " + to_string(endpoint_) + ": " + printable(reply->payload));
    }
    const auto host = handshake.verify(*reply, credentials_.secret);
    if (!host) {
      fail("does not trust the store at " + to_string(endpoint_) +
           ": it does not know the job's secret");
    }
    store.host = printable(*host);
    store.local_address = own_address(connection.descriptor()).host();
    return store;
  }

  // Without a secret, a store is trusted if it belongs to the same user. This is checked after its
  // challenge, because a connection that has not been accepted has no owner. A connection that the
  // store has closed since has none either, and is worth another try.
  bool is_trusted(const Connection& connection, const Address& address) {
    const auto user = user_of_other_end(connection.descriptor());
    if (user == ::geteuid()) return true;
    if (user) {
      fail("has no secret, and the store at " + to_string(endpoint_) + " is that of user " +
           std::to_string(*user) + "; set RONDO_SECRET, or make ~/.rondo/secret");
    }
    problem_ = address.host() +
               ": this rank has no secret, and cannot tell whether the store is the same user's";
    return false;
  }

  std::nullopt_t note_silence(const Connection& connection, const Address& address) {
    problem_ = address.host() + ": " +
               (connection.ended() ? connection.end() : "no answer to the handshake");
    return std::nullopt;
  }

  const Credentials& credentials_;
  const Endpoint& endpoint_;
  Clock::time_point deadline_;
  std::string problem_ = "no address";
};

// A rank's end of its connection to the store: what its own threads ask for, and what the service
// thread does about it.
class StoreClient::Line final : public ServiceTask {
 public:
  Line(const RankIdentity& self, StoreConnection store);

  // From any thread. The service thread is to be woken after post_blob(), watch() and
  // post_status().

  // Begins a round of allgather. Throws Error(rendezvous_failed) when there can be none.
  void post_blob(std::string_view mine);
  // The parts of the round begun. Throws Error(rendezvous_failed) as soon as it has failed.
  [[nodiscard]] std::vector<std::string> wait_for_blobs(std::chrono::milliseconds limit);
  void watch(std::function<void(const StatusMessage&)> handler);
  void post_status(StatusMessage message);
  // As a status message, unless that was posted already.
  void post_left();

  // On the service thread.
  void list(std::vector<pollfd>& entries) override;
  [[nodiscard]] Clock::time_point due() const override { return Clock::time_point::max(); }
  void attend(std::span<const pollfd> entries, Clock::time_point now) override;
  void on_failure(std::string_view why) noexcept override;
  void finish() override;
  [[nodiscard]] bool finished() const override { return closed_; }

 private:
  void send_posted();
  void receive(const Frame& frame);
  void receive(StatusMessage message);
  void close(const std::string& why);
  void deliver();
  [[noreturn]] void throw_failure() const;

  const int rank_;
  const std::size_t size_;
  const std::string host_;

  Connection connection_;  // this and the next two: the service thread's
  bool closed_ = false;
  bool finishing_ = false;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Frame> posted_;
  bool left_ = false;
  std::uint64_t round_ = 0;  // of the next allgather
  std::optional<std::vector<std::string>> parts_;
  std::string failure_;  // why no allgather can succeed any more
  bool store_left_ = false;
  std::deque<StatusMessage> unhandled_;
  std::function<void(const StatusMessage&)> handler_;
};

StoreClient::Line::Line(const RankIdentity& self, StoreConnection store)
    : rank_(static_cast<int>(self.rank)),
      size_(self.size),
      host_(std::move(store.host)),
      connection_(std::move(store.connection)) {
  connection_.allow(largest_from_store);
}

// A failure that is known already is thrown here, without waiting for the other ranks.
void StoreClient::Line::post_blob(std::string_view mine) {
  if (mine.size() > largest_blob) {
    throw std::invalid_argument(
        "rondo::transport: a rank's part of a side channel's allgather "
        "has at most " +
        std::to_string(largest_blob) + " bytes, not " + std::to_string(mine.size()));
  }
  const std::scoped_lock lock(mutex_);
  if (!failure_.empty()) throw_failure();
  parts_.reset();
  posted_.push_back(encode(Blob{.round = round_, .bytes = std::string(mine)}));
}

std::vector<std::string> StoreClient::Line::wait_for_blobs(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, limit, [&] { return parts_ || !failure_.empty(); })) {
    failure_ =
        "rendezvous: rank 0 on host " + host_ + " did not answer in time; is its process stopped?";
  }
  // With all parts the allgather has succeeded, even if a rank was lost right after.
  if (!parts_) throw_failure();
  round_ += 1;
  return *std::exchange(parts_, std::nullopt);
}

void StoreClient::Line::watch(std::function<void(const StatusMessage&)> handler) {
  const std::scoped_lock lock(mutex_);
  handler_ = std::move(handler);
}

void StoreClient::Line::post_status(StatusMessage message) {
  message.text.resize(std::min(message.text.size(), longest_text));
  const std::scoped_lock lock(mutex_);
  if (message.kind == StatusMessage::Kind::left && message.rank == rank_) left_ = true;
  posted_.push_back(encode(message));
}

void StoreClient::Line::post_left() {
  const std::scoped_lock lock(mutex_);
  if (left_) return;
  left_ = true;
  posted_.push_back(encode(StatusMessage{.kind = StatusMessage::Kind::left, .rank = rank_}));
}

void StoreClient::Line::list(std::vector<pollfd>& entries) {
  entries.push_back({.fd = closed_ ? -1 : connection_.descriptor(),
                     .events = connection_.events(),
                     .revents = 0});
}

// First what is to be sent, then what has come, and at last the handler, which may take long.
void StoreClient::Line::attend(std::span<const pollfd> entries, Clock::time_point /*now*/) {
  if (!closed_) {
    send_posted();
    if (entries.front().revents != 0) connection_.exchange();
    while (const auto frame = connection_.next()) receive(*frame);
    if (connection_.ended()) close(connection_.end());
  }
  deliver();
}

// The lock is not held while the socket is used, so posting never waits for the network.
void StoreClient::Line::send_posted() {
  std::vector<Frame> posted;
  {
    const std::scoped_lock lock(mutex_);
    posted.swap(posted_);
  }
  for (const Frame& frame : posted) connection_.send(frame);
}

void StoreClient::Line::receive(const Frame& frame) {
  if (frame.type == Frame::Type::status) {
    if (auto message = decode_status(frame.payload)) receive(std::move(*message));
    return;
  }
  const std::scoped_lock lock(mutex_);
  if (frame.type == Frame::Type::failed && failure_.empty()) failure_ = printable(frame.payload);
  if (frame.type == Frame::Type::blobs) {
    auto blobs = decode_blobs(frame.payload);
    // What does not fit comes from a faulty store; the wait for it ends at its limit.
    if (blobs && blobs->round == round_ && blobs->parts.size() == size_) {
      parts_ = std::move(blobs->parts);
    }
  }
  changed_.notify_all();
}

void StoreClient::Line::receive(StatusMessage message) {
  const std::scoped_lock lock(mutex_);
  if (failure_.empty()) failure_ = consequence(message);
  if (message.kind == StatusMessage::Kind::left && message.rank == 0) store_left_ = true;
  unhandled_.push_back(std::move(message));
  changed_.notify_all();
}

// The end is expected when this rank finishes, or when rank 0 said that it leaves. Otherwise rank 0
// counts as lost, since more cannot be known from here.
void StoreClient::Line::close(const std::string& why) {
  closed_ = true;
  connection_.close();  // the store waits for that when it leaves
  bool expected = finishing_;
  {
    const std::scoped_lock lock(mutex_);
    expected = expected || store_left_;
  }
  if (expected) return;
  receive(StatusMessage{.kind = StatusMessage::Kind::lost,
                        .rank = 0,
                        .text = "rank 0 on host " + host_ + ": " + why});
}

// No lock is held while the handler runs: it may tell.
void StoreClient::Line::deliver() {
  while (true) {
    StatusMessage message;
    {
      const std::scoped_lock lock(mutex_);
      if (!handler_ || unhandled_.empty()) return;
      message = std::move(unhandled_.front());
      unhandled_.pop_front();
    }
    handler_(message);
  }
}

// The connection ends whatever happens, so that the others see this rank lost. It may have been the
// handler that threw: the rest of the messages is offered to it all the same.
void StoreClient::Line::on_failure(std::string_view why) noexcept {
  try {
    if (!closed_) close("this rank's connection to it has failed: " + std::string(why));
  } catch (...) {
    connection_.close();
  }
  for (bool again = true; again;) {
    try {
      deliver();
      again = false;
    } catch (...) {
      // deliver() has taken one from the list before it called the handler.
    }
  }
}

void StoreClient::Line::finish() {
  finishing_ = true;
  if (closed_) return;
  send_posted();
  connection_.finish_sending();
}

void StoreClient::Line::throw_failure() const { throw Error(Errc::rendezvous_failed, failure_); }

StoreClient::StoreClient(const Credentials& credentials, StoreConnection store,
                         std::unique_ptr<StoreServer> server)
    : deadline_(credentials.rendezvous_deadline),
      local_address_(store.local_address),
      server_(std::move(server)),
      line_(std::make_unique<Line>(credentials.self, std::move(store))),
      // The line finishes first: through it rank 0 tells that it leaves.
      service_(server_ ? std::vector<ServiceTask*>{line_.get(), server_.get()}
                       : std::vector<ServiceTask*>{line_.get()}) {}

StoreClient::~StoreClient() { line_->post_left(); }

std::unique_ptr<StoreClient> StoreClient::serve(const Credentials& credentials,
                                                shm::Descriptor listener) {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    throw Error(Errc::rendezvous_failed, "rendezvous: rank 0 cannot make a socket pair");
  }
  StoreConnection own{.connection = Connection(shm::Descriptor(ends[0]), handshake_cap),
                      .host = credentials.self.host};
  shm::Descriptor far(ends[1]);
  make_nonblocking(listener.get());
  auto server = std::make_unique<StoreServer>(credentials, std::move(listener), std::move(far));
  return std::unique_ptr<StoreClient>(
      new StoreClient(credentials, std::move(own), std::move(server)));
}

std::unique_ptr<StoreClient> StoreClient::join(const Credentials& credentials,
                                               const Endpoint& endpoint) {
  return std::unique_ptr<StoreClient>(
      new StoreClient(credentials, Connector(credentials, endpoint).connect(), nullptr));
}

std::vector<std::string> StoreClient::allgather(std::string_view mine) {
  // The store knows best who did not come, and says so at the deadline; give it time to.
  constexpr std::chrono::seconds grace{5};
  line_->post_blob(mine);
  service_.wake();
  return line_->wait_for_blobs(deadline_ + grace);
}

void StoreClient::watch(std::function<void(const StatusMessage&)> handler) {
  line_->watch(std::move(handler));
  service_.wake();
}

void StoreClient::tell(const StatusMessage& message) noexcept {
  line_->post_status(message);
  service_.wake();
}

std::string StoreClient::local_address() const {
  return server_ ? server_->reached_at() : local_address_;
}

}  // namespace rondo::transport::bootstrap
