#pragma once

#include <pthread.h>

#include <csignal>

namespace rondo::train {

// While it exists, the calling thread gets no signals; threads that it starts meanwhile never get
// any: a program's signal handlers run on the program's own threads. Signals of faults still
// arrive, because they belong to the thread that causes them. The class has its own file because
// decoders and the writer of checkpoints both need it; transport has a private one.
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
