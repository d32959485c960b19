// The signals of a rank that trains.
//
// They are flags: a handler sets one, and the loop of the library asks for it between steps. So
// SIGTERM and SIGUSR1 never interrupt a step, and SIGUSR2 is answered at the end of one. Handlers
// run between steps, too, because kernels have no stack for them. Before the first step, and behind
// the last, SIGUSR1 and SIGUSR2 wait, because they would end a process that has no handler: in
// every thread of the launcher, until it takes them while it waits for the ranks, and in the ranks,
// which inherit that. Constructors of libraries take tens of milliseconds, in which a scheduler's
// request may come, so the signals are held before them, as initial_cpus.cpp does it.

#include "train/signals.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <initializer_list>
#include <system_error>

#include <rondo/transport/flight_record.hpp>

#include "say.hpp"

namespace rondo::tools {
namespace {

// All that a signal handler may write.
volatile std::sig_atomic_t dump_asked = 0;
volatile std::sig_atomic_t checkpoint_asked = 0;
volatile std::sig_atomic_t stop_asked = 0;

// Tells the thread of EndBeforeTraining to end; without effect on a thread that does not wait for
// it.
constexpr int end_of_start = SIGURG;

constexpr const char* commands_with_requests[] = {"train", "find-rate", "compare"};

// No constructor has run yet, not even a sanitizer's: this calls the kernel alone.
__attribute__((no_sanitize("address", "thread", "undefined"))) void hold_requests(
    int count, char** arguments, char** /*environment*/) {
  if (count < 2) return;
  for (const char* const command : commands_with_requests) {
    std::size_t same = 0;
    while (command[same] != '\0' && command[same] == arguments[1][same]) ++same;
    if (command[same] != arguments[1][same]) continue;
    const unsigned long requests = 1UL << (SIGUSR1 - 1) | 1UL << (SIGUSR2 - 1);
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &requests, nullptr, sizeof requests);
  }
}

[[gnu::section(".preinit_array"),
  gnu::used]] void (*hold_before_constructors)(int, char**, char**) = hold_requests;

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals) ::sigaddset(&set, signal);
  return set;
}

}  // namespace

HandledSignal::HandledSignal(int signal, void (*handler)(int)) : signal_(signal) {
  struct sigaction action = {};
  action.sa_handler = handler;
  // Interrupted system calls go on: a request is no failure.
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, &previous_);
}

HandledSignal::~HandledSignal() { ::sigaction(signal_, &previous_, nullptr); }

DumpRequest::DumpRequest() : handled_(SIGUSR2, [](int /*signal*/) { dump_asked = 1; }) {}

void DumpRequest::answer(const transport::World& world, const std::filesystem::path& folder) const {
  if (dump_asked == 0) return;
  dump_asked = 0;
  const auto path = transport::FlightRecord::path_in(folder, world.rank());
  try {
    world.dump_flight_record(path);
    say("rondo: rank {}: the flight record is in {}\n", world.rank(), path.string());
  } catch (const std::system_error& error) {
    say("rondo: rank {}: {}\n", world.rank(), error.what());
  }
}

RunSignals::RunSignals() : checkpoints_(SIGUSR1, [](int /*signal*/) { checkpoint_asked = 1; }) {}

void RunSignals::begin_training() {
  start_.reset();
  if (!stops_) stops_.emplace(SIGTERM, [](int /*signal*/) { stop_asked = 1; });
}

train::RunRequest RunSignals::take() {
  // The end counts more than a checkpoint: it leaves one, too.
  if (stop_asked != 0) return train::RunRequest::checkpoint_and_stop;
  if (checkpoint_asked == 0) return train::RunRequest::none;
  checkpoint_asked = 0;
  return train::RunRequest::checkpoint;
}

WaitingSignals::WaitingSignals() {
  const sigset_t handled = set_of({SIGUSR1, SIGUSR2, SIGTERM});
  ::pthread_sigmask(SIG_BLOCK, &handled, &before_);
  let_in_ = before_;
  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM}) ::sigdelset(&let_in_, signal);
}

WaitingSignals::~WaitingSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void WaitingSignals::let_in() const {
  sigset_t waiting;
  ::pthread_sigmask(SIG_SETMASK, &let_in_, &waiting);
  ::pthread_sigmask(SIG_SETMASK, &waiting, nullptr);
}

EndBeforeTraining::EndBeforeTraining() {
  // Inherited by the thread: else the signal would be lost before it waits.
  const sigset_t awaited = set_of({SIGTERM, end_of_start});
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &awaited, &before);
  thread_ = std::thread([awaited] {
    int signal = 0;
    if (::sigwait(&awaited, &signal) != 0 || signal != SIGTERM) return;
    // As if it had come to a process without a handler.
    const sigset_t end = set_of({SIGTERM});
    ::raise(SIGTERM);
    ::pthread_sigmask(SIG_UNBLOCK, &end, nullptr);
  });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

EndBeforeTraining::~EndBeforeTraining() {
  ::pthread_kill(thread_.native_handle(), end_of_start);
  thread_.join();
}

}  // namespace rondo::tools
