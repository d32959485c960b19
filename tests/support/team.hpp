#pragma once

// Threads for tests that lend them.

#include <cstddef>
#include <thread>
#include <vector>

#include <rondo/transport/team.hpp>

namespace rondo::test {

/// A team whose threads really run at the same time. It may be lent to several ranks.
class ThreadTeam final : public transport::Team {
 public:
  explicit ThreadTeam(int size) : size_(size) {}

  [[nodiscard]] int size() const noexcept override { return size_; }
  void run(void (*part)(void* context, int index), void* context) override {
    runs += 1;
    std::vector<std::thread> others;
    for (int i = 1; i < size_; ++i) others.emplace_back(part, context, i);
    part(context, 0);
    for (std::thread& other : others) other.join();
  }

  /// How often this thread has called run(), of any team.
  inline static thread_local std::size_t runs = 0;

 private:
  int size_;
};

}  // namespace rondo::test
