// Finding and loading plug-ins, and what is said when that fails.

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>
#include <rondo/transport/links.hpp>

#include "links/plugin.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::transport::plugin_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// Where Meson has built the plug-ins of plugins/.
std::string plugins() {
  const char* folder = std::getenv("RONDO_TEST_PLUGINS");
  return folder == nullptr ? "RONDO_TEST_PLUGINS is not set" : folder;
}

LinkOptions with_provider(const std::string& provider) {
  LinkOptions options;
  options.provider = provider;
  return options;
}

class PluginTest : public testing::Test {
 protected:
  PluginTest() { ::setenv("RONDO_PLUGIN_PATH", plugins().c_str(), 1); }
  ~PluginTest() override { ::unsetenv("RONDO_PLUGIN_PATH"); }

  static std::string failure_of(const std::string& name, const LinkOptions& options = {}) {
    return test::expect_error(Errc::link_unavailable, [&] { (void)open_plugin(name, options); });
  }
};

TEST_F(PluginTest, SaysWhatItLookedForAndWhereWhenAPluginIsAbsent) {
  EXPECT_THAT(failure_of("absent"), AllOf(HasSubstr("librondo-link-absent.so"),
                                          HasSubstr(plugins()), HasSubstr("RONDO_PLUGIN_PATH")));
}

TEST_F(PluginTest, LooksInEveryFolderOfThePath) {
  const test::ScratchFolder empty;
  const std::string path = empty.path().string() + "::" + plugins();
  ::setenv("RONDO_PLUGIN_PATH", path.c_str(), 1);

  EXPECT_EQ(find_plugin("fake"), plugins() + "/librondo-link-fake.so");
}

// setenv() moves the array of variables, and frees what other threads may be reading.
TEST_F(PluginTest, LeavesTheEnvironmentThatOtherThreadsReadAsItIs) {
  for (const char* name : {"UCX_ERROR_SIGNALS", "UCX_HANDLE_ERRORS", "UCX_WARN_UNUSED_ENV_VARS"}) {
    ::unsetenv(name);
  }
  ::setenv("RONDO_TEST_SET_BY_THE_PROGRAM", "1", 1);  // from now on the array is setenv()'s
  const test::ScratchFolder folder;
  (void)folder.write("librondo-link-ucx.so", "not a library");
  ::setenv("RONDO_PLUGIN_PATH", folder.path().c_str(), 1);
  char** const before = environ;
  std::vector<const char*> entries;
  for (char** entry = before; *entry != nullptr; ++entry) entries.push_back(*entry);

  (void)failure_of("ucx");

  EXPECT_STREQ(::getenv("UCX_HANDLE_ERRORS"), "none");
  EXPECT_STREQ(::getenv("RONDO_TEST_SET_BY_THE_PROGRAM"), "1");
  for (std::size_t i = 0; i < entries.size(); ++i) ASSERT_EQ(before[i], entries[i]);
  EXPECT_EQ(before[entries.size()], nullptr);
}

TEST_F(PluginTest, DoesNotTakeALaterPluginForABrokenOne) {
  const test::ScratchFolder first;
  const auto broken = first.write("librondo-link-fake.so", "not a library");
  const std::string path = first.path().string() + ":" + plugins();
  ::setenv("RONDO_PLUGIN_PATH", path.c_str(), 1);

  EXPECT_THAT(failure_of("fake"), AllOf(HasSubstr(broken.string()), HasSubstr("cannot be loaded")));
}

TEST_F(PluginTest, RefusesALibraryThatIsNoPlugin) {
  EXPECT_THAT(failure_of("stray"),
              AllOf(HasSubstr("librondo-link-stray.so is not a link plug-in"),
                    HasSubstr("no symbol rondo_link_plugin"),
                    HasSubstr("install plug-in and librondo-transport of one release")));
}

// UCX 1.13 does so where it cannot write its log, or the host's name has 64 characters.
TEST_F(PluginTest, OutlivesALibraryThatAbortsWhenItIsLoaded) {
  const test::ScratchFolder folder;
  const std::string ucx = folder.path() / "librondo-link-ucx.so";
  std::filesystem::create_symlink(plugins() + "/librondo-link-doomed.so", ucx);
  ::setenv("RONDO_PLUGIN_PATH", folder.path().c_str(), 1);

  for (const LinkFacts& link : links()) {
    if (link.name != "ucx") continue;
    EXPECT_THAT(link.problem, AllOf(HasSubstr("the link plug-in 'ucx' in " + ucx),
                                    HasSubstr("because signal 6 ends a program")));
  }
}

// Its functions would end the process.
TEST_F(PluginTest, RefusesAPluginOfAnotherReleaseBeforeItCallsIt) {
  EXPECT_THAT(
      failure_of("future"),
      AllOf(HasSubstr("librondo-link-future.so is of release 99.9.9, but librondo-transport"),
            HasSubstr("install both of one release")));
}

TEST_F(PluginTest, PassesOnWhyALinkCannotBeOpened) {
  EXPECT_THAT(failure_of("fake", with_provider("dodo")),
              AllOf(HasSubstr("'fake' cannot be opened"), HasSubstr("take 'pigeon'")));
}

TEST_F(PluginTest, GivesThePluginsLink) {
  const std::unique_ptr<Link> link = open_plugin("fake", with_provider("pigeon"));
  std::array<std::byte, 3> data{};
  Transfer sent;
  Transfer received;

  link->post_send(1, 7, data, sent);
  link->post_recv(1, 7, data, received);

  EXPECT_EQ(link->route(), "fake: pigeon over air");
  EXPECT_TRUE(sent.done());
  EXPECT_EQ(sent.bytes, 3);
  EXPECT_TRUE(received.failed());
  EXPECT_EQ(link->error_text(received), "no such loft");
  EXPECT_TRUE(link->progress());
  EXPECT_FALSE(link->progress());
  EXPECT_EQ(link->arm(), std::nullopt);
}

TEST_F(PluginTest, KeepsZeroBytesOfAddresses) {
  const std::unique_ptr<Link> link = open_plugin("fake", {});

  EXPECT_EQ(link->address(), std::string("loft\0 7", 7));
  EXPECT_NO_THROW(link->connect(1, link->address()));
}

TEST_F(PluginTest, ThrowsWhenAnAddressIsUnusable) {
  const std::unique_ptr<Link> link = open_plugin("fake", {});

  EXPECT_THAT(test::expect_error(Errc::link_unavailable, [&] { link->connect(3, "nonsense"); }),
              AllOf(HasSubstr("address of rank 3"), HasSubstr("no such loft")));
}

TEST_F(PluginTest, ListsKnownPluginsWithWhatIsWrongWithThem) {
  const test::ScratchFolder folder;
  const auto broken = folder.write("librondo-link-ofi.so", "not a library");
  ::setenv("RONDO_PLUGIN_PATH", folder.path().c_str(), 1);

  const std::vector<LinkFacts> all = links();

  ASSERT_EQ(all.size(), 4);
  EXPECT_EQ(all[0].name, "shm");
  EXPECT_EQ(all[0].problem, "");
  EXPECT_EQ(all[1].name, "ofi");
  EXPECT_EQ(all[1].path, broken.string());
  EXPECT_THAT(all[1].problem, HasSubstr("cannot be loaded"));
  EXPECT_EQ(all[2].name, "tcp");
  EXPECT_EQ(all[2].problem, "");
  EXPECT_EQ(all[3].name, "ucx");
  EXPECT_EQ(all[3].path, "");
  EXPECT_THAT(all[3].problem, HasSubstr("is not installed"));
}

TEST_F(PluginTest, ListsWhatAPluginSaysOfItself) {
  const test::ScratchFolder folder;
  std::filesystem::copy(std::filesystem::path(plugins()) / "librondo-link-fake.so",
                        folder.path() / "librondo-link-ofi.so");
  ::setenv("RONDO_PLUGIN_PATH", folder.path().c_str(), 1);

  const LinkFacts ofi = links().at(1);

  EXPECT_EQ(ofi.problem, "");
  EXPECT_THAT(ofi.facts, ElementsAre("version 9.8", "provider pigeon"));
}

}  // namespace
}  // namespace rondo::transport::plugin_test
