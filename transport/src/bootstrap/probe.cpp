// Does a link carry messages, and how fast?
//
// A fabric can be opened, and even connect, and yet carry nothing: a cable in the wrong switch, a
// firewall, frames that are too long for a switch on the way. Without a look at it the first
// reduction would wait for its deadline, minutes later. So each rank sends one message to a rank of
// the next node before the link is used. It is long enough to need full frames, and the answer
// tells the sender that it has arrived.
//
// The time that is measured runs until the answer is back. Whatever delays a rank makes it longer
// and never shorter, so a slow network cannot be taken for a fast one.

#include "bootstrap/probe.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <thread>

namespace rondo::transport::bootstrap {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t delivery_bytes = std::size_t{32} << 10U;
constexpr int repetitions = 5;

// Nothing else is on the link yet, so all tags are free.
enum Tag : std::uint64_t { delivery = 1, delivery_answer, bulk, bulk_answer };

/// The messages of one probe, and the memory that they are sent from and received into.
class Messages {
 public:
  Messages(Link& link, std::chrono::milliseconds limit, const std::function<std::string()>& failure)
      : link_(&link), limit_(limit), until_(Clock::now() + limit), failure_(&failure) {}
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages() {
    for (Message& message : messages_) {
      if (message.transfer.pending()) link_->cancel(message.transfer);
    }
  }

  Transfer& send(int peer, Tag tag, std::size_t bytes) {
    Message& message = add(peer, bytes);
    link_->post_send(peer, tag, message.data, message.transfer);
    return message.transfer;
  }

  Transfer& receive(int peer, Tag tag, std::size_t bytes) {
    Message& message = add(peer, bytes);
    link_->post_recv(peer, tag, message.data, message.transfer);
    return message.transfer;
  }

  /// Calls `look` again and again until it says that all is done. False when something failed or
  /// there was no time left; then problem() says what.
  template <typename Look>
  bool progress_until(Look&& look) {
    while (!look()) {
      for (const Message& message : messages_) {
        if (message.transfer.failed()) return fail(message);
      }
      // A link may move something for ever that is none of these messages.
      if (Clock::now() > until_) return fail_by_time();
      if (link_->progress()) continue;
      problem_ = (*failure_)();
      if (!problem_.empty()) return false;
      std::this_thread::yield();
    }
    return true;
  }

  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  [[nodiscard]] bool is_silent() const noexcept { return is_silent_; }

 private:
  struct Message {
    int peer = 0;
    std::vector<std::byte> data = {};
    Transfer transfer = {};
  };

  // A deque does not move what is in it.
  Message& add(int peer, std::size_t bytes) {
    Message& message = messages_.emplace_back();
    message.peer = peer;
    message.data.resize(bytes);
    return message;
  }

  bool fail(const Message& message) {
    problem_ = what_failed(message.peer) + ": " + link_->error_text(message.transfer);
    return false;
  }

  bool fail_by_time() {
    const auto waiting = std::ranges::find_if(
        messages_, [](const Message& message) { return message.transfer.pending(); });
    problem_ = what_failed(waiting == messages_.end() ? -1 : waiting->peer) + " within " +
               std::to_string(limit_.count()) + " ms";
    is_silent_ = true;
    return false;
  }

  [[nodiscard]] static std::string what_failed(int peer) {
    return "did not carry a message to or from rank " + std::to_string(peer);
  }

  Link* link_;
  std::chrono::milliseconds limit_;
  Clock::time_point until_;
  const std::function<std::string()>* failure_;
  std::deque<Message> messages_ = {};
  std::string problem_ = {};
  bool is_silent_ = false;
};

// Everyone sends, and answers all that come.
bool deliver(Messages& messages, const Neighbours& neighbours) {
  std::vector<std::pair<int, const Transfer*>> waiting;
  for (const int rank : neighbours.previous) {
    waiting.emplace_back(rank, &messages.receive(rank, delivery, delivery_bytes));
  }
  const Transfer& sent = messages.send(neighbours.next, delivery, delivery_bytes);
  const Transfer& answer = messages.receive(neighbours.next, delivery_answer, 1);
  std::vector<const Transfer*> answers;
  return messages.progress_until([&] {
    std::erase_if(waiting, [&](const auto& from) {
      if (!from.second->done()) return false;
      answers.push_back(&messages.send(from.first, delivery_answer, 1));
      return true;
    });
    return waiting.empty() && sent.done() && answer.done() &&
           std::ranges::all_of(answers, &Transfer::done);
  });
}

// The leaders' ring, once. The time until the next node has answered.
std::optional<std::chrono::nanoseconds> measure(Messages& messages, const Neighbours& neighbours) {
  const Clock::time_point began = Clock::now();
  const Transfer& in = messages.receive(neighbours.leader_of_previous, bulk, probe_bytes);
  const Transfer& answer = messages.receive(neighbours.next, bulk_answer, 1);
  const Transfer& out = messages.send(neighbours.next, bulk, probe_bytes);
  const Transfer* answered = nullptr;
  std::optional<std::chrono::nanoseconds> taken;
  const bool ended = messages.progress_until([&] {
    if (answered == nullptr && in.done()) {
      answered = &messages.send(neighbours.leader_of_previous, bulk_answer, 1);
    }
    if (!taken && answer.done()) taken = Clock::now() - began;
    return taken && out.done() && answered != nullptr && answered->done();
  });
  return ended ? taken : std::nullopt;
}

}  // namespace

Neighbours neighbours_of(int rank, const std::vector<int>& nodes) {
  std::vector<std::vector<int>> members;
  for (std::size_t r = 0; r < nodes.size(); ++r) {
    const auto node = static_cast<std::size_t>(nodes[r]);
    if (members.size() <= node) members.resize(node + 1);
    members[node].push_back(static_cast<int>(r));
  }
  const auto here = static_cast<std::size_t>(nodes[static_cast<std::size_t>(rank)]);
  const auto& own = members[here];
  const auto& next = members[(here + 1) % members.size()];
  const auto& previous = members[(here + members.size() - 1) % members.size()];
  const auto place = static_cast<std::size_t>(std::ranges::find(own, rank) - own.begin());
  Neighbours result{.next = next[place % next.size()],
                    .is_leader = place == 0,
                    .leader_of_previous = previous.front()};
  for (std::size_t i = place; i < previous.size(); i += own.size()) {
    result.previous.push_back(previous[i]);
  }
  return result;
}

ProbeResult probe(Link& link, const Neighbours& neighbours, bool measures,
                  std::chrono::milliseconds limit, const std::function<std::string()>& failure) {
  Messages messages(link, limit, failure);
  ProbeResult result;
  bool works = deliver(messages, neighbours);
  const bool was_delivered = works;
  for (int i = 0; works && measures && neighbours.is_leader && i < repetitions; ++i) {
    const auto time = measure(messages, neighbours);
    works = time.has_value();
    if (!works) break;
    const auto nanoseconds = static_cast<std::uint64_t>(std::max<std::int64_t>(1, time->count()));
    result.nanoseconds = i == 0 ? nanoseconds : std::min(result.nanoseconds, nanoseconds);
  }
  if (!works) {
    result.problem = messages.problem();
    result.silent = messages.is_silent() && !was_delivered;  // else it is slow
  }
  return result;
}

std::size_t first_cause(const std::vector<ProbeResult>& results) {
  const auto rank_where = [&](bool silent) {
    const auto found = std::ranges::find_if(results, [&](const ProbeResult& result) {
      return !result.problem.empty() && result.silent == silent;
    });
    return static_cast<std::size_t>(found - results.begin());
  };
  const std::size_t failed = rank_where(false);
  return failed < results.size() ? failed : rank_where(true);
}

bool carries_nothing(const std::vector<ProbeResult>& results) {
  const std::size_t cause = first_cause(results);
  return cause < results.size() && results[cause].silent;
}

}  // namespace rondo::transport::bootstrap
