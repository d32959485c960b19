// How operations of torch.distributed make progress.
//
// Posting never waits. A blocking call is a post and a wait that makes the progress itself, so no
// other thread is woken for it. Operations that nobody waits for are left to the engine's thread.
// It looks five times per millisecond while something is pending, and sleeps otherwise; between two
// looks the processor belongs to the computation. The transport's own waits, which sleep until a
// peer has moved, are taken in short slices, because the lock is held meanwhile.

#include "engine.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <rondo/transport/error.hpp>

namespace rondo::torch_backend {

namespace {

using std::chrono::steady_clock;

constexpr std::chrono::microseconds look_interval{200};
/// How long the engine's thread goes on looking after the last operation: in a loop of small
/// operations nobody should have to wake it each time.
constexpr std::chrono::milliseconds active_time{2};
/// Pending operations get this time to complete when the process group is destroyed.
constexpr std::chrono::seconds closing_time{5};
/// So long without a look the process did not run: its job was suspended.
constexpr std::chrono::seconds longest_pause{1};
constexpr std::chrono::microseconds shortest_slice{200};
constexpr std::chrono::microseconds longest_slice{5000};

/// In whose complete() this thread is: what an operation frees may be the last of a process group.
thread_local const Engine* completes_here = nullptr;

c10::ListTypePtr tensors_type() { return c10::ListType::create(c10::TensorType::get()); }

}  // namespace

Operation::Operation(std::shared_ptr<Engine> engine, c10d::OpType type,
                     std::vector<at::Tensor> outputs, std::chrono::milliseconds timeout)
    : Work(-1, type),
      engine_(std::move(engine)),
      outputs_(std::move(outputs)),
      timeout_(std::min(timeout, longest_timeout)) {
  if (!receives()) deadline_ = steady_clock::now() + timeout_;
}

bool Operation::isCompleted() {
  if (!ended_) engine_->poll();
  return ended_;
}

bool Operation::wait(std::chrono::milliseconds timeout) {
  const auto limit = timeout.count() > 0 ? steady_clock::now() + std::min(timeout, longest_timeout)
                                         : steady_clock::time_point::max();
  engine_->wait(*this, limit);
  TORCH_CHECK(ended_, "rondo: the operation has not completed within ", timeout.count(), " ms");
  // A future that was taken before is completed on another thread.
  if (const auto future = open_future()) future->wait();
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> Operation::getFuture() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::unique_lock lock(mutex_);
    if (!future_) future_ = c10::make_intrusive<c10::ivalue::Future>(tensors_type());
    future = future_;
  }
  if (receives() && !ended_) engine_->start_timeout(*this);
  mark_future();
  return future;
}

c10::intrusive_ptr<c10::ivalue::Future> Operation::open_future() {
  const std::unique_lock lock(mutex_);
  if (future_ && !future_->completed()) return future_;
  return {};
}

/// Completes the future once the operation has ended and somebody has asked for it.
void Operation::mark_future() {
  {
    const std::unique_lock lock(mutex_);
    if (!completed_ || !future_ || future_marked_) return;
    future_marked_ = true;
  }
  if (exception_) {
    future_->setError(exception_);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
}

const at::Tensor& Operation::keep(at::Tensor tensor) {
  return kept_.emplace_back(std::move(tensor));
}

/// Makes no progress. Throws what failed.
bool Operation::requests_done() {
  while (next_ < requests_.size() && requests_[next_].finished()) {
    (void)requests_[next_].test();  // throws
    ++next_;
  }
  return next_ == requests_.size();
}

/// Progress of all operations, and a look for lost peers of this one.
void Operation::look() noexcept {
  try {
    if (next_ < requests_.size()) (void)requests_[next_].test();
  } catch (...) {  // requests_done() throws it again
  }
}

/// Without the engine's lock: the steps may post operations.
void Operation::complete(std::exception_ptr error) {
  if (!error) {
    try {
      const at::ThreadLocalStateGuard as_caller(caller_);
      const c10::NoGradGuard no_grad;
      for (const auto& step : steps_) step();
    } catch (...) {
      error = std::current_exception();
    }
  }
  steps_.clear();
  kept_.clear();
  finish(error);
  ended_ = true;
}

bool Callbacks::run(const c10::intrusive_ptr<Operation>& operation) {
  const std::unique_lock lock(state_->mutex);
  state_->waiting.push_back(operation);
  if (state_->waiting.size() <= state_->idle) {
    state_->wake.notify_one();
    return true;
  }
  try {
    std::thread([state = state_] { work(*state); }).detach();
    return true;
  } catch (const std::system_error&) {  // There are too many threads.
    state_->waiting.pop_back();
    return false;
  }
}

void Callbacks::close() {
  std::unique_lock lock(state_->mutex);
  state_->closed = true;
  state_->wake.notify_all();
  if (runs_here) return;
  state_->quiet.wait_for(lock, closing_time,
                         [this] { return state_->busy == 0 && state_->waiting.empty(); });
}

void Callbacks::work(State& state) {
  (void)prctl(PR_SET_NAME, "rondo-callback");
  runs_here = true;
  std::unique_lock lock(state.mutex);
  while (true) {
    ++state.idle;
    state.wake.wait(lock, [&state] { return state.closed || !state.waiting.empty(); });
    --state.idle;
    if (state.waiting.empty()) return;
    auto operation = std::move(state.waiting.front());
    state.waiting.pop_front();
    ++state.busy;
    lock.unlock();
    operation->mark_future();
    operation.reset();
    lock.lock();
    --state.busy;
    state.quiet.notify_all();
  }
}

/// Tells who holds the lock in a wait of the transport that another thread wants it.
class Engine::Lock {
 public:
  explicit Lock(Engine& engine) : engine_(engine) {
    TORCH_CHECK(!engine_.is_forked_copy(),
                "rondo: this process group belongs to the parent of this process, which was forked "
                "off; make one here by init_process_group(), or use none");
    if (engine_.mutex_.try_lock()) return;
    ++engine_.wanted_;
    engine_.mutex_.lock();
    --engine_.wanted_;
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() { engine_.mutex_.unlock(); }

 private:
  Engine& engine_;
};

Engine::Engine(transport::World world, StallNote stall)
    : world_(std::move(world)), stall_(std::move(stall)) {}

Engine::~Engine() { close(); }

void Engine::open() {
  thread_ = std::thread([self = shared_from_this()] { self->run(); });
}

void Engine::close() {
  if (is_forked_copy()) return;
  std::vector<Ended> ended;
  {
    const Lock lock(*this);
    if (closed_) return;
    closed_ = true;
    finish_or_abort();
    ended = collect();
    const auto error = std::make_exception_ptr(std::runtime_error(
        "rondo: the process group was destroyed before the operation completed"));
    for (auto& operation : pending_) {
      operation->pending_ = false;
      if (operation->receives()) operation->requests_.front().cancel();
      ended.push_back({std::move(operation), error});
    }
    pending_.clear();
    for (auto& one : ended) one.operation->requests_.clear();
  }
  wake_.notify_all();
  complete(std::move(ended));
  callbacks_.close();
  if (!thread_.joinable()) return;
  // It ends by itself, after what it waits for: perhaps this thread's end of complete().
  if (thread_.get_id() == std::this_thread::get_id() || completes_here == this) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Engine::abort() noexcept {
  if (!is_forked_copy()) world_.abort("rondo: the process group was aborted");
}

/// Buffers are lent until their operations have ended. Peers that take no part any more, because
/// they wait for this rank elsewhere, are told that it has gone. Nobody misses a receive: it can be
/// cancelled. Under the lock.
void Engine::finish_or_abort() {
  const auto limit = steady_clock::now() + closing_time;
  bool all_done = true;
  for (const auto& operation : pending_) {
    if (operation->receives()) continue;
    try {
      for (auto& request : operation->requests_) {
        const auto left = std::max(limit - steady_clock::now(), steady_clock::duration::zero());
        all_done = request.wait_for(left) && all_done;
      }
    } catch (...) {  // It has ended.
    }
  }
  if (all_done) return;
  world_.abort("rondo: the process group was destroyed while an operation was pending");
}

void Engine::post(const c10::intrusive_ptr<Operation>& operation, const Start& start) {
  {
    const Lock lock(*this);
    TORCH_CHECK(!closed_, "rondo: the process group was destroyed");
    start(world_.communicator(), operation->requests_);
    operation->pending_ = true;
    if (pending_.empty()) looked_at_ = steady_clock::now();  // there were no looks without one
    pending_.push_back(operation);
    if (resting_) wake_.notify_one();
  }
}

/// Time in which this process did not run counts for no timeout: its peers may not have run,
/// either. Under the lock.
void Engine::forgive_pause(steady_clock::time_point now) {
  const auto pause = now - std::exchange(looked_at_, now);
  if (pause < longest_pause) return;
  for (const auto& operation : pending_) {
    if (operation->deadline_) *operation->deadline_ += pause;
  }
}

/// Takes out of the list what has completed or failed. Makes progress once, however many there are,
/// by an operation that is another one each time. Under the lock.
std::vector<Engine::Ended> Engine::collect() {
  std::vector<Ended> ended;
  if (pending_.empty()) return ended;
  const auto now = steady_clock::now();
  forgive_pause(now);
  pending_[looks_++ % pending_.size()]->look();
  for (const auto& operation : pending_) {
    try {
      if (!operation->requests_done()) {
        if (operation->deadline_ && now > *operation->deadline_) give_up(*operation);
        continue;
      }
      ended.push_back({operation, nullptr});
    } catch (...) {
      ended.push_back({operation, std::current_exception()});
    }
    operation->pending_ = false;
    operation->requests_.clear();
  }
  if (!ended.empty()) std::erase_if(pending_, [](const auto& one) { return !one->pending_; });
  return ended;
}

/// After an operation's timeout: one more wait, from which the transport tells who is missing. Then
/// all ranks are told, so that none waits for this one.
void Engine::give_up(Operation& operation) {
  *stall_ = {};
  if (operation.requests_[operation.next_].wait_for(2 * stall_time)) return;
  std::string text = "rondo: " + (stall_->operation.empty() ? "an operation" : stall_->operation) +
                     " exceeded its timeout of " + std::to_string(operation.timeout_.count()) +
                     " ms";
  std::string separator = "; it waits for these ranks, which may wait for others: ";
  const auto& ranks = world_.ranks();
  for (const int rank : stall_->missing) {
    const auto& info = ranks[static_cast<std::size_t>(rank)];
    text += separator + std::to_string(rank) + " (pid " + std::to_string(info.pid) + " on " +
            info.host + ")";
    separator = ", ";
  }
  world_.abort(text);
  throw std::runtime_error(text);
}

/// Operations that end here store into memory of malloc(), and free some, so none may end while a
/// page of that memory is being adopted.
void Engine::complete(std::vector<Ended> ended) {
  if (ended.empty()) return;
  std::vector<c10::intrusive_ptr<Operation>> without_thread;
  {
    const std::lock_guard entry(completing_);
    const Engine* const before = std::exchange(completes_here, this);
    for (const auto& [operation, error] : ended) {
      operation->complete(error);
      if (operation->open_future() && !callbacks_.run(operation)) {
        without_thread.push_back(operation);
      }
    }
    ended = std::vector<Ended>();  // frees here what is kept nowhere else
    completes_here = before;
  }
  for (const auto& operation : without_thread) operation->mark_future();
}

void Engine::start_timeout(Operation& operation) {
  const Lock lock(*this);
  if (!operation.deadline_) operation.deadline_ = steady_clock::now() + operation.timeout_;
}

void Engine::wait(Operation& operation, steady_clock::time_point limit) {
  ++waiting_;
  auto slice = shortest_slice;
  while (!operation.ended_ && steady_clock::now() < limit) {
    std::vector<Ended> ended;
    bool elsewhere = false;
    {
      const Lock lock(*this);
      elsewhere = !operation.pending_;
      if (!elsewhere) {
        if (!operation.deadline_) operation.deadline_ = steady_clock::now() + operation.timeout_;
        ended = collect();
        if (operation.pending_ && wanted_ == 0) {
          try {
            (void)operation.requests_[operation.next_].wait_for(slice);
          } catch (...) {  // Reported by the next look.
          }
          auto more = collect();
          std::move(more.begin(), more.end(), std::back_inserter(ended));
          slice = std::min(2 * slice, longest_slice);
        }
      }
    }
    complete(std::move(ended));
    // Another thread has taken it out of the list and is about to complete it.
    if (elsewhere && !operation.ended_) std::this_thread::yield();
  }
  if (!operation.ended_ && operation.receives() && !operation.open_future()) {
    const Lock lock(*this);
    operation.deadline_.reset();  // nobody waits for it any more
  }
  --waiting_;
}

/// The caller may have Python's lock, for which a thread that completes something may wait.
void Engine::poll() {
  const Pause others(completing_, std::try_to_lock);
  if (!others) return;
  std::vector<Ended> ended;
  if (!mutex_.try_lock()) return;
  ended = collect();
  mutex_.unlock();
  complete(std::move(ended));
}

/// Sleeps until something is posted; false when the engine closes. Links between nodes may have to
/// send what is complete for the caller already, so they are looked at now and then.
bool Engine::rest() {
  std::unique_lock lock(mutex_);
  resting_ = true;
  while (!closed_ && pending_.empty()) {
    if (world_.nodes() == 1) {
      wake_.wait(lock);
    } else {
      wake_.wait_for(lock, active_time);
      try {
        world_.progress();
      } catch (const transport::Error&) {  // The next operation reports it.
      }
    }
  }
  resting_ = false;
  return !closed_;
}

void Engine::run() {
  (void)prctl(PR_SET_NAME, "rondo-torch");
  (void)prctl(PR_SET_TIMERSLACK, 1000);
  auto active = steady_clock::now();
  while (true) {
    std::this_thread::sleep_for(look_interval);
    bool idle = false;
    if (waiting_ == 0) {
      std::vector<Ended> ended;
      {
        const Lock lock(*this);
        if (closed_) return;
        ended = collect();
        idle = pending_.empty();
      }
      if (!ended.empty() || !idle) active = steady_clock::now();
      complete(std::move(ended));
    }
    if (idle && steady_clock::now() - active > active_time) {
      if (!rest()) return;
      active = steady_clock::now();
    }
  }
}

void* Engine::allocate(std::size_t bytes) {
  const Lock lock(*this);
  try {
    return world_.arena().allocate(bytes, 64);
  } catch (const transport::Error&) {
    return nullptr;
  }
}

bool Engine::contains(const void* data, std::size_t bytes) {
  const Lock lock(*this);
  return world_.arena().contains(data, bytes);
}

void Engine::deallocate(void* data, std::size_t bytes) noexcept {
  if (is_forked_copy()) return;
  const Lock lock(*this);
  world_.arena().deallocate(data, bytes, 64);
}

Engine::Pause Engine::pause_completions() {
  return is_forked_copy() ? Pause() : Pause(completing_);
}

transport::AdoptedMemory Engine::adopt(std::span<std::byte> memory, const Pause& /*pause*/) {
  const Lock lock(*this);
  return world_.adopt(memory);
}

void Engine::release(transport::AdoptedMemory& memory, const Pause& /*pause*/) noexcept {
  if (is_forked_copy()) {
    memory.release();
    return;
  }
  const Lock lock(*this);
  memory.release();
}

}  // namespace rondo::torch_backend
