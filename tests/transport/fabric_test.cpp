// Nodes are joined by what works, and the route says what does not; a node's ranks may have to
// share its CPUs.

#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>
#include <rondo/transport/links.hpp>
#include <rondo/transport/world.hpp>

#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"
#include "support/world.hpp"

namespace rondo::transport::fabric_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::StartsWith;

// With a plug-in of the name "ucx" that opens, and whose messages never arrive.
class FabricTest : public testing::Test {
 protected:
  FabricTest() {
    const char* plugins = std::getenv("RONDO_TEST_PLUGINS");
    std::filesystem::copy(std::filesystem::path(plugins) / "librondo-link-fake.so",
                          folder_.path() / "librondo-link-ucx.so");
    before_ = std::getenv("RONDO_PLUGIN_PATH");
    ::setenv("RONDO_PLUGIN_PATH", (folder_.path().string() + ":" + before_).c_str(), 1);
  }
  ~FabricTest() override { ::setenv("RONDO_PLUGIN_PATH", before_.c_str(), 1); }

  static WorldOptions joined_by(const std::string& fabric) {
    WorldOptions options = test::quick_options();
    options.fabric = {.name = fabric, .fake_nodes = 2};
    return options;
  }

 private:
  test::ScratchFolder folder_;
  std::string before_;
};

TEST_F(FabricTest, IsTakenWithItsReason) {
  for (const auto& [fabric, route] : std::map<std::string, std::string>{
           {"auto", "tcp: sockets over lo, auto: the network by which the store was reached"},
           {"tcp", "tcp: sockets over lo, as asked: the only network that joins all nodes"},
           {"shm", "shm: memory that all ranks of the node share, as asked"}}) {
    const std::vector<World> worlds = World::make_threads(2, joined_by(fabric));
    EXPECT_EQ(worlds[0].route(), route);
    EXPECT_EQ(worlds[1].route(), route);
  }
}

TEST_F(FabricTest, SaysWhatDidNotCarryAMessage) {
  EXPECT_THAT(test::expect_error(Errc::link_unavailable,
                                 [] { (void)World::make_threads(2, joined_by("ucx")); }),
              AllOf(HasSubstr("fake: pigeon over air did not carry a message to or from rank"),
                    HasSubstr("no such loft")));
}

TEST(FabricNameTest, IsCheckedBeforeAnythingIsOpened) {
  for (const char* name : {"auto", "shm", "tcp", "ucx", "ucx:tcp", "ofi", "ofi:verbs"}) {
    EXPECT_EQ(problem_of_fabric_name(name), "") << name;
  }
  for (const char* name : {"", "mpi", "ucx:", "auto:tcp", "tcp:eth0", "shm:x", "UCX"}) {
    EXPECT_THAT(problem_of_fabric_name(name), HasSubstr("' is none of auto, tcp, ucx")) << name;
  }
}

// On a thread that may run on one CPU alone, as its ranks then may.
TEST(OversubscriptionTest, IsMoreRanksThanCpus) {
  std::thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    for (const bool in_nodes : {false, true}) {
      WorldOptions options = test::quick_options();
      if (in_nodes) options.fabric = {.name = "shm", .fake_nodes = 2};
      for (const World& world : World::make_threads(2, options)) {
        EXPECT_TRUE(world.oversubscribed()) << in_nodes;
      }
      EXPECT_FALSE(World::make_threads(1, options).front().oversubscribed()) << in_nodes;
    }
  }).join();
}

TEST(NetworksTest, OfThisHostHaveLoopbackLeftOut) {
  EXPECT_THAT(networks(), Contains(AllOf(Field(&NetworkFacts::device, "lo"),
                                         Field(&NetworkFacts::network, "127.0.0.0/8"),
                                         Field(&NetworkFacts::problem, "loopback"))));
}

}  // namespace
}  // namespace rondo::transport::fabric_test
