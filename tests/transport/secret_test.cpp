#include "bootstrap/secret.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>

#include "shm/memory.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::transport::rendezvous::secret_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string good = "0123456789abcdef";

class SecretTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* home = std::getenv("HOME")) home_ = home;
    ::setenv("HOME", folder_.path().c_str(), 1);
    clear();
  }
  void TearDown() override {
    ::setenv("HOME", home_.c_str(), 1);
    clear();
  }

  static void clear() {
    ::unsetenv("RONDO_SECRET");
    ::unsetenv("RONDO_SECRET_FD");
  }

  std::string write_file(const std::string& text, mode_t mode) const {
    std::filesystem::create_directory(folder_.path() / ".rondo");
    const std::string path = folder_.path() / ".rondo" / "secret";
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }

  static std::string complaint() {
    try {
      (void)read_secret();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::rendezvous_failed);
      return error.what();
    }
    return "no complaint";
  }

  rondo::test::ScratchFolder folder_;
  std::string home_;
};

TEST_F(SecretTest, NeedNotBeThere) { EXPECT_EQ(read_secret(), std::nullopt); }

TEST_F(SecretTest, ComesFromTheEnvironment) {
  ::setenv("RONDO_SECRET", good.c_str(), 1);

  EXPECT_EQ(read_secret(), good);
}

TEST_F(SecretTest, ComesFromAFileThatOnlyItsOwnerCanRead) {
  (void)write_file(good + "\n", 0600);

  EXPECT_EQ(read_secret(), good);
}

TEST_F(SecretTest, IsRefusedInAFileThatOthersCanRead) {
  for (const mode_t mode : {0640U, 0604U, 0620U, 0602U}) {
    const std::string path = write_file(good, mode);

    EXPECT_THAT(complaint(), HasSubstr("chmod 600 " + path)) << std::oct << mode;
    std::filesystem::remove(path);
  }
}

TEST_F(SecretTest, ComesFromADescriptorAgainAndAgain) {
  const shm::Descriptor memory(::memfd_create("secret", 0));
  ASSERT_EQ(::write(memory.get(), good.data(), good.size()), static_cast<ssize_t>(good.size()));
  ::setenv("RONDO_SECRET_FD", std::to_string(memory.get()).c_str(), 1);
  ::setenv("RONDO_SECRET", "another one, of less weight", 1);

  EXPECT_EQ(read_secret(), good);
  EXPECT_EQ(read_secret(), good);
}

TEST_F(SecretTest, ComesFromAPipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const shm::Descriptor out(ends[0]);
  ASSERT_EQ(::write(ends[1], good.data(), good.size()), static_cast<ssize_t>(good.size()));
  ::close(ends[1]);
  ::setenv("RONDO_SECRET_FD", std::to_string(out.get()).c_str(), 1);

  EXPECT_EQ(read_secret(), good);
}

TEST_F(SecretTest, IsRefusedWhenItIsShort) {
  ::setenv("RONDO_SECRET", "short", 1);

  EXPECT_THAT(complaint(), AllOf(HasSubstr("RONDO_SECRET"), HasSubstr("fewer than 16 bytes")));
}

TEST_F(SecretTest, IsMissedInADescriptorThatIsNone) {
  for (const char* text : {"x", "-1", "1000000", "3x"}) {
    ::setenv("RONDO_SECRET_FD", text, 1);
    EXPECT_THAT(complaint(), HasSubstr(std::string("RONDO_SECRET_FD")));
  }
}

}  // namespace
}  // namespace rondo::transport::rendezvous::secret_test
