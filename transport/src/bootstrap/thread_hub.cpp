#include "bootstrap/thread_hub.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>

#include <rondo/transport/error.hpp>

#include "bootstrap/absent.hpp"

namespace rondo::transport::rendezvous {
namespace {

// Where the blobs of one allgather meet. A round cannot begin before all have read the last one,
// since it needs them all.
class Rounds {
 public:
  Rounds(int ranks, std::chrono::milliseconds deadline)
      : deadline_(deadline),
        blobs_(static_cast<std::size_t>(ranks)),
        came_(static_cast<std::size_t>(ranks), false) {}

  std::vector<std::string> exchange(int rank, std::string_view mine) {
    std::unique_lock lock(mutex_);
    if (!failure_.empty()) throw Error(Errc::rendezvous_failed, failure_);
    const std::uint64_t round = round_;
    blobs_[static_cast<std::size_t>(rank)] = mine;
    came_[static_cast<std::size_t>(rank)] = true;
    arrived_ += 1;
    if (arrived_ == came_.size()) {
      complete();
    } else if (!changed_.wait_for(lock, deadline_,
                                  [&] { return round_ != round || !failure_.empty(); })) {
      fail("rendezvous: " + absent(came_) + " in time");
    }
    if (round_ == round) throw Error(Errc::rendezvous_failed, failure_);
    return result_;
  }

  void leave(int rank) {
    const std::scoped_lock lock(mutex_);
    if (arrived_ != 0 && failure_.empty()) {
      fail("rendezvous: rank " + std::to_string(rank) + " left before all ranks had met");
    }
    if (failure_.empty()) failure_ = "rendezvous: rank " + std::to_string(rank) + " has left";
  }

 private:
  void complete() {
    result_ = blobs_;
    came_.assign(came_.size(), false);
    arrived_ = 0;
    round_ += 1;
    changed_.notify_all();
  }

  void fail(std::string text) {
    failure_ = std::move(text);
    changed_.notify_all();
  }

  const std::chrono::milliseconds deadline_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t round_ = 0;
  std::size_t arrived_ = 0;
  std::vector<std::string> blobs_;
  std::vector<bool> came_;
  std::vector<std::string> result_;
  std::string failure_;
};

// What one rank is yet to hear. No lock is held while its handler runs, so handlers may tell.
class Inbox {
 public:
  void watch(std::function<void(const News&)> hear) {
    std::unique_lock lock(mutex_);
    hear_ = std::move(hear);
    deliver(lock);
  }

  void put(const News& news) {
    std::unique_lock lock(mutex_);
    if (closed_) return;
    waiting_.push_back(news);
    deliver(lock);
  }

  void close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    waiting_.clear();
    idle_.wait(lock, [&] { return !delivering_; });
    hear_ = nullptr;
  }

 private:
  // Whoever finds nobody at it hands out all that there is; so news come one at a time.
  void deliver(std::unique_lock<std::mutex>& lock) {
    if (!hear_ || delivering_) return;
    delivering_ = true;
    while (!waiting_.empty()) {
      const News news = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      hear_(news);
      lock.lock();
    }
    delivering_ = false;
    idle_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable idle_;
  std::function<void(const News&)> hear_;
  std::deque<News> waiting_;
  bool delivering_ = false;
  bool closed_ = false;
};

struct Hub {
  Hub(int ranks, std::chrono::milliseconds deadline)
      : rounds(ranks, deadline), inboxes(static_cast<std::size_t>(ranks)) {}
  Rounds rounds;
  std::vector<Inbox> inboxes;
};

class ThreadChannel final : public SideChannel {
 public:
  ThreadChannel(int rank, std::shared_ptr<Hub> hub) : rank_(rank), hub_(std::move(hub)) {}
  ThreadChannel(const ThreadChannel&) = delete;
  ThreadChannel& operator=(const ThreadChannel&) = delete;

  ~ThreadChannel() override {
    if (!left_) tell({.kind = News::Kind::left, .rank = rank_});
    hub_->rounds.leave(rank_);
    hub_->inboxes[static_cast<std::size_t>(rank_)].close();
  }

  std::vector<std::string> allgather(std::string_view mine) override {
    return hub_->rounds.exchange(rank_, mine);
  }

  void watch(std::function<void(const News&)> hear) override {
    hub_->inboxes[static_cast<std::size_t>(rank_)].watch(std::move(hear));
  }

  void tell(const News& news) noexcept override {
    if (news.kind == News::Kind::left && news.rank == rank_) left_ = true;
    for (std::size_t r = 0; r < hub_->inboxes.size(); ++r) {
      if (r != static_cast<std::size_t>(rank_)) hub_->inboxes[r].put(news);
    }
  }

 private:
  int rank_;
  std::shared_ptr<Hub> hub_;
  std::atomic<bool> left_ = false;
};

}  // namespace

std::vector<std::unique_ptr<SideChannel>> make_thread_hub(
    int ranks, std::chrono::milliseconds rendezvous_deadline) {
  const auto hub = std::make_shared<Hub>(ranks, rendezvous_deadline);
  std::vector<std::unique_ptr<SideChannel>> channels;
  channels.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) channels.push_back(std::make_unique<ThreadChannel>(r, hub));
  return channels;
}

}  // namespace rondo::transport::rendezvous
