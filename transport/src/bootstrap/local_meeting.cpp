#include "bootstrap/local_meeting.hpp"

#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include <rondo/transport/error.hpp>

#include "bootstrap/cpus.hpp"
#include "bootstrap/hello.hpp"
#include "bootstrap/local_socket.hpp"
#include "bootstrap/sockets.hpp"
#include "core/names.hpp"

namespace rondo::transport::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto greeting_pause = std::chrono::milliseconds(1);

template <std::size_t Size>
void fill(std::array<char, Size>& field, const std::string& text) {
  std::memcpy(field.data(), text.data(), std::min(text.size(), Size));
}

// The launcher's, so that it can read what a rank recorded that is gone; else one of its own.
std::shared_ptr<recorder::Memory> recorder_for(const Placement& placement) {
  auto memory = recorder::Memory::inherit(placement.recorder);
  if (!memory) memory = recorder::Memory::create();
  return std::make_shared<recorder::Memory>(std::move(*memory));
}

// One rank's side of the meeting.
class Guest {
 public:
  Guest(const Placement& placement, const std::vector<int>& members, const WorldOptions& options);
  Meeting meet();

 private:
  void greet_lower();
  void answer_higher();
  void hear_lower();
  [[nodiscard]] shm::Descriptor greet(int rank) const;
  void take(Greeting greeting);
  void check(const Hello& hello) const;
  [[nodiscard]] bool send(const shm::Descriptor& socket) const;
  [[noreturn]] void fail_for_absence() const;

  Placement placement_;
  std::vector<int> members_;
  shm::Reserve reserve_;
  Clock::time_point deadline_;
  std::shared_ptr<shm::RankMemory> memory_;
  std::shared_ptr<shm::Descriptor> process_;
  std::shared_ptr<recorder::Memory> recorder_;
  Hello hello_;
  shm::Descriptor listener_;
  struct Greeted {
    int rank;
    shm::Descriptor socket;
  };
  std::vector<Greeted> lower_;
  std::vector<bool> present_;
  Meeting meeting_;
};

Guest::Guest(const Placement& placement, const std::vector<int>& members,
             const WorldOptions& options)
    : placement_(placement),
      members_(members),
      reserve_(shm::Reserve::of(placement.size)),
      deadline_(Clock::now() + options.rendezvous_deadline),
      process_(std::make_shared<shm::Descriptor>(
          static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)))),
      recorder_(recorder_for(placement)),
      present_(static_cast<std::size_t>(placement.size), false) {
  // Four that last for each peer, and the socket over which they come.
  allow_descriptors(members.size() * 5 + 64, "meeting the ranks of this node");
  if (!process_->valid()) {
    throw Error(Errc::rendezvous_failed, "rendezvous: cannot open a pidfd (needs Linux 5.3): " +
                                             std::generic_category().message(errno));
  }
  fill(hello_.version, RONDO_VERSION);
  fill(hello_.job, placement.job);
  fill(hello_.host, host_name());
  hello_.host.back() = '\0';
  hello_.rank = placement.rank;
  hello_.size = placement.size;
  hello_.pid = ::getpid();
  hello_.nonce = random_nonce();
  hello_.waiting = static_cast<std::uint32_t>(options.waiting);
  hello_.small_bytes = options.small_bytes;
  hello_.cpus = own_cpus();
  memory_ = shm::RankMemory::create(reserve_, hello_.nonce);
  meeting_.peers.resize(present_.size());
  const auto me = static_cast<std::size_t>(placement.rank);
  meeting_.peers[me] = {.memory = memory_,
                        .process = process_,
                        .recorder = recorder_,
                        .info = {.pid = hello_.pid, .host = hello_.host.data()}};
  meeting_.cpus.push_back(hello_.cpus);
  present_[me] = true;
}

Meeting Guest::meet() {
  listener_ = listen_as(placement_.job, placement_.rank);
  greet_lower();
  answer_higher();
  hear_lower();
  return std::move(meeting_);
}

bool Guest::send(const shm::Descriptor& socket) const {
  return send_hello(socket.get(), hello_,
                    {.control = memory_->control().descriptor(),
                     .arena = memory_->arena().descriptor(),
                     .process = process_->get(),
                     .recorder = recorder_->descriptor()});
}

void Guest::greet_lower() {
  for (const int rank : members_) {
    if (rank < placement_.rank) lower_.push_back({.rank = rank, .socket = greet(rank)});
  }
}

// Until the deadline: who listens may be about to hang up.
shm::Descriptor Guest::greet(int rank) const {
  while (true) {
    shm::Descriptor socket = connect_to(placement_.job, rank, deadline_);
    if (!socket.valid()) fail_for_absence();
    if (send(socket)) return socket;
    std::this_thread::sleep_for(greeting_pause);
  }
}

void Guest::answer_higher() {
  // Whoever connects and says nothing holds the others up for so long.
  constexpr auto patience = std::chrono::milliseconds(2000);
  auto expected =
      std::ranges::count_if(members_, [this](int rank) { return rank > placement_.rank; });
  while (expected > 0) {
    const shm::Descriptor socket = accept_from(listener_, deadline_);
    if (!socket.valid()) fail_for_absence();
    std::optional<Greeting> greeting =
        receive_hello(socket.get(), std::min(deadline_, Clock::now() + patience));
    const bool higher = greeting && greeting->hello.rank > placement_.rank &&
                        greeting->hello.rank < placement_.size &&
                        greeting->hello.job == hello_.job &&
                        !present_[static_cast<std::size_t>(greeting->hello.rank)];
    // A stranger, or a rank that has left already and comes for the job's next World: it will come
    // again.
    if (!higher) continue;
    if (!send(socket)) continue;
    take(std::move(*greeting));
    expected -= 1;
  }
}

void Guest::hear_lower() {
  for (Greeted& lower : lower_) {
    std::optional<Greeting> greeting = receive_hello(lower.socket.get(), deadline_);
    while (!greeting) {
      std::this_thread::sleep_for(greeting_pause);
      lower.socket = greet(lower.rank);
      greeting = receive_hello(lower.socket.get(), deadline_);
    }
    take(std::move(*greeting));
  }
}

void Guest::check(const Hello& hello) const {
  const std::string who = "rank " + std::to_string(hello.rank);
  if (hello.version != hello_.version || hello.size != hello_.size) {
    throw Error(Errc::rendezvous_failed,
                "rendezvous: " + who + " runs version " + hello.version.data() + " with " +
                    std::to_string(hello.size) + " ranks, this is version " +
                    hello_.version.data() + " with " + std::to_string(hello_.size));
  }
  if (hello.small_bytes != hello_.small_bytes) {
    throw Error(Errc::rendezvous_failed,
                "rendezvous: small_bytes is " + std::to_string(hello.small_bytes) + " on " + who +
                    " and " + std::to_string(hello_.small_bytes) + " on rank " +
                    std::to_string(hello_.rank) + "; all ranks must pass the same options");
  }
  if (hello.waiting != hello_.waiting) {
    const auto name = [](const Hello& of) { return name_of(static_cast<Waiting>(of.waiting)); };
    throw Error(Errc::rendezvous_failed, std::string("rendezvous: waiting is ") + name(hello) +
                                             " on " + who + " and " + name(hello_) + " on rank " +
                                             std::to_string(hello_.rank) +
                                             "; all ranks must pass the same options");
  }
}

void Guest::take(Greeting greeting) {
  const Hello& hello = greeting.hello;
  check(hello);
  const auto index = static_cast<std::size_t>(hello.rank);
  meeting_.peers[index] = {
      .memory = shm::RankMemory::map(std::move(greeting.control), std::move(greeting.arena),
                                     reserve_, hello.nonce),
      .process = std::make_shared<shm::Descriptor>(std::move(greeting.process)),
      .recorder =
          std::make_shared<recorder::Memory>(recorder::Memory::map(std::move(greeting.recorder))),
      .info = {.pid = hello.pid, .host = hello.host.data()}};
  meeting_.cpus.push_back(hello.cpus);
  present_[index] = true;
}

void Guest::fail_for_absence() const {
  std::string names;
  for (const int rank : members_) {
    if (present_[static_cast<std::size_t>(rank)]) continue;
    names += (names.empty() ? "" : ", ") + std::to_string(rank);
  }
  throw Error(Errc::rendezvous_failed, "rendezvous: rank " + std::to_string(placement_.rank) +
                                           " of " + std::to_string(placement_.size) +
                                           " has not met rank " + names +
                                           " in time; did these end, or never start?");
}

}  // namespace

Meeting meet(const Placement& placement, const std::vector<int>& members,
             const WorldOptions& options) {
  return Guest(placement, members, options).meet();
}

std::uint64_t random_nonce() {
  std::uint64_t nonce = 0;
  if (::getrandom(&nonce, sizeof nonce, 0) != static_cast<ssize_t>(sizeof nonce)) {
    throw Error(Errc::rendezvous_failed, "rendezvous: no random numbers");
  }
  return nonce;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

}  // namespace rondo::transport::rendezvous
