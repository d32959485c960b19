#include "bootstrap/store_connect.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include <rondo/transport/error.hpp>

#include "bootstrap/limits.hpp"
#include "bootstrap/messages.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/tcp.hpp"

namespace rondo::transport::rendezvous {
namespace {

// Grows from try to try; half of it is random.
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

class Caller {
 public:
  Caller(const Credentials& credentials, const Endpoint& endpoint)
      : credentials_(credentials),
        endpoint_(endpoint),
        deadline_(Clock::now() + credentials.rendezvous_deadline) {}

  Admission call() {
    Backoff backoff;
    do {
      for (const Address& address : resolve(endpoint_)) {
        if (std::optional<Admission> admission = attempt(address)) return std::move(*admission);
      }
      backoff.pause(deadline_);
    } while (Clock::now() < deadline_);
    fail("cannot reach the store of rank 0 at " + to_string(endpoint_) + " in time: " + problem_ +
         "; is rank 0 running, and the port open between the hosts?");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const Introduction& self = credentials_.self;
    throw Error(Errc::rendezvous_failed, "rendezvous: rank " + std::to_string(self.rank) + " of " +
                                             std::to_string(self.size) + " on host " + self.host +
                                             " " + what);
  }

  std::optional<Admission> attempt(const Address& address) {
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
    watch_line(socket.get());
    return shake_hands(std::move(socket), address);
  }

  std::optional<Admission> shake_hands(shm::Descriptor socket, const Address& address) {
    const auto until = std::min(deadline_, Clock::now() + handshake_limit);
    Admission admission{.connection = Connection(std::move(socket), handshake_cap)};
    Connection& connection = admission.connection;
    Applicant applicant;
    const auto challenge = wait_for_frame(connection, until);
    if (!challenge) return give_up(connection, address);
    if (credentials_.secret.empty() && !is_trusted(connection, address)) return std::nullopt;
    const auto answer = applicant.answer(*challenge, credentials_.self, credentials_.secret);
    if (!answer) {
      fail("found no store at " + to_string(endpoint_) +
           " but another program, or another version of Rondo; choose another port");
    }
    connection.send(*answer);
    const auto reply = wait_for_frame(connection, until);
    if (!reply) return give_up(connection, address);
    if (reply->type == Frame::Type::later) {
      problem_ = printable(reply->payload);
      return std::nullopt;
    }
    if (reply->type == Frame::Type::refused) {
      fail("was refused by rank 0 at " + to_string(endpoint_) + ": " + printable(reply->payload));
    }
    const auto host = applicant.verify(*reply, credentials_.secret);
    if (!host) {
      fail("does not trust the store at " + to_string(endpoint_) +
           ": it does not know the job's secret");
    }
    admission.host = printable(*host);
    admission.local_address = own_address(connection.descriptor()).host();
    return admission;
  }

  // Without a secret the user is all that tells the store from an impostor. After its challenge: a
  // connection that nobody has accepted has no owner. Nor has one that the store has closed since,
  // which it may have to, and then it is worth another try.
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

  std::nullopt_t give_up(const Connection& connection, const Address& address) {
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

Admission connect_to_store(const Credentials& credentials, const Endpoint& endpoint) {
  return Caller(credentials, endpoint).call();
}

}  // namespace rondo::transport::rendezvous
