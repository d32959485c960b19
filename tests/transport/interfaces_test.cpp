// Which network interface a pattern selects.

#include "bootstrap/interfaces.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/scratch_folder.hpp"
#include "support/store.hpp"

namespace rondo::transport::bootstrap::interfaces_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Interface> host() {
  return {{.name = "lo", .up = true, .loopback = true, .addresses = {"127.0.0.1", "::1"}},
          {.name = "eth0", .up = true, .addresses = {"192.168.0.7", "fe80::7%eth0"}},
          {.name = "eth1", .up = false, .addresses = {"192.168.1.7"}},
          {.name = "ib0", .up = true, .addresses = {"10.1.0.7", "fd00:1::7"}},
          {.name = "docker0", .up = true, .addresses = {"172.17.0.1"}},
          {.name = "veth12ab", .up = true, .addresses = {"172.18.0.1"}},
          {.name = "br-1f", .up = true, .addresses = {"172.19.0.1"}},
          {.name = "virbr0", .up = true, .addresses = {"192.168.122.1"}},
          {.name = "cni0", .up = true, .addresses = {"10.244.0.1"}},
          {.name = "bare0", .up = true}};
}

std::vector<std::string> selected(std::string_view pattern) {
  std::vector<std::string> names;
  for (const Interface& interface : select_interfaces(host(), pattern)) {
    names.push_back(interface.name);
  }
  return names;
}

std::string error_of(std::string_view pattern) {
  return stores::error_of([&] { (void)select_interfaces(host(), pattern); });
}

TEST(InterfacesTest, AreThoseThatLeadToOtherHosts) {
  EXPECT_THAT(selected(""), ElementsAre("eth0", "ib0"));
}

TEST(InterfacesTest, CanBeNamedInOrderOfPreference) {
  EXPECT_THAT(selected("ib0,eth0"), ElementsAre("ib0", "eth0"));
  EXPECT_THAT(selected("eth0,ib0,eth*"), ElementsAre("eth0", "ib0"));
}

TEST(InterfacesTest, CanBeNamedThoughTheyAreUnusual) {
  EXPECT_THAT(selected("docker0"), ElementsAre("docker0"));
  EXPECT_THAT(selected("lo"), ElementsAre("lo"));
}

TEST(InterfacesTest, AreMatchedByGlobsOfWhichSomeAreUp) {
  EXPECT_THAT(selected("eth*"), ElementsAre("eth0"));
  EXPECT_THAT(selected("i?0"), ElementsAre("ib0"));
}

TEST(InterfacesTest, AreExcluded) {
  EXPECT_THAT(selected("^eth0"), ElementsAre("ib0"));
  EXPECT_THAT(selected("*,^lo,^docker0,^v*,^br-*,^cni0,^bare0"), ElementsAre("eth0", "ib0"));
  EXPECT_THAT(selected("^not_there"), ElementsAre("eth0", "ib0"));
}

TEST(InterfacesTest, AreFoundByTheirNetworks) {
  EXPECT_THAT(selected("10.1.0.0/16"), ElementsAre("ib0"));
  EXPECT_THAT(selected("10.0.0.0/8"), ElementsAre("ib0", "cni0"));
  EXPECT_THAT(selected("10.0.0.0/8,^10.244.0.0/15"), ElementsAre("ib0"));
  EXPECT_THAT(selected("fd00::/16"), ElementsAre("ib0"));
  EXPECT_THAT(selected("fe80::/10"), ElementsAre("eth0"));
  EXPECT_THAT(selected("192.168.0.7"), ElementsAre("eth0"));
  EXPECT_THAT(selected("192.168.0.0/23"), ElementsAre("eth0"));
}

TEST(InterfacesTest, ThatDoNotExistAreAnErrorThatListsWhatDoes) {
  for (const char* pattern : {"ib1", "eth0,ib1", "ib1*", "11.0.0.0/8", "10.1.0.6/32", "::/128"}) {
    EXPECT_THAT(error_of(pattern),
                AllOf(HasSubstr("nothing matches"), HasSubstr("ib0 (10.1.0.7, fd00:1::7)")))
        << pattern;
  }
}

TEST(InterfacesTest, ThatAreDownAreAnError) {
  EXPECT_THAT(error_of("eth1"), AllOf(HasSubstr("is down"), HasSubstr("eth1 (down, 192.168.1.7)")));
}

TEST(InterfacesTest, ThatAreDownArePassedOverForTheNext) {
  EXPECT_EQ(choose_interface(host(), "eth1,eth0", ""), "eth0");
}

TEST(InterfacesTest, MustRemain) { EXPECT_THAT(error_of("eth0,^eth*"), HasSubstr("leaves none")); }

TEST(InterfacesTest, AreNoPatternWithoutNames) {
  for (const char* pattern : {",", "eth0,", "^", "10.0.0.0/33", "10.0.0/8", "ib0/8", "10.0.0.0/"}) {
    EXPECT_THAT(error_of(pattern), HasSubstr("interface: ")) << pattern;
  }
}

TEST(InterfacesTest, AreChosenByTheAddressThatReachedTheStore) {
  EXPECT_EQ(choose_interface(host(), "", "10.1.0.7"), "ib0");
  EXPECT_EQ(choose_interface(host(), "", "fe80::7"), "eth0");
  EXPECT_EQ(choose_interface(host(), "", "127.0.0.1"), "lo");
  EXPECT_EQ(choose_interface(host(), "", "172.18.0.1"), "veth12ab");
}

TEST(InterfacesTest, AreChosenByThePatternBeforeTheAddress) {
  EXPECT_EQ(choose_interface(host(), "ib0", "192.168.0.7"), "ib0");
  EXPECT_EQ(choose_interface(host(), "ib0,eth0", "192.168.0.7"), "eth0");
  EXPECT_EQ(choose_interface(host(), "", "1.2.3.4"), "eth0");
}

// As /sys has them: a network card, a bond over one, a veth, a card without a line.
TEST(InterfacesTest, HaveASpeedIfTheyAreHardwareOrLieAboveIt) {
  const rondo::test::ScratchFolder folder;
  for (const char* name : {"eth0", "eth1"}) {
    std::filesystem::create_directories(folder.path() / name / "device");
  }
  std::filesystem::create_directories(folder.path() / "bond0" / "lower_eth0");
  std::filesystem::create_directories(folder.path() / "veth0");
  for (const char* name : {"eth0", "bond0", "veth0"}) {
    (void)folder.write(std::string(name) + "/speed", "10000\n");
  }
  (void)folder.write("eth1/speed", "-1\n");

  EXPECT_EQ(speed_of_interface(folder.path() / "eth0"), 10'000);
  EXPECT_EQ(speed_of_interface(folder.path() / "bond0"), 10'000);
  EXPECT_EQ(speed_of_interface(folder.path() / "veth0"), 0);
  EXPECT_EQ(speed_of_interface(folder.path() / "eth1"), 0);
  EXPECT_EQ(speed_of_interface(folder.path() / "none"), 0);
}

TEST(InterfacesTest, OfThisHostHaveTheNetworksOfTheirAddresses) {
  const auto all = list_interfaces();

  const auto loopback = std::ranges::find_if(all, &Interface::loopback);

  ASSERT_NE(loopback, all.end());
  EXPECT_TRUE(loopback->up);
  EXPECT_THAT(loopback->addresses, Contains("127.0.0.1"));
  ASSERT_EQ(loopback->networks.size(), loopback->addresses.size());
  EXPECT_THAT(loopback->networks, Contains("127.0.0.0/8"));
}

}  // namespace
}  // namespace rondo::transport::bootstrap::interfaces_test
