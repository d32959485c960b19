#pragma once

#include <pthread.h>

#include <csignal>

namespace rondo::transport {

/// While it lives, the calling thread gets no signals, and neither do the threads that it starts
/// meanwhile, for good: signals are the host program's. Those of faults stay, because they belong
/// to the thread that causes them.
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
