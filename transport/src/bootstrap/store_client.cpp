// A rank's side channel over its connection to the store.
//
// The connection belongs to the service thread; the World's thread puts what it wants to say into a
// list, wakes the service thread and waits for the parts of an allgather.
//
// Once nodes are known, the parts of an allgather go through the leader of the node
// (node_relay.hpp). The connection to the store stays: by it the rank is known to be alive, and
// learns who is not.

#include "bootstrap/store.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <optional>
#include <stdexcept>
#include <utility>

#include <rondo/transport/error.hpp>

#include "base/best_effort.hpp"
#include "bootstrap/node_relay.hpp"
#include "bootstrap/store_connector.hpp"

namespace rondo::transport::bootstrap {
namespace {

// The store knows best who did not come, and says so at the deadline; it is given time to.
constexpr std::chrono::seconds grace{5};

// Why an allgather cannot succeed after such a message; empty when it can.
std::string consequence(const StatusMessage& message) {
  switch (message.kind) {
    case StatusMessage::Kind::left:
      return "bootstrap: rank " + std::to_string(message.rank) + " has left already";
    case StatusMessage::Kind::lost:
      return "bootstrap: lost " + message.text;
    case StatusMessage::Kind::aborted:
      return "bootstrap: rank " + std::to_string(message.rank) + " aborted: " + message.text;
    case StatusMessage::Kind::diverged:
    case StatusMessage::Kind::gave_up:
    case StatusMessage::Kind::waits:
    case StatusMessage::Kind::asks:
    case StatusMessage::Kind::at_fault:
      break;
  }
  return {};
}

}  // namespace

// A rank's end of its connection to the store: what its own threads ask for, and what the service
// thread does about it.
class StoreClient::Line final : public ServiceTask {
 public:
  Line(const RankIdentity& self, StoreConnection store);

  // From any thread. The service thread is to be woken after post_blob(), lead(), follow(), watch()
  // and post_status().

  // Begins a round: a Frame::Type::blob of an allgather, or a ::node to learn the roster. Throws
  // Error(bootstrap_failed) when there can be none.
  void post_blob(Frame::Type type, std::string_view mine);
  // Waits for the round's result. Throws Error(bootstrap_failed) as soon as the round has failed.
  [[nodiscard]] std::vector<std::string> wait_for_blobs(std::chrono::milliseconds limit);
  [[nodiscard]] Roster wait_for_roster(std::chrono::milliseconds limit);
  // Why the bootstrap has failed; empty when it has not.
  [[nodiscard]] std::string failure() const;
  // Why no allgather can succeed: also because a rank has left, which is no failure elsewhere.
  [[nodiscard]] std::string obstacle() const;
  // From now on this rank leads its node, or is connected to the rank that does.
  void lead(std::unique_ptr<NodeRelay> relay);
  void follow(shm::Descriptor leader);
  void watch(std::function<void(const StatusMessage&)> handler);
  void post_status(StatusMessage message);
  // The same without its text, for which there is no memory.
  void post_without_text(const StatusMessage& message) noexcept;
  [[nodiscard]] bool has_told_to_leave() const;

  // On the service thread.
  void list(std::vector<pollfd>& entries) override;
  [[nodiscard]] Clock::time_point due() const override;
  void attend(std::span<const pollfd> entries, Clock::time_point now) override;
  void on_failure(std::string_view why) noexcept override;
  void finish() override;
  [[nodiscard]] bool finished() const override {
    return closed_ && (relay_ == nullptr || relay_->finished());
  }

 private:
  void send_posted(Clock::time_point now);
  void send(const Frame& frame, Clock::time_point now);
  void exchange_with_leader();
  void receive(const Frame& frame);
  void receive_blobs(const Frame& frame);
  void receive(StatusMessage message);
  void close(const std::string& why);
  void deliver();
  void wait_until_decided(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds limit);
  [[nodiscard]] bool decided() const;
  [[noreturn]] void throw_failure() const;

  const int rank_;
  const std::size_t size_;
  const std::string host_;

  Connection connection_;  // this and what follows: the service thread's
  bool closed_ = false;
  bool finishing_ = false;
  std::unique_ptr<NodeRelay> relay_;    // on the leader of a node of several ranks
  std::unique_ptr<Connection> leader_;  // on the other ranks of that node

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Frame> posted_;
  std::optional<StatusMessage> cut_;  // posted, without its text
  bool left_ = false;
  std::uint64_t round_ = 0;  // of the next allgather
  std::optional<std::vector<std::string>> parts_;
  std::optional<Roster> roster_;
  bool complete_ = false;      // the store has all parts, and the leader brings them
  bool leader_ended_ = false;  // it will bring none any more
  std::unique_ptr<NodeRelay> new_relay_;
  std::unique_ptr<Connection> new_leader_;
  std::string failure_;    // why no allgather can succeed any more
  bool has_left_ = false;  // only because a rank has left, whose bootstrap is over
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
void StoreClient::Line::post_blob(Frame::Type type, std::string_view mine) {
  if (mine.size() > largest_blob) {
    throw std::invalid_argument(
        "rondo::transport: a rank's part of a side channel's allgather "
        "has at most " +
        std::to_string(largest_blob) + " bytes, not " + std::to_string(mine.size()));
  }
  const std::scoped_lock lock(mutex_);
  if (!failure_.empty()) throw_failure();
  parts_.reset();
  roster_.reset();
  complete_ = false;
  Frame frame = encode(Blob{.round = round_, .bytes = std::string(mine)});
  frame.type = type;
  posted_.push_back(std::move(frame));
}

std::vector<std::string> StoreClient::Line::wait_for_blobs(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  wait_until_decided(lock, limit);
  // With all parts the allgather has succeeded, even if a rank was lost right after.
  if (!parts_) throw_failure();
  round_ += 1;
  return *std::exchange(parts_, std::nullopt);
}

Roster StoreClient::Line::wait_for_roster(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  wait_until_decided(lock, limit);
  if (!roster_) throw_failure();
  round_ += 1;
  return *std::exchange(roster_, std::nullopt);
}

void StoreClient::Line::wait_until_decided(std::unique_lock<std::mutex>& lock,
                                           std::chrono::milliseconds limit) {
  if (changed_.wait_for(lock, limit, [this] { return decided(); })) return;
  failure_ = complete_ ? "bootstrap: the first rank of this node did not pass on the addresses of "
                         "the others in "
                         "time; is its process stopped?"
                       : "bootstrap: rank 0 on host " + host_ +
                             " did not answer in time; is its process stopped?";
}

// Once the store has said that the round is complete, a failure is one of what comes after it; then
// only the end of the leader can keep its parts from this rank.
bool StoreClient::Line::decided() const {
  return parts_ || roster_ || (complete_ ? leader_ended_ : !failure_.empty());
}

std::string StoreClient::Line::failure() const {
  const std::scoped_lock lock(mutex_);
  return has_left_ ? std::string() : failure_;
}

std::string StoreClient::Line::obstacle() const {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

void StoreClient::Line::lead(std::unique_ptr<NodeRelay> relay) {
  const std::scoped_lock lock(mutex_);
  new_relay_ = std::move(relay);
}

void StoreClient::Line::follow(shm::Descriptor leader) {
  const std::scoped_lock lock(mutex_);
  new_leader_ = std::make_unique<Connection>(std::move(leader), largest_from_store);
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

// The first of them counts: what follows is a consequence. Where the service thread has no memory
// for it, either, the connection ends, and this rank is lost for the others.
void StoreClient::Line::post_without_text(const StatusMessage& message) noexcept {
  const std::scoped_lock lock(mutex_);
  if (cut_) return;
  cut_ = StatusMessage{.kind = message.kind, .rank = message.rank, .context = message.context};
}

bool StoreClient::Line::has_told_to_leave() const {
  const std::scoped_lock lock(mutex_);
  return left_;
}

void StoreClient::Line::list(std::vector<pollfd>& entries) {
  entries.push_back({.fd = closed_ ? -1 : connection_.descriptor(),
                     .events = connection_.events(),
                     .revents = 0});
  if (leader_) {
    entries.push_back({.fd = leader_->descriptor(), .events = leader_->events(), .revents = 0});
  }
  if (relay_) relay_->list(entries);
}

Clock::time_point StoreClient::Line::due() const {
  return relay_ ? relay_->due() : Clock::time_point::max();
}

// Sends first, then receives, and calls the handler last, because it may take long. Reads the
// leader's frames before the store's, because they may be older.
void StoreClient::Line::attend(std::span<const pollfd> entries, Clock::time_point now) {
  if (relay_) relay_->attend(entries.subspan(1), now);
  if (leader_) exchange_with_leader();
  if (!closed_) {
    send_posted(now);
    if (entries.front().revents != 0) connection_.exchange();
    while (const auto frame = connection_.next()) receive(*frame);
    if (connection_.ended()) close(connection_.end());
  }
  deliver();
}

// The lock is not held while the socket is used, so posting never waits for the network.
void StoreClient::Line::send_posted(Clock::time_point now) {
  std::vector<Frame> posted;
  {
    const std::scoped_lock lock(mutex_);
    posted.swap(posted_);
    if (cut_) posted.push_back(encode(*std::exchange(cut_, std::nullopt)));
    if (new_relay_) relay_ = std::move(new_relay_);
    if (new_leader_) leader_ = std::move(new_leader_);
    // The allgathers are over: what was for them alone is not kept open.
    if (handler_) leader_.reset();
  }
  for (const Frame& frame : posted) send(frame, now);
  if (!relay_) return;
  while (const auto parts = relay_->take_parts(now)) connection_.send(encode(*parts));
}

// Parts of an allgather take the way through the leader, everything else goes to the store.
void StoreClient::Line::send(const Frame& frame, Clock::time_point now) {
  if (frame.type == Frame::Type::blob && relay_) {
    if (auto blob = decode_blob(frame.payload)) relay_->add(std::move(*blob), now);
  } else if (frame.type == Frame::Type::blob && leader_) {
    leader_->send(frame);
  } else {
    connection_.send(frame);
  }
}

void StoreClient::Line::exchange_with_leader() {
  leader_->exchange();
  while (const auto frame = leader_->next()) {
    if (frame->type == Frame::Type::blobs) receive_blobs(*frame);
  }
  if (!leader_->ended()) return;
  leader_.reset();
  const std::scoped_lock lock(mutex_);
  leader_ended_ = true;
  changed_.notify_all();
}

void StoreClient::Line::receive(const Frame& frame) {
  if (frame.type == Frame::Type::status) {
    if (auto message = decode_status(frame.payload)) receive(std::move(*message));
    return;
  }
  if (frame.type == Frame::Type::blobs) return receive_blobs(frame);
  const std::scoped_lock lock(mutex_);
  if (frame.type == Frame::Type::failed && failure_.empty()) failure_ = printable(frame.payload);
  if (frame.type == Frame::Type::roster) {
    auto roster = decode_roster(frame.payload);
    if (roster && std::ranges::count(roster->ranks, static_cast<std::uint32_t>(rank_)) == 1) {
      roster_ = std::move(*roster);
    }
  }
  changed_.notify_all();
}

// Takes blobs from the store or from the leader. Blobs that do not fit come from a faulty one; the
// wait for them ends at its limit.
void StoreClient::Line::receive_blobs(const Frame& frame) {
  auto blobs = decode_blobs(frame.payload);
  if (!blobs) return;
  // First of all: others wait for it.
  if (relay_) relay_->pass_on(frame);
  const std::scoped_lock lock(mutex_);
  if (blobs->round != round_) return;
  if (blobs->parts.empty()) complete_ = true;
  if (blobs->parts.size() == size_) parts_ = std::move(blobs->parts);
  changed_.notify_all();
}

void StoreClient::Line::receive(StatusMessage message) {
  const std::scoped_lock lock(mutex_);
  if (failure_.empty() || has_left_) {
    if (std::string why = consequence(message); !why.empty()) {
      failure_ = std::move(why);
      has_left_ = message.kind == StatusMessage::Kind::left;
    }
  }
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
  if (relay_) relay_->finish();
  if (closed_) return;
  send_posted(Clock::now());
  connection_.finish_sending();
}

void StoreClient::Line::throw_failure() const {
  if (!failure_.empty()) throw Error(Errc::bootstrap_failed, failure_);
  throw Error(Errc::bootstrap_failed,
              "bootstrap: the first rank of this node has ended, through which this rank "
              "exchanges addresses with the others");
}

StoreClient::StoreClient(const Credentials& credentials, StoreConnection store,
                         std::unique_ptr<StoreServer> server)
    : self_(credentials.self),
      deadline_(credentials.bootstrap_deadline),
      local_address_(store.local_address),
      server_(std::move(server)),
      line_(std::make_unique<Line>(credentials.self, std::move(store))),
      // The line finishes first: through it rank 0 tells that it leaves.
      service_(server_ ? std::vector<ServiceTask*>{line_.get(), server_.get()}
                       : std::vector<ServiceTask*>{line_.get()}) {}

StoreClient::~StoreClient() {
  if (!line_->has_told_to_leave()) {
    tell({.kind = StatusMessage::Kind::left, .rank = static_cast<int>(self_.rank)});
  }
}

std::unique_ptr<StoreClient> StoreClient::serve(const Credentials& credentials,
                                                shm::Descriptor listener, Listener kind) {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    throw Error(Errc::bootstrap_failed, "bootstrap: rank 0 cannot make a socket pair");
  }
  StoreConnection own{.connection = Connection(shm::Descriptor(ends[0]), handshake_cap),
                      .host = credentials.self.host};
  shm::Descriptor far(ends[1]);
  make_nonblocking(listener.get());
  auto server =
      std::make_unique<StoreServer>(credentials, std::move(listener), std::move(far), kind);
  return std::unique_ptr<StoreClient>(
      new StoreClient(credentials, std::move(own), std::move(server)));
}

std::unique_ptr<StoreClient> StoreClient::join(const Credentials& credentials,
                                               const Endpoint& endpoint) {
  return std::unique_ptr<StoreClient>(
      new StoreClient(credentials, connect_to_store(credentials, endpoint), nullptr));
}

std::vector<std::string> StoreClient::allgather(std::string_view mine) {
  line_->post_blob(Frame::Type::blob, mine);
  service_.wake();
  return line_->wait_for_blobs(deadline_ + grace);
}

void StoreClient::gather_by_node(std::string_view key) {
  line_->post_blob(Frame::Type::node, key);
  service_.wake();
  const Roster roster = line_->wait_for_roster(deadline_ + grace);
  if (roster.ranks.size() == 1) return;
  if (roster.ranks.front() == self_.rank) {
    line_->lead(std::make_unique<NodeRelay>(listen_as_leader(self_.job, roster), roster));
  } else {
    line_->follow(connect_to_leader_of(roster));
  }
  service_.wake();
}

// All ranks of the job are needed for the allgather that follows.
shm::Descriptor StoreClient::connect_to_leader_of(const Roster& roster) const {
  std::string failure;
  const auto has_failed = [&] { return !(failure = line_->obstacle()).empty(); };
  shm::Descriptor leader =
      connect_to_leader(self_.job, roster, self_.rank, Clock::now() + deadline_, has_failed);
  if (leader.valid()) return leader;
  if (failure.empty()) {
    failure = "bootstrap: rank " + std::to_string(self_.rank) + " could not connect to rank " +
              std::to_string(roster.ranks.front()) +
              " of its node in time; is its process stopped?";
  }
  throw Error(Errc::bootstrap_failed, failure);
}

std::string StoreClient::failure() const { return line_->failure(); }

void StoreClient::watch(std::function<void(const StatusMessage&)> handler) {
  line_->watch(std::move(handler));
  service_.wake();
}

// Words about waiting can be left out.
void StoreClient::tell(const StatusMessage& message) noexcept {
  const bool waits =
      message.kind == StatusMessage::Kind::waits || message.kind == StatusMessage::Kind::asks;
  const bool posted = if_memory_allows([&] { line_->post_status(message); });
  if (!posted && !waits) line_->post_without_text(message);
  service_.wake();
}

std::string StoreClient::local_address() const {
  return server_ ? server_->reached_at() : local_address_;
}

}  // namespace rondo::transport::bootstrap
