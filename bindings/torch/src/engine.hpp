#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include <ATen/ThreadLocalState.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <rondo/transport/world.hpp>

namespace rondo::torch_backend {

class Engine;

/// The stall_warning of each Engine's World.
inline constexpr std::chrono::milliseconds stall_time{50};

/// Longer timeouts would overflow when they are added to the time of today.
inline constexpr std::chrono::milliseconds longest_timeout = std::chrono::years(100);

/// One operation of torch.distributed: requests of the transport, and what follows them.
///
/// Any thread may wait for it, ask it, or take its future. Callbacks of the future run on a thread
/// of their own, so that they may wait for other operations and their futures.
class Operation final : public c10d::Work {
 public:
  Operation(std::shared_ptr<Engine> engine, c10d::OpType type, std::vector<at::Tensor> outputs,
            std::chrono::milliseconds timeout);

  bool isCompleted() override;
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  /// Throws the operation's error. With a `timeout` other than 0, throws after it, too, and the
  /// operation goes on.
  bool wait(std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) override;

  /// Keeps `tensor` alive until the operation has ended.
  const at::Tensor& keep(at::Tensor tensor);

  /// Called once after the last request, in the order given: copies results to where they belong.
  void then(std::function<void()> step) { steps_.push_back(std::move(step)); }

 private:
  friend class Callbacks;
  friend class Engine;
  bool requests_done();
  void look() noexcept;
  void complete(std::exception_ptr error);
  /// The future that somebody has asked for and that is not completed; or null.
  [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> open_future();
  void mark_future();
  [[nodiscard]] bool receives() const { return opType_ == c10d::OpType::RECV; }

  std::shared_ptr<Engine> engine_;
  std::vector<at::Tensor> outputs_;
  std::vector<at::Tensor> kept_;
  std::vector<transport::Request> requests_;
  std::size_t next_ = 0;  ///< requests before it have completed
  std::vector<std::function<void()>> steps_;
  at::ThreadLocalState caller_;  ///< for the steps: inference mode and the like
  std::chrono::milliseconds timeout_;
  /// A receive has none until somebody waits for it. Guarded by the engine's lock.
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  bool pending_ = false;            ///< is in the engine's list; guarded by the engine's lock
  std::atomic<bool> ended_{false};  ///< as completed_, without a lock
  c10::intrusive_ptr<c10::ivalue::Future> future_;  ///< guarded by mutex_ of Work
  bool future_marked_ = false;                      ///< likewise
};

/// The threads on which futures are completed: as many as there are callbacks at the same time.
/// None of them makes progress, so a callback may block.
class Callbacks {
 public:
  /// Completes the operation's future soon. False if there is no thread for it: then the caller has
  /// to.
  [[nodiscard]] bool run(const c10::intrusive_ptr<Operation>& operation);
  /// Threads that have nothing left to do end. Waits for the others, but not for ever: a callback
  /// may wait for something that never comes. Not on one of these threads.
  void close();

 private:
  /// Shared with the threads, of which one may be in a callback when the process ends.
  struct State {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<c10::intrusive_ptr<Operation>> waiting;
    std::condition_variable quiet;  ///< nothing is waiting, and no callback runs
    std::size_t idle = 0;
    std::size_t busy = 0;
    bool closed = false;
  };
  static void work(State& state);
  static inline thread_local bool runs_here = false;

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// A World that several threads of a process use: Python's, those of autograd, and one of its own.
///
/// A World belongs to one thread at a time, so each access is under one lock. A thread that waits
/// makes progress; the engine's own thread does so for operations that nobody waits for, above all
/// those whose future is awaited (DistributedDataParallel awaits nothing else).
class Engine final : public std::enable_shared_from_this<Engine> {
 public:
  using Start =
      std::function<void(transport::Communicator&, std::vector<transport::Request>& requests)>;

  /// The last wait that took long; the World's on_stall writes it.
  using StallNote = std::shared_ptr<transport::Stall>;

  Engine(transport::World world, StallNote stall);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  /// Was it made by a parent of this process? Then it has no thread, and whatever posts or waits
  /// throws; an operation that was pending reads as completed with an error.
  [[nodiscard]] bool is_forked_copy() const noexcept { return world_.is_forked_copy(); }

  /// Begins to make progress.
  void open();
  /// Fails what is pending, after it had some seconds to complete, and tells the other ranks; only
  /// receives are given up at once and in silence. Ends the engine's thread. The arena stays
  /// usable.
  void close();
  /// Fails what is pending, on all ranks. Nothing can be posted after it.
  void abort() noexcept;

  /// Posts what `start` adds to the requests. Throws what `start` throws.
  void post(const c10::intrusive_ptr<Operation>& operation, const Start& start);

  /// Lets the timeout of a receive begin, unless it has.
  void start_timeout(Operation& operation);
  /// Makes progress until `operation` has ended, or until `limit`.
  void wait(Operation& operation, std::chrono::steady_clock::time_point limit);
  /// Makes progress once, if no other thread does or completes anything.
  void poll();

  /// Memory of the World's arena; null when there is none left.
  [[nodiscard]] void* allocate(std::size_t bytes);
  [[nodiscard]] bool contains(const void* data, std::size_t bytes);
  void deallocate(void* data, std::size_t bytes) noexcept;

  /// No operation completes while a Pause lives. Wait for it without Python's lock: a thread that
  /// completes an operation may need that lock.
  using Pause = std::unique_lock<std::recursive_mutex>;
  [[nodiscard]] Pause pause_completions();

  /// As those of World and AdoptedMemory. Whole pages move, and other objects may lie on them.
  [[nodiscard]] transport::AdoptedMemory adopt(std::span<std::byte> memory, const Pause& pause);
  void release(transport::AdoptedMemory& memory, const Pause& pause) noexcept;

 private:
  struct Ended {
    c10::intrusive_ptr<Operation> operation;
    std::exception_ptr error;
  };
  class Lock;

  void forgive_pause(std::chrono::steady_clock::time_point now);
  std::vector<Ended> collect();
  void finish_or_abort();
  void give_up(Operation& operation);
  void complete(std::vector<Ended> ended);
  void run();
  bool rest();

  /// Held by the thread that completes operations; locked before mutex_, if both are. Python may
  /// run meanwhile and free a tensor, which calls the engine again: so it is recursive.
  std::recursive_mutex completing_;
  std::mutex mutex_;
  std::atomic<int> wanted_{0};                          ///< threads that wait for the lock
  std::atomic<int> waiting_{0};                         ///< threads in wait()
  transport::World world_;                              // guarded by mutex_
  StallNote stall_;                                     // guarded by mutex_
  std::vector<c10::intrusive_ptr<Operation>> pending_;  // guarded by mutex_
  std::size_t looks_ = 0;                               // guarded by mutex_
  std::chrono::steady_clock::time_point looked_at_{};   // guarded by mutex_
  bool closed_ = false;                                 // guarded by mutex_
  bool resting_ = false;                                // guarded by mutex_
  std::condition_variable wake_;
  Callbacks callbacks_;
  std::thread thread_;
};

}  // namespace rondo::torch_backend
