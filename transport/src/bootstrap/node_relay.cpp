// The ranks of a node speak to the store through one of them.
//
// Every rank needs the address cards of all ranks. If the store sent them to each, the network of
// rank 0 would carry P times P cards, which are several GB for 4,096 ranks. So it sends them to one
// rank of each node, the leader, and that one passes them on over local sockets.
//
// A rank hears of each round twice, in any order: the store says that the round is complete, and
// the leader brings its parts. Status messages that the store sends after that word are about what
// happened after the round; the parts will come all the same. So the round does not fail when a
// rank leaves right after it.

#include "bootstrap/node_relay.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <rondo/transport/error.hpp>

#include "bootstrap/node_connector.hpp"

namespace rondo::transport::bootstrap {
namespace {

using namespace std::chrono_literals;

// Longer than ranks of a node that are at the same point differ, and short beside a deadline.
constexpr auto gather_limit = 20ms;

std::string job_of_leaders(const std::string& job, const Roster& roster) {
  return job + " leaders of " + std::to_string(roster.token);
}

// The bytes that a part takes in the frame beside its own.
constexpr std::size_t part_header_bytes = 8;

}  // namespace

shm::Descriptor listen_as_leader(const std::string& job, const Roster& roster) {
  // A connection to each rank of the node, which is closed when the World has begun.
  allow_descriptors(roster.ranks.size() + 16, "leading the ranks of this node");
  return listen_as(job_of_leaders(job, roster), static_cast<int>(roster.ranks.front()),
                   SOCK_STREAM);
}

shm::Descriptor connect_to_leader(const std::string& job, const Roster& roster, std::uint32_t rank,
                                  Clock::time_point deadline,
                                  const std::function<bool()>& given_up) {
  const auto leader = static_cast<int>(roster.ranks.front());
  while (!given_up() && Clock::now() < deadline) {
    shm::Descriptor socket =
        connect_to(job_of_leaders(job, roster), leader, deadline, SOCK_STREAM, given_up);
    if (!socket.valid()) return {};
    std::string bytes;
    append_frame(bytes, {.type = Frame::Type::node, .payload = pack(roster.token, rank)});
    // A socket that nothing was sent through yet has room for these few bytes.
    const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(bytes.size())) return socket;
  }
  return {};
}

NodeRelay::NodeRelay(shm::Descriptor listener, const Roster& roster)
    : listener_(std::move(listener)), roster_(roster), leader_(roster.ranks.front()) {}

void NodeRelay::list(std::vector<pollfd>& entries) const {
  entries.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
  for (const auto& member : members_) {
    entries.push_back({.fd = member->connection.descriptor(),
                       .events = member->connection.events(),
                       .revents = 0});
  }
}

void NodeRelay::attend(std::span<const pollfd> entries, Clock::time_point now) {
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].revents != 0) serve(*members_[i - 1], now);
  }
  if (entries.front().revents != 0) accept_some();
  std::erase_if(members_, [](const auto& member) { return member->connection.ended(); });
  // When all of the node have come, no other connection is accepted any more.
  const auto has_come = [](const auto& member) { return member->rank.has_value(); };
  const bool complete =
      members_.size() + 1 == roster_.ranks.size() && std::ranges::all_of(members_, has_come);
  if (complete) listener_ = shm::Descriptor();
}

void NodeRelay::accept_some() {
  while (true) {
    shm::Descriptor socket(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    if (!is_same_user(socket.get())) continue;
    members_.push_back(std::make_unique<Member>(Connection(std::move(socket), handshake_cap)));
  }
}

void NodeRelay::serve(Member& member, Clock::time_point now) {
  member.connection.exchange();
  while (const auto frame = member.connection.next()) {
    if (!member.rank) {
      if (!identify(member, *frame)) return member.connection.close();
    } else if (frame->type == Frame::Type::blob) {
      if (auto blob = decode_blob(frame->payload)) add(*member.rank, std::move(*blob), now);
    }
  }
}

// False unless it is a rank of this node that has not come yet.
bool NodeRelay::identify(Member& member, const Frame& frame) const {
  std::uint64_t token = 0;
  std::uint32_t rank = 0;
  if (frame.type != Frame::Type::node || !unpack(frame.payload, token, rank)) return false;
  const auto& ranks = roster_.ranks;
  const bool known = std::ranges::any_of(
      members_, [rank](const auto& other) { return other->rank == std::optional(rank); });
  if (token != roster_.token || rank == leader_ || known ||
      std::ranges::find(ranks, rank) == ranks.end()) {
    return false;
  }
  member.rank = rank;
  member.connection.allow(largest_from_rank);
  return true;
}

// Parts of an earlier round can only come from a faulty rank; the store drops them, too.
void NodeRelay::add(std::uint32_t rank, Blob blob, Clock::time_point now) {
  if (blob.round < parts_.round) return;
  if (blob.round > parts_.round) {
    parts_ = {.round = blob.round};
    unsent_bytes_ = 0;
    arrived_ = 0;
  }
  unsent_bytes_ += blob.bytes.size() + part_header_bytes;
  parts_.parts.push_back({.rank = rank, .bytes = std::move(blob.bytes)});
  arrived_ += 1;
  const bool ready = arrived_ >= roster_.ranks.size() || unsent_bytes_ > largest_blob / 2;
  due_ = ready ? now : std::min(due_, now + gather_limit);
}

// As many as a frame may hold.
std::optional<NodeParts> NodeRelay::take_parts(Clock::time_point now) {
  if (now < due_) return std::nullopt;
  NodeParts taken{.round = parts_.round};
  std::size_t bytes = 0;
  while (!parts_.parts.empty()) {
    NodeParts::Part& part = parts_.parts.back();
    const std::size_t size = part.bytes.size() + part_header_bytes;
    if (bytes > 0 && bytes + size > largest_blob) break;
    bytes += size;
    taken.parts.push_back(std::move(part));
    parts_.parts.pop_back();
  }
  unsent_bytes_ -= bytes;
  if (parts_.parts.empty()) due_ = Clock::time_point::max();
  return taken.parts.empty() ? std::nullopt : std::optional(std::move(taken));
}

void NodeRelay::pass_on(const Frame& answer) {
  const SharedFrame frame = share(answer);
  for (const auto& member : members_) {
    if (member->rank) member->connection.send(frame);
  }
}

void NodeRelay::finish() {
  listener_ = shm::Descriptor();
  for (const auto& member : members_) member->connection.finish_sending();
}

bool NodeRelay::finished() const {
  return std::ranges::all_of(members_, [](const auto& member) {
    return member->connection.ended() || member->connection.all_sent();
  });
}

}  // namespace rondo::transport::bootstrap
