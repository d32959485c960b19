// The cyclic scheme's store, the way of its token, and the script that a replayed run follows.
//
// Inside a node the store is shared memory and a signal hands the token over; between nodes the
// store travels with it. Only the worker with the token touches the arrays, so they need no lock.
// The few numbers beside them (StoreWord) are atomic, because all workers of the node read them at
// any time.

#include "schemes/token_ring.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <stdexcept>
#include <string>

namespace rondo::sync {
namespace {

constexpr int notice_tag = 0;
constexpr int store_tag = 1;

/// The first worker of this rank's node, among the nodes of all workers.
int first_of_node(transport::World& world, transport::Communicator& workers) {
  std::vector<std::int32_t> nodes(static_cast<std::size_t>(workers.size()));
  const std::int32_t mine = world.ranks()[static_cast<std::size_t>(world.rank())].node;
  workers.allgather(std::span(&mine, 1), std::span(nodes)).wait();
  return static_cast<int>(std::ranges::find(nodes, mine) - nodes.begin());
}

std::string describe(const Turn& turn) {
  const char* kind = "a push";
  if (turn.kind == Turn::Kind::skip) kind = "a skip";
  if (turn.kind == Turn::Kind::park) kind = "a park";
  return std::string(kind) + " after " + std::to_string(turn.minibatches) + " mini-batches";
}

void check_turn(const Turn& turn, int workers) {
  const bool empty = turn.minibatches == 0;
  if (turn.worker >= 0 && turn.worker < workers && turn.minibatches >= 0 &&
      (turn.kind == Turn::Kind::park || empty == (turn.kind == Turn::Kind::skip))) {
    return;
  }
  throw std::invalid_argument("cyclic: the script has " + describe(turn) + " of worker " +
                              std::to_string(turn.worker) + " of " + std::to_string(workers));
}

// Whoever goes on after a park computes at least one mini-batch more before its next push. A push
// of just as many as it was parked with was made by flush(), at the end of the recorded run.
bool is_of_flush(const Turn& turn, const Turn& before) {
  return turn.kind == Turn::Kind::push && before.kind == Turn::Kind::park &&
         turn.minibatches == before.minibatches;
}

}  // namespace

CyclicStore::CyclicStore(transport::World& world, transport::Communicator& workers,
                         std::size_t parameters, std::size_t state)
    : parameters_(parameters),
      own_(&world.arena()),
      own_words_(StoreWords{}.size(), 0, &world.arena()) {
  const int first = first_of_node(world, workers);
  own_.resize(workers.rank() == first ? parameters + state : 1, 0.0F);
  if (own_.empty()) own_.resize(1);  // a model without parameters
  const auto arrays = workers.share(std::span(own_));
  const auto words = workers.share(std::span(own_words_));
  std::ranges::transform(arrays, std::back_inserter(reached_),
                         [](std::span<float> array) { return !array.empty(); });
  all_ = arrays[index(first)].first(parameters + state);
  words_ = words[index(first)];
}

std::int64_t CyclicStore::get(StoreWord word) const noexcept {
  // Acquire: whoever sees a park sees the words that were set before it.
  return std::atomic_ref(words_[static_cast<std::size_t>(word)]).load(std::memory_order_acquire);
}

void CyclicStore::set(StoreWord word, std::int64_t value) noexcept {
  // Release: pairs with the acquire in get().
  std::atomic_ref(words_[static_cast<std::size_t>(word)]).store(value, std::memory_order_release);
}

StoreWords CyclicStore::words() const noexcept {
  StoreWords words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = get(static_cast<StoreWord>(i));
  return words;
}

// The parks come after all that they announce.
void CyclicStore::set_words(const StoreWords& words) noexcept {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (static_cast<StoreWord>(i) != StoreWord::parks) set(static_cast<StoreWord>(i), words[i]);
  }
  set(StoreWord::parks, words[static_cast<std::size_t>(StoreWord::parks)]);
}

// A lost peer is reported as a lost token.
template <typename Attempt>
auto TokenRing::attempt(Attempt attempt) {
  try {
    return attempt();
  } catch (const transport::Error& error) {
    if (error.code() != transport::Errc::peer_lost) throw;
    lose(error);
  }
}

TokenRing::TokenRing(transport::World& world, transport::Communicator& workers, CyclicStore& store)
    : world_(world),
      workers_(workers),
      store_(store),
      previous_((workers.rank() + workers.size() - 1) % workers.size()),
      next_((workers.rank() + 1) % workers.size()),
      previous_is_near_(store.reaches(previous_)),
      next_is_near_(store.reaches(next_)) {}

// What is expected may never come: a Request that is destroyed would wait for it.
TokenRing::~TokenRing() {
  notice_.cancel();
  array_.cancel();
}

// A store may be expected for longer than a notice: a park comes without one.
void TokenRing::expect() {
  expects_ = true;
  if (previous_is_near_) {
    notice_ = workers_.wait_signal(previous_, kind_, notice_tag);
    return;
  }
  notice_ = workers_.recv(std::span<std::int64_t>(incoming_), previous_, notice_tag);
  if (!expects_store_) array_ = workers_.recv(store_.all(), previous_, store_tag);
  expects_store_ = true;
}

// Between nodes a token has come when the store that follows it has come as well.
bool TokenRing::test() {
  return attempt([this] {
    if (!notice_.test()) return false;
    if (is_store_to_come() && !array_.test()) return false;
    unpack();
    return true;
  });
}

void TokenRing::wait() {
  attempt([this] {
    notice_.wait();
    if (is_store_to_come()) array_.wait();
    unpack();
  });
}

bool TokenRing::is_store_to_come() const noexcept {
  return !previous_is_near_ && static_cast<Handover>(incoming_[0]) == Handover::token;
}

// The words of another node's store replace this node's; the arrays have been received in place.
void TokenRing::unpack() {
  if (!expects_) return;  // looked at before
  expects_ = false;
  if (previous_is_near_) return;
  kind_ = static_cast<std::uint64_t>(incoming_[0]);
  if (is_store_to_come()) expects_store_ = false;
  StoreWords words;
  std::copy(incoming_.begin() + 1, incoming_.end(), words.begin());
  store_.set_words(words);
}

// The holder is set before the token is passed: whoever has it later may set it again.
void TokenRing::pass(Handover what) {
  if (what == Handover::token) store_.set(StoreWord::holder, next_);
  attempt([&] {
    if (next_is_near_) {
      sent_notice_ = workers_.put_signal(next_, static_cast<std::uint64_t>(what), notice_tag);
      return;
    }
    sent_notice_.wait();  // long ago: what it sent has come, for the token has been round
    outgoing_[0] = static_cast<std::int64_t>(what);
    std::ranges::copy(store_.words(), outgoing_.begin() + 1);
    sent_notice_ = workers_.send(std::span<const std::int64_t>(outgoing_), next_, notice_tag);
    if (what != Handover::token) return;
    sent_array_ = workers_.send(std::span<const float>(store_.all()), next_, store_tag);
  });
}

// A worker learns from the words of its node who has the token; where the one before it is on
// another node, the token may have gone on there.
void TokenRing::lose(const transport::Error& error) {
  const auto holder = static_cast<int>(store_.get(StoreWord::holder));
  std::string text = "cyclic: the token is lost: ";
  if (holder == previous_ || !store_.reaches(holder)) {
    text += "its holder is gone: ";
  } else {
    text += "worker " + std::to_string(holder) + " holds it, and a worker on its way is gone: ";
  }
  text += error.what();
  world_.abort(text);
  throw transport::Error(transport::Errc::peer_lost, text, error.detail());
}

Script::Script(std::span<const Turn> trace, int worker, int workers) {
  const Turn* before = nullptr;
  for (const Turn& turn : trace) {
    check_turn(turn, workers);
    if (turn.worker != worker) continue;
    if (before == nullptr || !is_of_flush(turn, *before)) mine_.push_back(turn);
    before = &turn;
  }
}

void Script::follow(const Turn& turn) {
  const Turn* expected = next();
  if (expected != nullptr && turn != *expected) {
    throw std::invalid_argument(
        "cyclic: worker " + std::to_string(turn.worker) + " had " + describe(turn) +
        ", where its script has " + describe(*expected) +
        "; repeat the turns of a run with the same data and batches, whose epochs end alike");
  }
  ++position_;
}

}  // namespace rondo::sync
