#pragma once

#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>

#include <rondo/train/trainer.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::tools {

/// While it lives, a signal has a handler instead of its usual effect.
class HandledSignal {
 public:
  HandledSignal(int signal, void (*handler)(int));
  HandledSignal(const HandledSignal&) = delete;
  HandledSignal& operator=(const HandledSignal&) = delete;
  ~HandledSignal();

 private:
  int signal_;
  struct sigaction previous_ = {};
};

/// While it lives, SIGUSR2 asks this rank for its flight record instead of ending it. At most one
/// in a process.
class DumpRequest {
 public:
  DumpRequest();

  /// Writes flight-rankN.json to `folder` if it has been asked for since the last call. Errors are
  /// reported on stderr, and end nothing.
  void answer(const transport::World& world, const std::filesystem::path& folder) const;

 private:
  HandledSignal handled_;
};

/// While it lives, SIGTERM ends the process although it waits on all threads that compute: a thread
/// of its own takes it. Made under WaitingSignals.
class EndBeforeTraining {
 public:
  EndBeforeTraining();
  EndBeforeTraining(const EndBeforeTraining&) = delete;
  EndBeforeTraining& operator=(const EndBeforeTraining&) = delete;
  ~EndBeforeTraining();

 private:
  std::thread thread_;
};

/// While it lives, SIGUSR1 asks this rank for a checkpoint and, once it trains, SIGTERM for one and
/// then its end. Before, SIGTERM ends it at once: nothing is lost yet. At most one in a process.
class RunSignals {
 public:
  RunSignals();

  /// From now on until training begins, SIGTERM ends the process. Under WaitingSignals.
  void begin_start() { start_.emplace(); }
  /// From now on SIGTERM is a request, too. May be called in every step.
  void begin_training();

  /// The requests since the last call; a request to end the run stays.
  [[nodiscard]] static train::RunRequest take();

 private:
  HandledSignal checkpoints_;
  std::optional<EndBeforeTraining> start_ = {};
  std::optional<HandledSignal> stops_ = {};
};

/// While it lives, what has handlers waits on this thread, and on those of OpenMP, which inherit
/// that whenever this thread starts them. Kernels that oneDNN generates let the stack pointer point
/// into their buffers for a while; the kernel of the system would write a handler's frame there,
/// over other memory of the heap.
class WaitingSignals {
 public:
  WaitingSignals();
  WaitingSignals(const WaitingSignals&) = delete;
  WaitingSignals& operator=(const WaitingSignals&) = delete;
  ~WaitingSignals();

  /// While this thread is in no kernel: the handlers of all that have come run before this returns.
  void let_in() const;

 private:
  sigset_t before_ = {};
  sigset_t let_in_ = {};
};

}  // namespace rondo::tools
