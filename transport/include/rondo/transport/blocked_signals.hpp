#pragma once

#include <pthread.h>

#include <csignal>
#include <initializer_list>

namespace rondo::transport {

/// The calling thread gets no signals while this object lives, and threads that it starts meanwhile
/// never get any: signals are the host program's. Signals of faults are not blocked, because they
/// belong to the thread that causes them.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    ::sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigdelset(&all, fault);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_ = {};
};

}  // namespace rondo::transport
