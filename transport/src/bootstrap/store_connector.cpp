// How a rank gets to the store: it tries all addresses of rank 0 until one answers, and both sides
// prove that they know the secret.
//
// This happens on the thread that makes the World, which may wait and retry until the deadline.

#include "bootstrap/store_connector.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include <rondo/transport/error.hpp>

#include "bootstrap/auth.hpp"

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

// Connects to the store at `endpoint`, and proves to be a member.
class Connector {
 public:
  Connector(const Credentials& credentials, const Endpoint& endpoint)
      : credentials_(credentials),
        endpoint_(endpoint),
        deadline_(Clock::now() + credentials.bootstrap_deadline) {}

  StoreConnection connect() {
    Backoff backoff;
    do {
      for (const Address& address : addresses()) {
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
    throw Error(Errc::bootstrap_failed, "bootstrap: rank " + std::to_string(self.rank) + " of " +
                                            std::to_string(self.size) + " on host " + self.host +
                                            " " + what);
  }

  // None yet, where the name of rank 0's host is not known so far.
  std::vector<Address> addresses() {
    try {
      return resolve(endpoint_);
    } catch (const Error& error) {
      problem_ = error.what();
      return {};
    }
  }

  std::optional<StoreConnection> attempt(const Address& address) {
    if (credentials_.secret.empty() && !address.loopback()) {
      fail("has no secret, and does not connect to another host (" + address.host() +
           ") without one; set RONDO_SECRET, or make ~/.rondo/secret");
    }
    // Another address of the same name may work where this one is dead.
    constexpr std::chrono::seconds connect_limit{3};
    shm::Descriptor socket =
        connect_until(address, std::min(deadline_, Clock::now() + connect_limit));
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

}  // namespace

StoreConnection connect_to_store(const Credentials& credentials, const Endpoint& endpoint) {
  return Connector(credentials, endpoint).connect();
}

}  // namespace rondo::transport::bootstrap
