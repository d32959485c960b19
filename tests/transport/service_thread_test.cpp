// The thread that serves the store and receives status messages.

#include <chrono>
#include <future>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "bootstrap/side_channel.hpp"

namespace rondo::transport::bootstrap::service_thread_test {
namespace {

using Clock = std::chrono::steady_clock;

// Waits for nothing, and is told why it will not be called any more.
class IdleTask : public ServiceTask {
 public:
  void list(std::vector<pollfd>& /*entries*/) override {}
  [[nodiscard]] Clock::time_point due() const override { return Clock::time_point::max(); }
  void attend(std::span<const pollfd> /*entries*/, Clock::time_point /*now*/) override {}
  void on_failure(std::string_view why) noexcept override { why_.set_value(std::string(why)); }
  void finish() override {}
  [[nodiscard]] bool finished() const override { return true; }

  [[nodiscard]] std::string wait_for_failure() { return why_.get_future().get(); }

 private:
  std::promise<std::string> why_;
};

class OutOfMemory : public IdleTask {
 public:
  void attend(std::span<const pollfd> /*entries*/, Clock::time_point /*now*/) override {
    throw std::bad_alloc();
  }
};

TEST(ServiceThreadTest, AnExceptionOnItsThreadEndsTheTasksAndNotTheProcess) {
  OutOfMemory first;
  IdleTask second;
  ServiceThread service({&first, &second});

  service.wake();

  EXPECT_EQ(first.wait_for_failure(), "std::bad_alloc");
  EXPECT_EQ(second.wait_for_failure(), "std::bad_alloc");
}

}  // namespace
}  // namespace rondo::transport::bootstrap::service_thread_test
