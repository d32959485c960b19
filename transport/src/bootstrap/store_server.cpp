#include "bootstrap/store_server.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "bootstrap/absent.hpp"
#include "bootstrap/limits.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/tcp.hpp"

namespace rondo::transport::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t spare_strangers = 128;
constexpr auto deaf_time = 100ms;

std::string named(const Introduction& who) {
  return "rank " + std::to_string(who.rank) + " on host " + printable(who.host);
}

// Why the whole job cannot begin; empty when it can.
std::string mismatch(const Introduction& store, const Introduction& who) {
  if (who.version != store.version) {
    return named(who) + " runs version " + printable(who.version) + ", rank 0 on host " +
           store.host + " runs " + store.version + "; install the same on all hosts";
  }
  if (who.size != store.size) {
    return named(who) + " was started as one of " + std::to_string(who.size) +
           " ranks, rank 0 on host " + store.host + " as one of " + std::to_string(store.size) +
           "; RONDO_SIZE must be equal on all ranks";
  }
  return {};
}

}  // namespace

StoreServer::StoreServer(Credentials credentials, shm::Descriptor listener, shm::Descriptor own)
    : credentials_(std::move(credentials)),
      listener_(std::move(listener)),
      members_(credentials_.self.size),
      past_(credentials_.self.size),
      gathering_(credentials_.self.size) {
  members_[0] = std::make_unique<Member>(Connection(std::move(own), largest_from_rank),
                                         credentials_.self.host);
  past_[0] = {.came = true, .process = credentials_.self.process};
}

std::size_t StoreServer::most_strangers() const noexcept {
  return members_.size() + spare_strangers;
}

void StoreServer::list(std::vector<pollfd>& entries) {
  const bool deaf = finishing_ || deaf_until_ > Clock::now();
  entries.push_back({.fd = deaf ? -1 : listener_.get(), .events = POLLIN, .revents = 0});
  const auto add = [&](const Connection& connection) {
    entries.push_back({.fd = connection.descriptor(), .events = connection.events(), .revents = 0});
  };
  for (const auto& stranger : strangers_) add(stranger->connection);
  for (const auto& member : members_) {
    if (member) add(member->connection);
  }
}

Clock::time_point StoreServer::due() const {
  Clock::time_point due = gathering_.deadline();
  if (!strangers_.empty()) due = std::min(due, strangers_.front()->until);
  if (deaf_until_ > Clock::now()) due = std::min(due, deaf_until_);
  return due;
}

void StoreServer::attend(std::span<const pollfd> entries, Clock::time_point now) {
  const bool knocked = entries.front().revents != 0;
  entries = entries.subspan(1);
  const std::size_t strangers = strangers_.size();
  // Members first: strangers must not delay them. Those who are admitted below have no entry yet.
  std::size_t next = strangers;
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank] && entries[next++].revents != 0) serve(rank, now);
  }
  for (std::size_t i = 0; i < strangers; ++i) {
    if (entries[i].revents != 0) greet(*strangers_[i]);
  }
  drop_strangers(now);
  if (knocked) accept_some(now);
  if (now >= gathering_.deadline()) fail("rendezvous: " + absent(gathering_.came()) + " in time");
  bury_the_lost(now);
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
    if (strangers_.size() >= most_strangers()) {
      strangers_.erase(strangers_.begin());
      statistics_.strangers += 1;
    }
    watch_line(socket.get());
    strangers_.push_back(std::make_unique<Stranger>(Connection(std::move(socket), handshake_cap),
                                                    Challenger(), now + handshake_limit));
    Stranger& stranger = *strangers_.back();
    stranger.connection.send(stranger.challenger.challenge());
  }
}

// When descriptors ran out: true when it is worth another try now.
bool StoreServer::make_room(int error, Clock::time_point now) {
  if (error == ECONNABORTED || error == EINTR) return true;
  if (error == EAGAIN || error == EWOULDBLOCK) return false;
  if (!strangers_.empty()) {
    strangers_.erase(strangers_.begin());
    statistics_.strangers += 1;
    return true;
  }
  deaf_until_ = now + deaf_time;
  return false;
}

void StoreServer::drop_strangers(Clock::time_point now) {
  std::erase_if(strangers_, [&](const std::unique_ptr<Stranger>& stranger) {
    // Those who were admitted or refused have lost their descriptor, or will be sent no more.
    if (stranger->until == Clock::time_point::min()) return true;
    if (!stranger->connection.ended() && now < stranger->until) return false;
    statistics_.strangers += 1;
    return true;
  });
}

void StoreServer::greet(Stranger& stranger) {
  stranger.connection.exchange();
  const std::optional<Frame> frame = stranger.connection.next();
  if (!frame) return;
  stranger.until = Clock::time_point::min();
  if (credentials_.secret.empty() && !is_trusted(stranger)) return;
  const auto who = stranger.challenger.verify(*frame, credentials_.secret);
  if (who) {
    admit(stranger, *who);
  } else {
    statistics_.strangers += 1;
    stranger.connection.send({.type = Frame::Type::refused,
                              .payload = "this rank's secret is not the job's; give all ranks the "
                                         "same RONDO_SECRET or ~/.rondo/secret"});
  }
}

// Without a secret the user is all that tells a rank from a stranger. When the kernel does not
// know, because it could not find the connection or that has ended, a rank may try again.
bool StoreServer::is_trusted(Stranger& stranger) {
  const auto user = user_of_other_end(stranger.connection.descriptor());
  if (user == ::geteuid()) return true;
  statistics_.strangers += 1;
  stranger.connection.send(
      {.type = user ? Frame::Type::refused : Frame::Type::later,
       .payload = "the store has no secret, and this rank is not known to be the same user; set "
                  "RONDO_SECRET, or make ~/.rondo/secret"});
  return false;
}

void StoreServer::admit(Stranger& stranger, const Introduction& who) {
  const Introduction& self = credentials_.self;
  if (who.job != self.job) {
    return refuse(stranger, "this is the store of job " + self.job + ", not of " +
                                printable(who.job) + "; its port is taken by the other job");
  }
  if (const std::string why = mismatch(self, who); !why.empty()) {
    refuse(stranger, why);
    return fail("rendezvous: " + why);
  }
  if (who.rank >= self.size) {
    return refuse(stranger, named(who) + " is out of range: the job has " +
                                std::to_string(self.size) + " ranks, from 0");
  }
  if (past_[who.rank].came) return admit_again(stranger, who);
  Connection& connection = stranger.connection;
  note_address(connection.descriptor());
  connection.send(stranger.challenger.welcome(self.host, credentials_.secret));
  if (!failure_.empty()) connection.send({.type = Frame::Type::failed, .payload = failure_});
  connection.allow(largest_from_rank);
  past_[who.rank] = {.came = true, .process = who.process};
  members_[who.rank] = std::make_unique<Member>(std::move(connection), printable(who.host));
}

void StoreServer::admit_again(Stranger& stranger, const Introduction& who) {
  const Past& past = past_[who.rank];
  if (past.left || past.process == who.process) {
    statistics_.too_early += 1;
    return stranger.connection.send(
        {.type = Frame::Type::later,
         .payload =
             "rank 0 is still in the job's previous World, which " + named(who) + " has left"});
  }
  const auto& member = members_[who.rank];
  refuse(stranger, named(who) +
                       (member ? " is there already, from host " + member->host
                               : " was there already, and has ended") +
                       "; every process needs a RONDO_RANK of its own");
}

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

void StoreServer::refuse(Stranger& stranger, const std::string& why) {
  statistics_.refused += 1;
  stranger.connection.send({.type = Frame::Type::refused, .payload = why});
}

void StoreServer::serve(std::size_t rank, Clock::time_point now) {
  Connection& connection = members_[rank]->connection;
  connection.exchange();
  while (const auto frame = connection.next()) {
    if (frame->type == Frame::Type::blob) {
      take_blob(rank, *frame, now);
    } else if (frame->type == Frame::Type::news) {
      take_news(rank, *frame);
    }
  }
}

void StoreServer::take_blob(std::size_t rank, const Frame& frame, Clock::time_point now) {
  std::optional<Blob> blob = decode_blob(frame.payload);
  if (!blob || !failure_.empty()) return;
  if (!gathering_.take(rank, std::move(*blob), now + credentials_.rendezvous_deadline)) return;
  const std::optional<Blobs> all = gathering_.complete();
  if (!all) return;
  const Frame answer = encode(*all);
  if (answer.payload.size() > largest_from_store) {
    return fail("rendezvous: the ranks' parts of an allgather have " +
                std::to_string(answer.payload.size()) + " bytes together; at most " +
                std::to_string(largest_from_store) + " can be sent");
  }
  for (const auto& member : members_) {
    if (member) member->connection.send(answer);
  }
}

void StoreServer::take_news(std::size_t rank, const Frame& frame) {
  const std::optional<News> news = decode_news(frame.payload);
  if (!news) return;
  if (news->kind == News::Kind::left && static_cast<std::size_t>(news->rank) == rank) {
    past_[rank].left = true;
  }
  send_to_others(rank, frame);
}

// Telling of one may find out another.
void StoreServer::bury_the_lost(Clock::time_point now) {
  for (bool again = true; again;) {
    again = false;
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      if (!members_[rank] || !members_[rank]->connection.ended()) continue;
      serve(rank, now);  // it may have told that it leaves
      const std::unique_ptr<Member> member = std::move(members_[rank]);
      if (past_[rank].left || finishing_) continue;
      again = true;
      send_to_others(rank, encode(News{.kind = News::Kind::lost,
                                       .rank = static_cast<int>(rank),
                                       .text = "rank " + std::to_string(rank) + " on host " +
                                               member->host + ": " + member->connection.end()}));
    }
  }
}

void StoreServer::send_to_others(std::size_t rank, const Frame& frame) {
  for (std::size_t other = 0; other < members_.size(); ++other) {
    if (other != rank && members_[other]) members_[other]->connection.send(frame);
  }
}

void StoreServer::fail(const std::string& why) {
  gathering_.give_up();
  if (!failure_.empty()) return;
  failure_ = why;
  for (const auto& member : members_) {
    if (member) member->connection.send({.type = Frame::Type::failed, .payload = why});
  }
}

// The members learn it from the end of their connections.
void StoreServer::on_failure(std::string_view /*why*/) noexcept {
  strangers_.clear();
  for (auto& member : members_) member.reset();
  const shm::Descriptor closed = std::move(listener_);
}

void StoreServer::finish() {
  finishing_ = true;
  strangers_.clear();
  for (const auto& member : members_) {
    if (member) member->connection.finish_sending();
  }
}

bool StoreServer::finished() const {
  return std::ranges::none_of(members_, [](const auto& member) { return member != nullptr; });
}

}  // namespace rondo::transport::rendezvous
