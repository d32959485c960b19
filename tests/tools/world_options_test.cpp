// Every key of [transport], from a configuration's text to the options that a World gets.

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/experiment.hpp>
#include <rondo/transport/world.hpp>

#include "world.hpp"

namespace rondo::tools::world_options_test {
namespace {

using namespace std::chrono_literals;

transport::WorldOptions options_of(const std::vector<std::string>& settings) {
  std::vector<std::string> keys;
  for (const std::string& setting : settings) keys.push_back("transport." + setting);
  return world_options(train::parse_experiment(
      "data.name = \"synthetic\"\nmodel.name = \"lenet5\"\n", "test.toml", keys));
}

TEST(WorldOptionsTest, HaveTheTransportsDefaultsWhereNothingIsConfigured) {
  const transport::WorldOptions options = options_of({});
  const transport::WorldOptions defaults;

  EXPECT_EQ(options.waiting, defaults.waiting);
  EXPECT_EQ(options.deadline, defaults.deadline);
  EXPECT_EQ(options.stall_warning, defaults.stall_warning);
  EXPECT_EQ(options.small_bytes, defaults.small_bytes);
  EXPECT_EQ(options.fabric.name, defaults.fabric.name);
  EXPECT_EQ(options.fabric.interface, defaults.fabric.interface);
  EXPECT_EQ(options.fabric.fake_nodes, defaults.fabric.fake_nodes);
  EXPECT_EQ(options.fabric.injected_latency, defaults.fabric.injected_latency);
  EXPECT_EQ(options.fabric.injected_bytes_per_second, defaults.fabric.injected_bytes_per_second);
  EXPECT_EQ(options.fabric.allreduce, defaults.fabric.allreduce);
}

TEST(WorldOptionsTest, HaveTheTimesAndSizesThatAreConfigured) {
  const transport::WorldOptions options =
      options_of({"deadline_seconds=12.5", "stall_warning_seconds=0.25", "small_bytes=1024"});

  EXPECT_EQ(options.deadline, 12'500ms);
  EXPECT_EQ(options.stall_warning, 250ms);
  EXPECT_EQ(options.small_bytes, 1024U);
}

TEST(WorldOptionsTest, HaveTheFabricThatIsConfigured) {
  const transport::FabricOptions fabric =
      options_of({"fabric=tcp", "interface=ib0,^docker0", "fake_nodes=3", "latency_us=2.5",
                  "bandwidth_gbs=0.5", "allreduce=rd:0-16k;ring:16k-max"})
          .fabric;

  EXPECT_EQ(fabric.name, "tcp");
  EXPECT_EQ(fabric.interface, "ib0,^docker0");
  EXPECT_EQ(fabric.fake_nodes, 3);
  EXPECT_EQ(fabric.injected_latency, 2500ns);
  EXPECT_EQ(fabric.injected_bytes_per_second, 5e8);
  EXPECT_EQ(fabric.allreduce, "rd:0-16k;ring:16k-max");
}

TEST(WorldOptionsTest, HaveEveryWayOfWaiting) {
  using transport::Waiting;
  for (const auto& [name, waiting] : {std::pair{"auto", Waiting::automatic},
                                      {"spin", Waiting::spin},
                                      {"yield", Waiting::yield},
                                      {"block", Waiting::block}}) {
    EXPECT_EQ(options_of({std::string("wait=") + name}).waiting, waiting);
  }
}

TEST(WorldOptionsTest, TellOfAStallOnStderr) {
  const transport::WorldOptions options = options_of({});
  ASSERT_TRUE(options.on_stall);
  testing::internal::CaptureStderr();

  options.on_stall({.rank = 1, .operation = "allreduce", .missing = {0, 3}, .duration = 20s});

  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "rondo: rank 1: has waited 20 s for ranks 0, 3 in allreduce\n");
}

}  // namespace
}  // namespace rondo::tools::world_options_test
