// The store of rank 0: who may join, allgather, and what ranks tell each other.
//
// One thread serves all ranks, so nothing here waits: each turn receives what has come and sends
// what the sockets accept. Anybody on the network may connect. A connection is unverified until it
// has proved to know the secret; then it becomes a member or is refused with the reason. Members
// are served first, so that unverified connections cannot delay them.

#include "bootstrap/store.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <numeric>
#include <utility>

namespace rondo::transport::bootstrap {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t spare_unverified = 128;
constexpr auto pause_without_descriptors = 100ms;

pollfd poll_entry(const Connection& connection) {
  return {.fd = connection.descriptor(), .events = connection.events(), .revents = 0};
}

}  // namespace

// Rank 0 is a member from the beginning, over its own end of a socket pair.
StoreServer::StoreServer(Credentials credentials, shm::Descriptor listener, shm::Descriptor own,
                         Listener kind)
    : credentials_(std::move(credentials)),
      kind_(kind),
      listener_(std::move(listener)),
      members_(credentials_.self.size),
      history_(credentials_.self.size),
      leaders_(credentials_.self.size),
      rounds_(credentials_.self.size),
      waits_(credentials_.self.size) {
  members_[0] = std::make_unique<Member>(Connection(std::move(own), largest_from_rank),
                                         credentials_.self.host);
  history_[0] = {.came = true, .process = credentials_.self.process};
  std::iota(leaders_.begin(), leaders_.end(), std::size_t{0});
}

StoreServer::~StoreServer() { stop_listening(); }

// Closing alone would leave the port to the copy of a child that was forked meanwhile, such as a
// worker that loads data, and the next World could not listen there.
void StoreServer::stop_listening() noexcept {
  const shm::Descriptor closed = std::move(listener_);
  if (kind_ == Listener::own && closed.valid()) ::shutdown(closed.get(), SHUT_RDWR);
}

// The order of the entries is that in which attend() reads them.
void StoreServer::list(std::vector<pollfd>& entries) {
  const bool accepting = !finishing_ && accept_again_at_ <= Clock::now();
  entries.push_back({.fd = accepting ? listener_.get() : -1, .events = POLLIN, .revents = 0});
  for (const auto& candidate : unverified_) entries.push_back(poll_entry(candidate->connection));
  for (const auto& member : members_) {
    if (member) entries.push_back(poll_entry(member->connection));
  }
}

Clock::time_point StoreServer::due() const {
  Clock::time_point due = rounds_.deadline();
  if (!unverified_.empty()) due = std::min(due, unverified_.front()->until);
  if (accept_again_at_ > Clock::now()) due = std::min(due, accept_again_at_);
  return due;
}

void StoreServer::attend(std::span<const pollfd> entries, Clock::time_point now) {
  const bool has_new = entries.front().revents != 0;
  entries = entries.subspan(1);
  const std::size_t unverified = unverified_.size();
  // Members come first: ranks that are admitted below have no entry yet.
  std::size_t next = unverified;
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank] && entries[next++].revents != 0) serve(rank, now);
  }
  for (std::size_t i = 0; i < unverified; ++i) {
    if (entries[i].revents != 0) verify(*unverified_[i]);
  }
  drop_decided(now);
  if (has_new) accept_some(now);
  if (now >= rounds_.deadline()) fail("bootstrap: " + rounds_.missing() + " in time");
  report_lost_members(now);
}

void StoreServer::accept_some(Clock::time_point now) {
  // A few per turn: members get theirs.
  constexpr int most = 64;
  for (int i = 0; i < most; ++i) {
    shm::Descriptor socket(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (make_room(errno, now)) continue;
      return;
    }
    statistics_.connections += 1;
    if (unverified_.size() >= members_.size() + spare_unverified) drop_oldest_unverified();
    detect_dead_peer(socket.get());
    unverified_.push_back(std::make_unique<Unverified>(Connection(std::move(socket), handshake_cap),
                                                       StoreHandshake(), now + handshake_limit));
    Unverified& candidate = *unverified_.back();
    candidate.connection.send(candidate.handshake.challenge());
  }
}

void StoreServer::drop_oldest_unverified() {
  unverified_.erase(unverified_.begin());
  statistics_.unverified += 1;
}

// When descriptors ran out: true when it is worth another try now.
bool StoreServer::make_room(int error, Clock::time_point now) {
  if (error == ECONNABORTED || error == EINTR) return true;
  if (error == EAGAIN || error == EWOULDBLOCK) return false;
  if (!unverified_.empty()) {
    drop_oldest_unverified();
    return true;
  }
  accept_again_at_ = now + pause_without_descriptors;
  return false;
}

void StoreServer::drop_decided(Clock::time_point now) {
  std::erase_if(unverified_, [&](const std::unique_ptr<Unverified>& candidate) {
    // Admitted ones have lost their descriptor; refused ones are sent nothing more.
    if (candidate->until == Clock::time_point::min()) return true;
    if (!candidate->connection.ended() && now < candidate->until) return false;
    statistics_.unverified += 1;
    return true;
  });
}

// One frame decides: its sender becomes a member, is refused with the reason or told to come again.
void StoreServer::verify(Unverified& candidate) {
  candidate.connection.exchange();
  const std::optional<Frame> frame = candidate.connection.next();
  if (!frame) return;
  // Whatever the decision is, drop_decided() removes the candidate at the end of this turn.
  candidate.until = Clock::time_point::min();
  if (credentials_.secret.empty() && !is_same_user_without_secret(candidate)) return;
  if (const auto who = candidate.handshake.verify(*frame, credentials_.secret)) {
    return admit(candidate, *who);
  }
  statistics_.unverified += 1;
  candidate.connection.send({.type = Frame::Type::refused,
                             .payload = "this rank's secret is not the job's; give all ranks the "
                                        "same RONDO_SECRET or ~/.rondo/secret"});
}

// Without a secret, a rank is trusted if it belongs to the same user. When the kernel does not know
// the user, because it did not find the connection or that has ended, the rank may try again.
bool StoreServer::is_same_user_without_secret(Unverified& candidate) {
  const auto user = user_of_other_end(candidate.connection.descriptor());
  if (user == ::geteuid()) return true;
  statistics_.unverified += 1;
  candidate.connection.send(
      {.type = user ? Frame::Type::refused : Frame::Type::later,
       .payload = "the store has no secret, and this rank is not known to be the same user; set "
                  "RONDO_SECRET, or make ~/.rondo/secret"});
  return false;
}

// The sender knows the secret. The checks go from the job to the single rank, so that the reason
// which is sent is the most general one.
void StoreServer::admit(Unverified& candidate, const RankIdentity& who) {
  const RankIdentity& self = credentials_.self;
  if (who.job != self.job) {
    return refuse(candidate, "this is the store of job " + self.job + ", not of " +
                                 printable(who.job) + "; its port is taken by the other job");
  }
  if (const std::string why = mismatch(self, who); !why.empty()) {
    // The job cannot begin without this rank, so all ranks are told now and not at the deadline.
    refuse(candidate, why);
    return fail("bootstrap: " + why);
  }
  if (who.rank >= self.size) {
    return refuse(candidate, rank_on_host(who) + " is out of range: the job has " +
                                 std::to_string(self.size) + " ranks, from 0");
  }
  if (history_[who.rank].came) return answer_known_rank(candidate, who);
  Connection& connection = candidate.connection;
  note_address(connection.descriptor());
  connection.send(candidate.handshake.welcome(self.host, credentials_.secret));
  // A rank that comes late learns at once that the job has failed already.
  if (!failure_.empty()) connection.send({.type = Frame::Type::failed, .payload = failure_});
  connection.allow(largest_from_rank);
  history_[who.rank] = {.came = true, .process = who.process};
  members_[who.rank] = std::make_unique<Member>(std::move(connection), printable(who.host));
}

// A second connection of a rank. Its own process may be ahead of this one: it has left the World
// and attached again, though its old connection has not ended here. Any other process is a mistake
// of the launch.
void StoreServer::answer_known_rank(Unverified& candidate, const RankIdentity& who) {
  const History& past = history_[who.rank];
  if (past.left || past.process == who.process) {
    statistics_.too_early += 1;
    return candidate.connection.send(
        {.type = Frame::Type::later,
         .payload = "rank 0 is still in the job's previous World, which " + rank_on_host(who) +
                    " has left"});
  }
  const auto& member = members_[who.rank];
  refuse(candidate, rank_on_host(who) +
                        (member ? " is there already, from host " + member->host
                                : " was there already, and has ended") +
                        "; every process needs a RONDO_RANK of its own");
}

// An address that ranks of other hosts used is worth more than loopback, and the first such stays.
void StoreServer::note_address(int socket) {
  const Address address = own_address(socket);
  const std::scoped_lock lock(mutex_);
  if (reached_from_afar_) return;
  reached_at_ = address.host();
  reached_from_afar_ = !address.loopback();
}

std::string StoreServer::reached_at() const {
  const std::scoped_lock lock(mutex_);
  return reached_at_;
}

void StoreServer::refuse(Unverified& candidate, const std::string& why) {
  statistics_.refused += 1;
  candidate.connection.send({.type = Frame::Type::refused, .payload = why});
}

// Frames of any other type are dropped: a member that sends them is faulty, but harms only itself.
void StoreServer::serve(std::size_t rank, Clock::time_point now) {
  Connection& connection = members_[rank]->connection;
  connection.exchange();
  while (const auto frame = connection.next()) {
    if (frame->type == Frame::Type::blob || frame->type == Frame::Type::node) {
      take_blob(rank, *frame, now);
    } else if (frame->type == Frame::Type::parts) {
      take_parts(rank, *frame, now);
    } else if (frame->type == Frame::Type::status) {
      take_status(rank, *frame);
    }
  }
}

void StoreServer::take_blob(std::size_t rank, const Frame& frame, Clock::time_point now) {
  std::optional<Blob> blob = decode_blob(frame.payload);
  if (!blob || !failure_.empty()) return;
  if (!rounds_.add(rank, std::move(*blob), now + credentials_.bootstrap_deadline)) return;
  answer(frame.type);
}

// Parts of ranks on other nodes are ignored.
void StoreServer::take_parts(std::size_t rank, const Frame& frame, Clock::time_point now) {
  std::optional<NodeParts> parts = decode_parts(frame.payload);
  if (!parts || !failure_.empty()) return;
  for (NodeParts::Part& part : parts->parts) {
    if (part.rank >= leaders_.size() || leaders_[part.rank] != rank) continue;
    static_cast<void>(rounds_.add(part.rank,
                                  {.round = parts->round, .bytes = std::move(part.bytes)},
                                  now + credentials_.bootstrap_deadline));
  }
  answer(frame.type);
}

// Once all parts of a round have come. All ranks ask for the same; the last one's word counts.
void StoreServer::answer(Frame::Type asked) {
  const std::optional<Blobs> all = rounds_.complete();
  if (!all) return;
  if (asked == Frame::Type::node) {
    answer_with_rosters(*all);
  } else {
    answer_with_parts(*all);
  }
}

// The leaders get all parts, and pass them on. The other ranks are told that the round is complete,
// so that they know which status messages come after it.
void StoreServer::answer_with_parts(const Blobs& all) {
  const Frame frame = encode(all);
  if (frame.payload.size() > largest_from_store) {
    return fail("bootstrap: the ranks' parts of an allgather have " +
                std::to_string(frame.payload.size()) + " bytes together; at most " +
                std::to_string(largest_from_store) + " can be sent");
  }
  const SharedFrame whole = share(frame);
  const SharedFrame complete = share(encode(Blobs{.round = all.round}));
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    if (!members_[rank]) continue;
    const bool leads = leaders_[rank] == rank;
    statistics_.whole += leads ? 1 : 0;
    members_[rank]->connection.send(leads ? whole : complete);
  }
}

// Equal keys are one node, and its first rank leads it.
void StoreServer::answer_with_rosters(const Blobs& keys) {
  const std::uint64_t token = random_number();
  std::map<std::string_view, Roster> nodes;
  for (std::size_t rank = 0; rank < keys.parts.size(); ++rank) {
    Roster& roster = nodes[keys.parts[rank]];
    roster.token = token;
    roster.ranks.push_back(static_cast<std::uint32_t>(rank));
    leaders_[rank] = roster.ranks.front();
  }
  for (const auto& [key, roster] : nodes) {
    const SharedFrame frame = share(encode(roster));
    for (const std::uint32_t rank : roster.ranks) {
      if (members_[rank]) members_[rank]->connection.send(frame);
    }
  }
}

void StoreServer::take_status(std::size_t rank, const Frame& frame) {
  const std::optional<StatusMessage> message = decode_status(frame.payload);
  if (!message) return;
  const int sender = static_cast<int>(rank);
  switch (message->kind) {
    case StatusMessage::Kind::waits:
      return waits_.set(sender, decode_ranks(message->text));
    case StatusMessage::Kind::asks:
      return answer_who_is_at_fault(rank, decode_ranks(message->text));
    case StatusMessage::Kind::left:
      if (message->rank == sender) history_[rank].left = true;
      break;
    case StatusMessage::Kind::at_fault:
      return;
    case StatusMessage::Kind::lost:
    case StatusMessage::Kind::aborted:
    case StatusMessage::Kind::diverged:
    case StatusMessage::Kind::gave_up:
      break;
  }
  send_to_others(rank, frame);
}

void StoreServer::answer_who_is_at_fault(std::size_t rank, const std::vector<int>& missing) {
  const int found = waits_.fault(missing);
  if (found < 0) return;
  members_[rank]->connection.send(
      encode(StatusMessage{.kind = StatusMessage::Kind::at_fault, .rank = found}));
}

// Members whose connections have ended: those that did not say that they leave are lost. Telling of
// one may find out another, so this is repeated until nothing is found.
void StoreServer::report_lost_members(Clock::time_point now) {
  for (bool again = true; again;) {
    again = false;
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      if (!members_[rank] || !members_[rank]->connection.ended()) continue;
      serve(rank, now);  // it may have told that it leaves
      const std::unique_ptr<Member> member = std::move(members_[rank]);
      if (history_[rank].left || finishing_) continue;
      again = true;
      send_to_others(rank,
                     encode(StatusMessage{.kind = StatusMessage::Kind::lost,
                                          .rank = static_cast<int>(rank),
                                          .text = "rank " + std::to_string(rank) + " on host " +
                                                  member->host + ": " + member->connection.end()}));
    }
  }
}

void StoreServer::send_to_others(std::size_t rank, const Frame& frame) {
  const SharedFrame shared = share(frame);
  for (std::size_t other = 0; other < members_.size(); ++other) {
    if (other != rank && members_[other]) members_[other]->connection.send(shared);
  }
}

void StoreServer::send_to_all(const SharedFrame& frame) {
  for (const auto& member : members_) {
    if (member) member->connection.send(frame);
  }
}

// Only the first reason counts: the others follow from it.
void StoreServer::fail(const std::string& why) {
  rounds_.stop();
  if (!failure_.empty()) return;
  failure_ = why;
  send_to_all(share({.type = Frame::Type::failed, .payload = why}));
}

// The members learn it from the end of their connections.
void StoreServer::on_failure(std::string_view /*why*/) noexcept {
  unverified_.clear();
  for (auto& member : members_) member.reset();
  stop_listening();
}

// The members close their ends when they have read everything; attend() then removes them.
void StoreServer::finish() {
  finishing_ = true;
  unverified_.clear();
  for (const auto& member : members_) {
    if (member) member->connection.finish_sending();
  }
}

bool StoreServer::finished() const {
  return std::ranges::none_of(members_, [](const auto& member) { return member != nullptr; });
}

}  // namespace rondo::transport::bootstrap
