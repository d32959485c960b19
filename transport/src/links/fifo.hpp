#pragma once

#include <cstddef>
#include <deque>

namespace rondo::transport {

/// A queue of objects that live elsewhere and have a pointer `next`, so that queueing never
/// allocates.
template <typename T>
class Fifo {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T* front() const noexcept { return first_; }

  void push(T& item) noexcept {
    item.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &item;
    last_ = &item;
    size_ += 1;
  }

  /// As the oldest again: it has just been popped.
  void push_front(T& item) noexcept {
    item.next = first_;
    if (first_ == nullptr) last_ = &item;
    first_ = &item;
    size_ += 1;
  }

  /// The oldest, which must be there.
  T& pop() noexcept {
    T& item = *first_;
    first_ = item.next;
    size_ -= 1;
    return item;
  }

  /// Removes the oldest that `fits`; null if none does.
  template <typename Fits>
  T* extract(Fits fits) noexcept {
    T* before = nullptr;
    for (T* item = first_; item != nullptr; before = item, item = item->next) {
      if (!fits(*item)) continue;
      (before == nullptr ? first_ : before->next) = item->next;
      if (last_ == item) last_ = before;
      size_ -= 1;
      return item;
    }
    return nullptr;
  }

  /// Offers every item once, oldest first, to `finish`: those that it does not finish stay, behind
  /// the others. Ends early when `enough` says so.
  template <typename Finish, typename Enough>
  void rotate(Finish finish, Enough enough) {
    for (std::size_t left = size_; left > 0 && !enough(); --left) {
      T& item = pop();
      if (!finish(item)) push(item);
    }
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
  std::size_t size_ = 0;
};

/// Objects that are made once and used again: after the first time, no allocation.
template <typename T>
class Pool {
 public:
  [[nodiscard]] T& acquire() {
    if (free_.empty()) return all_.emplace_back();
    return free_.pop();
  }
  void release(T& item) noexcept { free_.push(item); }

  /// Calls `visit` with each object, also with those that are not in use; it may release them.
  template <typename Visit>
  void for_each(Visit visit) {
    for (T& item : all_) visit(item);
  }

 private:
  std::deque<T> all_;
  Fifo<T> free_;
};

}  // namespace rondo::transport
