#include "schemes/token_ring.hpp"

#include <algorithm>
#include <string>

namespace rondo::sync {
namespace {

constexpr int notice_tag = 0;
constexpr int store_tag = 1;

}  // namespace

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

}  // namespace rondo::sync
