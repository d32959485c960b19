#include "bootstrap/store_line.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <rondo/transport/error.hpp>

#include "bootstrap/limits.hpp"

namespace rondo::transport::rendezvous {
namespace {

// Why an allgather cannot succeed after such news; empty when it can.
std::string consequence(const News& news) {
  switch (news.kind) {
    case News::Kind::left:
      return "rendezvous: rank " + std::to_string(news.rank) + " has left already";
    case News::Kind::lost:
      return "rendezvous: lost " + news.text;
    case News::Kind::aborted:
      return "rendezvous: rank " + std::to_string(news.rank) + " aborted: " + news.text;
    case News::Kind::diverged:
      break;
  }
  return {};
}

}  // namespace

StoreLine::StoreLine(int rank, int size, Connection connection, std::string host)
    : rank_(rank),
      size_(static_cast<std::size_t>(size)),
      host_(std::move(host)),
      connection_(std::move(connection)) {
  connection_.allow(largest_from_store);
}

void StoreLine::post_blob(std::string_view mine) {
  if (mine.size() > largest_blob) {
    throw std::invalid_argument(
        "rondo::transport: a rank's part of a side channel's allgather "
        "has at most " +
        std::to_string(largest_blob) + " bytes, not " + std::to_string(mine.size()));
  }
  const std::scoped_lock lock(mutex_);
  if (!failure_.empty()) throw_failure();
  parts_.reset();
  posted_.push_back(encode(Blob{.round = round_, .bytes = std::string(mine)}));
}

std::vector<std::string> StoreLine::wait_for_blobs(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, limit, [&] { return parts_ || !failure_.empty(); })) {
    failure_ =
        "rendezvous: rank 0 on host " + host_ + " did not answer in time; is its process stopped?";
  }
  // Who has all parts is done, even if somebody was lost right after.
  if (!parts_) throw_failure();
  round_ += 1;
  return *std::exchange(parts_, std::nullopt);
}

void StoreLine::watch(std::function<void(const News&)> hear) {
  const std::scoped_lock lock(mutex_);
  hear_ = std::move(hear);
}

void StoreLine::post_news(const News& news) {
  News cut = news;
  cut.text.resize(std::min(cut.text.size(), longest_text));
  const std::scoped_lock lock(mutex_);
  if (news.kind == News::Kind::left && news.rank == rank_) left_ = true;
  posted_.push_back(encode(cut));
}

void StoreLine::post_left() {
  const std::scoped_lock lock(mutex_);
  if (!left_) posted_.push_back(encode(News{.kind = News::Kind::left, .rank = rank_}));
  left_ = true;
}

void StoreLine::list(std::vector<pollfd>& entries) {
  entries.push_back({.fd = closed_ ? -1 : connection_.descriptor(),
                     .events = connection_.events(),
                     .revents = 0});
}

void StoreLine::attend(std::span<const pollfd> entries, Clock::time_point /*now*/) {
  if (!closed_) {
    send_posted();
    if (entries.front().revents != 0) connection_.exchange();
    while (const auto frame = connection_.next()) take(*frame);
    if (connection_.ended()) close(connection_.end());
  }
  deliver();
}

void StoreLine::send_posted() {
  std::vector<Frame> posted;
  {
    const std::scoped_lock lock(mutex_);
    posted.swap(posted_);
  }
  for (const Frame& frame : posted) connection_.send(frame);
}

void StoreLine::take(const Frame& frame) {
  if (frame.type == Frame::Type::news) {
    if (auto news = decode_news(frame.payload)) take(std::move(*news));
    return;
  }
  const std::scoped_lock lock(mutex_);
  if (frame.type == Frame::Type::failed && failure_.empty()) failure_ = printable(frame.payload);
  if (frame.type == Frame::Type::blobs) {
    auto blobs = decode_blobs(frame.payload);
    if (blobs && blobs->round == round_ && blobs->parts.size() == size_) {
      parts_ = std::move(blobs->parts);
    }
  }
  changed_.notify_all();
}

void StoreLine::take(News news) {
  const std::scoped_lock lock(mutex_);
  if (failure_.empty()) failure_ = consequence(news);
  if (news.kind == News::Kind::left && news.rank == 0) store_left_ = true;
  unheard_.push_back(std::move(news));
  changed_.notify_all();
}

void StoreLine::close(const std::string& why) {
  closed_ = true;
  connection_.close();  // the store waits for that when it leaves
  bool expected = finishing_;
  {
    const std::scoped_lock lock(mutex_);
    expected = expected || store_left_;
  }
  if (expected) return;
  take(News{.kind = News::Kind::lost, .rank = 0, .text = "rank 0 on host " + host_ + ": " + why});
}

// No lock is held while the handler runs: it may tell.
void StoreLine::deliver() {
  while (true) {
    News news;
    {
      const std::scoped_lock lock(mutex_);
      if (!hear_ || unheard_.empty()) return;
      news = std::move(unheard_.front());
      unheard_.pop_front();
    }
    hear_(news);
  }
}

// The connection ends whatever happens, so that the others see this rank lost. It may have been the
// handler of news that threw: the rest of the news is offered to it all the same.
void StoreLine::on_failure(std::string_view why) noexcept {
  try {
    if (!closed_) close("this rank's connection to it has failed: " + std::string(why));
  } catch (...) {
    connection_.close();
  }
  for (bool again = true; again;) {
    try {
      deliver();
      again = false;
    } catch (...) {
      // deliver() has taken one from the list before it called the handler.
    }
  }
}

void StoreLine::finish() {
  finishing_ = true;
  if (closed_) return;
  send_posted();
  connection_.finish_sending();
}

void StoreLine::throw_failure() const { throw Error(Errc::rendezvous_failed, failure_); }

}  // namespace rondo::transport::rendezvous
