// Which networks a host has, and by which of them nodes are joined.

#include "bootstrap/candidates.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>

#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::transport::bootstrap::candidates_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Files as the kernel shows them in /sys.
class KernelFiles {
 public:
  [[nodiscard]] const std::filesystem::path& root() const { return folder_.path(); }

  void write(const std::string& file, const std::string& line) const {
    std::filesystem::create_directories((root() / file).parent_path());
    (void)folder_.write(file, line + "\n");
  }

  void add_port(const std::string& device, const std::string& layer, const std::string& gid,
                const std::string& interface, const std::string& state = "4: ACTIVE") const {
    const std::string port = "sys/class/infiniband/" + device + "/ports/1/";
    write(port + "link_layer", layer);
    write(port + "state", state);
    write(port + "rate", "100 Gb/sec (4X EDR)");
    write(port + "gids/0", gid);
    write(port + "gid_attrs/ndevs/0", interface);
  }

  void set_driver(const std::string& device, const std::string& driver) const {
    const auto folder = root() / "sys/class/infiniband" / device / "device";
    std::filesystem::create_directories(folder);
    std::filesystem::create_symlink("../../../../bus/pci/drivers/" + driver, folder / "driver");
  }

 private:
  test::ScratchFolder folder_;
};

constexpr const char* gid = "fe80:0000:0000:0000:b859:9f03:00d4:1f2a";

std::vector<Interface> interfaces() {
  return {
      {.name = "lo",
       .up = true,
       .loopback = true,
       .addresses = {"127.0.0.1"},
       .networks = {"127.0.0.0/8"}},
      {.name = "eth0",
       .up = true,
       .addresses = {"fe80::7", "192.168.0.7"},
       .networks = {"fe80::/64", "192.168.0.0/24"},
       .megabits = 1000},
      {.name = "eth1", .up = false, .addresses = {"192.168.1.7"}, .networks = {"192.168.1.0/24"}},
      {.name = "ib0", .up = true, .addresses = {"10.1.0.7"}, .networks = {"10.1.0.0/16"}},
      {.name = "usb0", .up = true, .addresses = {"169.254.3.1"}, .networks = {"169.254.0.0/16"}}};
}

// "tcp eth0 192.168.0.0/24", with why it is left out, if it is.
std::vector<std::string> offered(std::string_view pattern, const KernelFiles& files) {
  std::vector<std::string> texts;
  for (const Offer& offer : list_offers(interfaces(), pattern, files.root())) {
    texts.push_back(offer.kind + " " + offer.device + " " + offer.network +
                    (offer.obstacle.empty() ? "" : " (" + offer.obstacle + ")"));
  }
  return texts;
}

TEST(OffersTest, AreTheInterfacesThatAreUp) {
  EXPECT_THAT(offered("", {}),
              ElementsAre("tcp lo 127.0.0.0/8 (loopback)", "tcp eth0 192.168.0.0/24",
                          "tcp eth1 192.168.1.0/24 (down)", "tcp ib0 10.1.0.0/16",
                          "tcp usb0  (has no address but a link-local one)"));
}

TEST(OffersTest, HaveTheSpeedsThatTheKernelTells) {
  const KernelFiles files;
  files.add_port("mlx5_0", "InfiniBand", gid, "ib0");

  const auto offers = list_offers(interfaces(), "", files.root());

  EXPECT_EQ(std::ranges::find(offers, "mlx5_0:1", &Offer::device)->megabits, 100'000);
  EXPECT_EQ(std::ranges::find(offers, "eth0", &Offer::device)->megabits, 1000);
  EXPECT_EQ(std::ranges::find(offers, "ib0", &Offer::device)->megabits, 0);
}

TEST(OffersTest, HaveRdmaPortsWithTheNetworkThatTheyAreIn) {
  const KernelFiles files;
  files.add_port("mlx5_0", "InfiniBand", gid, "ib0");
  files.add_port("mlx5_1", "Ethernet", "fe80::", "eth0");
  files.add_port("mlx5_2", "InfiniBand", gid, "ib2", "1: DOWN");
  files.add_port("mlx5_3", "Ethernet", "fe80::", "usb0");

  const auto all = offered("", files);

  EXPECT_THAT(
      std::vector(all.begin(), all.begin() + 4),
      ElementsAre("verbs mlx5_0:1 InfiniBand fe80:0000:0000:0000", "verbs mlx5_1:1 192.168.0.0/24",
                  "verbs mlx5_2:1 InfiniBand fe80:0000:0000:0000 (its port is 1: DOWN)",
                  "verbs mlx5_3:1  (its interface has no address)"));
}

TEST(OffersTest, HaveDevicesWithAProviderOfTheirOwn) {
  const KernelFiles files;
  files.add_port("efa_0", "Unspecified", gid, "");
  files.set_driver("efa_0", "efa");
  files.add_port("hfi1_0", "InfiniBand", gid, "ib0");
  files.set_driver("hfi1_0", "hfi1");
  files.write("sys/class/cxi/cxi0/device/net/ib0/speed", "200000");
  files.write("dev/kgni0", "");

  const auto all = offered("", files);

  EXPECT_THAT(std::vector(all.begin(), all.begin() + 6),
              ElementsAre("cxi cxi0 cxi", "gni kgni0 gni", "efa efa_0 efa", "opx hfi1_0 opx",
                          "psm2 hfi1_0 psm2", "verbs hfi1_0:1 InfiniBand fe80:0000:0000:0000"));
}

TEST(OffersTest, AreThoseWhoseInterfaceTheUserHasNamed) {
  const KernelFiles files;
  files.add_port("mlx5_0", "InfiniBand", gid, "ib0");
  files.add_port("mlx5_1", "Ethernet", "fe80::", "eth0");

  EXPECT_THAT(offered("eth0", files),
              ElementsAre("verbs mlx5_0:1 InfiniBand fe80:0000:0000:0000 (excluded by "
                          "transport.interface)",
                          "verbs mlx5_1:1 192.168.0.0/24",
                          "tcp lo 127.0.0.0/8 (excluded by transport.interface)",
                          "tcp eth0 192.168.0.0/24", "tcp eth1 192.168.1.0/24 (down)",
                          "tcp ib0 10.1.0.0/16 (excluded by transport.interface)",
                          "tcp usb0  (excluded by transport.interface)"));
}

// A port needs no address of its interface, and none that is up.
TEST(OffersTest, AreAllThatAnExclusionDoesNotMatch) {
  const KernelFiles files;
  files.add_port("mlx5_0", "InfiniBand", gid, "ib7");
  files.add_port("mlx5_1", "InfiniBand", gid, "ib0");
  files.add_port("mlx5_2", "InfiniBand", gid, "eth1");

  EXPECT_THAT(
      offered("^ib0", files),
      ElementsAre("verbs mlx5_0:1 InfiniBand fe80:0000:0000:0000",
                  "verbs mlx5_1:1 InfiniBand fe80:0000:0000:0000 (excluded by "
                  "transport.interface)",
                  "verbs mlx5_2:1 InfiniBand fe80:0000:0000:0000", "tcp lo 127.0.0.0/8 (loopback)",
                  "tcp eth0 192.168.0.0/24", "tcp eth1 192.168.1.0/24 (down)",
                  "tcp ib0 10.1.0.0/16 (excluded by transport.interface)",
                  "tcp usb0  (has no address but a link-local one)"));
}

// A port is named by its interface, which is to be up then.
TEST(OffersTest, TellThatTheInterfaceOfANamedPortIsDown) {
  const KernelFiles files;
  files.add_port("mlx5_0", "InfiniBand", gid, "eth1");

  EXPECT_EQ(offered("eth0,eth1", files).front(),
            "verbs mlx5_0:1 InfiniBand fe80:0000:0000:0000 (its interface is down)");
}

TEST(OffersTest, TellWhichInterfacesThereAreWhereThePatternIsWrong) {
  EXPECT_THAT(
      test::expect_error(Errc::bootstrap_failed, [] { (void)list_offers(interfaces(), "eth0,"); }),
      AllOf(HasSubstr("missing after the last comma"), HasSubstr("this host has lo (127.0.0.1)")));
}

TEST(OffersTest, AreNoDevicesWithoutAnInterfaceWhereOthersAreNamed) {
  const KernelFiles files;
  files.add_port("efa_0", "Unspecified", gid, "");
  files.set_driver("efa_0", "efa");

  EXPECT_EQ(offered("eth0", files).front(), "efa efa_0 efa (excluded by transport.interface)");
  EXPECT_EQ(offered("^ib0", files).front(), "efa efa_0 efa");
}

/// Node `number`, which has what `offers` say and has met the others over eth0.
HostOffers node(int number, std::vector<Offer> offers,
                const std::string& plugins = "ucx ofi tcp ") {
  const std::string text = std::to_string(number);
  for (Offer& offer : offers) {
    if (offer.address.empty()) offer.address = offer.network + "#" + text;
  }
  return {.rank = number,
          .host = "h" + text,
          .machine = "m" + text,
          .plugins = plugins,
          .store_interface = "eth0",
          .offers = std::move(offers)};
}

Offer tcp(const std::string& device, const std::string& network, std::uint32_t megabits = 1000) {
  return {.kind = "tcp", .device = device, .network = network, .megabits = megabits};
}

Offer verbs(const std::string& device, const std::string& network,
            std::uint32_t megabits = 100'000) {
  return {.kind = "verbs", .device = device, .network = network, .megabits = megabits};
}

std::vector<HostOffers> two_nodes(const std::vector<Offer>& offers) {
  return {node(0, offers), node(1, offers)};
}

// "ucx tcp eth0", as node 0 sees it.
std::vector<std::string> found(const std::string& fabric, const std::vector<HostOffers>& nodes) {
  std::vector<std::string> texts;
  for (const Candidate& candidate : find_candidates(parse_fabric(fabric), nodes).ordered) {
    texts.push_back(candidate.plugin + " " +
                    (candidate.provider.empty() ? candidate.kind : candidate.provider) + " " +
                    candidate.devices.front());
  }
  return texts;
}

TEST(CandidatesTest, AreRdmaFirstThenTheFastestInterface) {
  std::vector<HostOffers> nodes =
      two_nodes({tcp("eth0", "a"), tcp("eth1", "b", 25'000), verbs("mlx5_0:1", "ib")});

  EXPECT_THAT(
      found("auto", nodes),
      ElementsAre("ucx verbs mlx5_0:1", "ofi verbs mlx5_0:1", "ofi psm3 mlx5_0:1", "tcp tcp eth1",
                  "tcp tcp eth0", "ucx tcp eth1", "ucx tcp eth0", "ofi tcp eth1", "ofi tcp eth0"));
}

TEST(CandidatesTest, AreJoinedAsRailsNodeByNode) {
  const Candidate first{.kind = "verbs", .network = "a", .devices = {"mlx5_0:1", "mlx5_2:1"}};
  const Candidate second{.kind = "verbs", .network = "b", .devices = {"mlx5_1:1", "mlx5_3:1"}};

  const Candidate joined = join_rails({&first, &second});

  EXPECT_THAT(joined.devices, ElementsAre("mlx5_0:1,mlx5_1:1", "mlx5_2:1,mlx5_3:1"));
  EXPECT_EQ(joined.network, "a and b");
}

TEST(CandidatesTest, AreNativeNetworksBeforeRdma) {
  std::vector<HostOffers> nodes = two_nodes({{.kind = "cxi", .device = "cxi0", .network = "cxi"},
                                             verbs("mlx5_0:1", "ib"),
                                             tcp("eth0", "a")});

  EXPECT_EQ(found("auto", nodes).front(), "ofi cxi cxi0");
}

TEST(CandidatesTest, AreWhatTheUserWants) {
  std::vector<HostOffers> nodes = two_nodes({tcp("eth0", "a"), verbs("mlx5_0:1", "ib")});

  EXPECT_THAT(found("tcp", nodes), ElementsAre("tcp tcp eth0"));
  EXPECT_THAT(found("ucx", nodes), ElementsAre("ucx verbs mlx5_0:1", "ucx tcp eth0"));
  EXPECT_THAT(found("ucx:tcp,self", nodes), ElementsAre("ucx tcp,self eth0"));
  EXPECT_THAT(found("ucx:rc_v,self", nodes),
              ElementsAre("ucx rc_v,self mlx5_0:1", "ucx rc_v,self eth0"));
  EXPECT_THAT(found("ofi:tcp", nodes), ElementsAre("ofi tcp eth0"));
  EXPECT_THAT(found("ofi:verbs;ofi_rxm", nodes), ElementsAre("ofi verbs;ofi_rxm mlx5_0:1"));
  EXPECT_THAT(found("ofi:sockets", nodes), ElementsAre("ofi sockets eth0"));
  EXPECT_THAT(found("ofi:cxi", nodes), ElementsAre("ofi cxi "));
}

TEST(CandidatesTest, MustReachAllNodes) {
  const std::vector<HostOffers> nodes = {
      node(0, {tcp("eth0", "a"), tcp("eth1", "b", 25'000), tcp("eth2", "c", 25'000)}),
      node(1, {tcp("eth0", "a"), tcp("ens3", "b", 10'000), tcp("eth2", "c", 25'000)}),
      node(2, {tcp("eth0", "a"), tcp("eth1", "b", 25'000)})};

  const Candidates candidates = find_candidates(parse_fabric("ucx"), nodes);

  EXPECT_THAT(found("ucx", nodes), ElementsAre("ucx tcp eth1", "ucx tcp eth0"));
  EXPECT_THAT(candidates.ordered[0].devices, ElementsAre("eth1", "ens3", "eth1"));
  EXPECT_EQ(candidates.ordered[0].megabits, 10'000);
  EXPECT_THAT(candidates.left_out, ElementsAre("tcp over eth2: h2 has nothing in its network c"));
}

TEST(CandidatesTest, SayWhatIsWrongOnTheNodeThatTheyDoNotReach) {
  std::vector<HostOffers> nodes = two_nodes({tcp("eth0", "a"), verbs("mlx5_0:1", "ib")});
  nodes[1].offers[1].obstacle = "its port is 1: DOWN";

  EXPECT_THAT(find_candidates(parse_fabric("ucx"), nodes).left_out,
              ElementsAre("verbs over mlx5_0:1: mlx5_0:1 of h1: its port is 1: DOWN"));
}

// A bridge for virtual machines has the same address everywhere.
TEST(CandidatesTest, AreNoNetworksThatEveryHostHasForItself) {
  std::vector<HostOffers> nodes = two_nodes({tcp("eth0", "a"), tcp("virbr1", "b", 10'000)});
  for (HostOffers& one : nodes) {
    one.offers[1].address = "192.168.122.1";
  }

  EXPECT_THAT(found("ucx", nodes), ElementsAre("ucx tcp eth0"));
  EXPECT_THAT(find_candidates(parse_fabric("ucx"), nodes).left_out,
              ElementsAre("tcp over virbr1: two hosts have the same address in b"));
}

TEST(CandidatesTest, AreTheStoresInterfacesWhereNodesHaveNoNetworkInCommon) {
  const std::vector<HostOffers> nodes = {node(0, {tcp("eth0", "10.0.0.0/31")}),
                                         node(1, {tcp("eth0", "10.0.0.2/31")})};

  EXPECT_THAT(found("ucx", nodes), ElementsAre("ucx tcp eth0"));
}

TEST(CandidatesTest, OfOneSpeedBeginWithThatOfTheStore) {
  std::vector<HostOffers> nodes = two_nodes({tcp("eth1", "b", 0), tcp("eth0", "a", 0)});

  EXPECT_THAT(found("ucx", nodes), ElementsAre("ucx tcp eth0", "ucx tcp eth1"));
}

TEST(CandidatesTest, FollowTheOrderThatTheUserHasNamed) {
  std::vector<HostOffers> nodes = two_nodes({tcp("eth0", "a", 25'000), tcp("eth1", "b")});
  for (HostOffers& one : nodes) {
    one.offers[0].place = 1;
  }

  EXPECT_THAT(found("ucx", nodes), ElementsAre("ucx tcp eth1", "ucx tcp eth0"));
}

TEST(CandidatesTest, NeedAPluginThatAllNodesHave) {
  const std::vector<HostOffers> nodes = {node(0, {tcp("eth0", "a")}),
                                         node(1, {tcp("eth0", "a")}, "ofi ")};

  EXPECT_THAT(found("auto", nodes), ElementsAre("ofi tcp eth0"));
  EXPECT_EQ(first_without(nodes, "ucx")->rank, 1);
  EXPECT_EQ(first_without(nodes, "ofi"), nullptr);
}

TEST(CandidatesTest, OnOneMachineAreTheStoresInterface) {
  std::vector<HostOffers> nodes = {node(0, {tcp("eth1", "b"), verbs("mlx5_0:1", "ib")}),
                                   node(1, {tcp("eth1", "b"), verbs("mlx5_0:1", "ib")})};
  for (HostOffers& one : nodes) one.machine = "m";

  EXPECT_THAT(found("ucx", nodes), ElementsAre("ucx tcp eth0"));
  EXPECT_THAT(found("ucx:rc_v", nodes), ElementsAre("ucx rc_v mlx5_0:1", "ucx rc_v eth0"));
}

// All ports of one network that are as fast as the fastest; ranks over libfabric take turns.
TEST(CandidatesTest, HaveSeveralRailsWhereThereAreSeveral) {
  std::vector<HostOffers> nodes = two_nodes(
      {verbs("mlx5_0:1", "ib"), verbs("mlx5_1:1", "ib", 25'000), verbs("mlx5_2:1", "ib")});
  for (HostOffers& one : nodes) {
    one.offers[2].address = "another#" + std::to_string(one.rank);
  }

  const auto ordered = find_candidates(parse_fabric("auto"), nodes).ordered;

  EXPECT_EQ(ordered[0].device_of(1, 5), "mlx5_0:1,mlx5_2:1");
  ASSERT_EQ(ordered[1].provider, "verbs");
  EXPECT_EQ(ordered[1].device_of(0, 0), "mlx5_0");
  EXPECT_EQ(ordered[1].device_of(0, 1), "mlx5_2");
  EXPECT_EQ(ordered[1].device_of(0, 2), "mlx5_0");
}

// In the order in which the user has named them.
TEST(CandidatesTest, AreNotJoinedAsRailsWhereTheyAreNamedOneAfterTheOther) {
  std::vector<HostOffers> nodes =
      two_nodes({verbs("mlx5_0:1", "ib", 25'000), verbs("mlx5_1:1", "ib", 100'000)});
  for (HostOffers& one : nodes) {
    one.offers[1].address = "another#" + std::to_string(one.rank);
    one.offers[1].place = 1;
  }

  EXPECT_THAT(found("ucx", nodes),
              ElementsAre("ucx verbs mlx5_0:1", "ucx verbs mlx5_1:1", "ucx tcp eth0"));
}

// One node may have fewer of them up.
TEST(CandidatesTest, TakeTheLastPortAgainOnNodesThatHaveFewer) {
  std::vector<HostOffers> nodes = {node(0, {verbs("mlx5_0:1", "ib")}),
                                   node(1, {verbs("mlx5_0:1", "ib"), verbs("mlx5_1:1", "ib")})};
  nodes[1].offers[1].address = "another";
  nodes[1].offers[1].place = 1;

  const auto ordered = find_candidates(parse_fabric("ucx"), nodes).ordered;

  ASSERT_EQ(ordered.size(), 3U);
  EXPECT_THAT(ordered[0].devices, ElementsAre("mlx5_0:1", "mlx5_0:1"));
  EXPECT_THAT(ordered[1].devices, ElementsAre("mlx5_0:1", "mlx5_1:1"));
  EXPECT_FALSE(ordered[0].is_beside(ordered[1]));
}

// Other libraries over the same ports do not count, nor does what has carried nothing.
TEST(CandidatesTest, AreTheLastNetworkWhereNothingElseIsLeft) {
  const std::vector<Candidate> ordered = {{.kind = "verbs", .plugin = "ucx", .network = "ib"},
                                          {.kind = "verbs", .plugin = "ofi", .network = "ib"},
                                          {.kind = "tcp", .plugin = "tcp", .network = "a"},
                                          {.kind = "tcp", .plugin = "ucx", .network = "a"}};
  const std::set<Candidate::Ports> dead = {ordered[2].ports()};

  EXPECT_FALSE(is_last_network(ordered, 0, {}));
  EXPECT_TRUE(is_last_network(ordered, 0, dead));
  EXPECT_TRUE(is_last_network(ordered, 1, dead));
  EXPECT_TRUE(is_last_network(ordered, 2, {}));
}

TEST(CandidatesTest, AreNotTheLastNetworkWhereAnotherNamedPortIsLeft) {
  const std::vector<Candidate> ordered = {
      {.kind = "verbs", .plugin = "ucx", .network = "ib"},
      {.kind = "verbs", .plugin = "ucx", .network = "ib", .turn = 1}};

  EXPECT_FALSE(is_last_network(ordered, 0, {}));
  EXPECT_TRUE(is_last_network(ordered, 1, {}));
}

TEST(FabricNamesTest, AreAPluginAndAProvider) {
  EXPECT_EQ(parse_fabric("ucx:rc,self").plugin, "ucx");
  EXPECT_EQ(parse_fabric("ucx:rc,self").provider, "rc,self");
  EXPECT_THAT(parse_fabric("auto").provider, IsEmpty());
  EXPECT_THROW((void)parse_fabric("auto:tcp"), std::invalid_argument);
  EXPECT_THROW((void)parse_fabric("tcp:eth0"), std::invalid_argument);
}

}  // namespace
}  // namespace rondo::transport::bootstrap::candidates_test
