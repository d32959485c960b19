#pragma once

#include <pthread.h>

#include <csignal>

namespace rondo::train {

// While it lives, the calling thread gets no signals, and neither do the threads that it starts
// meanwhile, for good: a program's signal handlers run on its own threads. Those of faults stay,
// because they belong to the thread that causes them. A file of its own, because decoders and the
// writer of checkpoints both need it, and transport keeps its own one to itself.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_ = {};
};

}  // namespace rondo::train
