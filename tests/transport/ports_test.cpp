// The numbers that keep the messages of a rank's communicators apart.

#include <cstdint>
#include <optional>

#include <gtest/gtest.h>

#include "core/channel.hpp"

namespace rondo::transport::ports_test {
namespace {

TEST(PortsTest, RefusesOneMoreWhenAllAreTaken) {
  Ports ports;
  for (std::size_t i = 0; i < Ports::count; ++i) EXPECT_EQ(ports.take(), i);

  EXPECT_EQ(ports.take(), std::nullopt);

  ports.release(1234);
  EXPECT_EQ(ports.take(), 1234);
  EXPECT_EQ(ports.take(), std::nullopt);
}

TEST(PortsTest, GivesWhatWasFreeLongest) {
  Ports ports;
  for (std::size_t i = 0; i < Ports::count; ++i) {
    const auto port = ports.take();
    EXPECT_EQ(port, i);
    if (port.has_value()) ports.release(*port);
  }
  EXPECT_EQ(ports.take(), 0);
}

}  // namespace
}  // namespace rondo::transport::ports_test
