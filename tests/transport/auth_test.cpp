// The job's secret, and the handshake in which rank and store prove to know it.

#include "bootstrap/auth.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory/memory.hpp"
#include "support/scratch_folder.hpp"
#include "support/store.hpp"

namespace rondo::transport::bootstrap::auth_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string good_secret = "0123456789abcdef";

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

  static std::string error() {
    return stores::error_of([] { (void)read_secret(); });
  }

  rondo::test::ScratchFolder folder_;
  std::string home_;
};

TEST_F(SecretTest, MayBeAbsent) { EXPECT_EQ(read_secret(), std::nullopt); }

TEST_F(SecretTest, ComesFromTheEnvironment) {
  ::setenv("RONDO_SECRET", good_secret.c_str(), 1);

  EXPECT_EQ(read_secret(), good_secret);
}

TEST_F(SecretTest, ComesFromAFileThatOnlyItsOwnerCanRead) {
  (void)write_file(good_secret + "\n", 0600);

  EXPECT_EQ(read_secret(), good_secret);
}

TEST_F(SecretTest, IsRefusedInAFileThatOthersCanRead) {
  for (const mode_t mode : {0640U, 0604U, 0620U, 0602U}) {
    const std::string path = write_file(good_secret, mode);

    EXPECT_THAT(error(), HasSubstr("chmod 600 " + path)) << std::oct << mode;
    std::filesystem::remove(path);
  }
}

TEST_F(SecretTest, ComesFromADescriptorAgainAndAgain) {
  const shm::Descriptor memory(::memfd_create("secret", 0));
  ASSERT_EQ(::write(memory.get(), good_secret.data(), good_secret.size()),
            static_cast<ssize_t>(good_secret.size()));
  ::setenv("RONDO_SECRET_FD", std::to_string(memory.get()).c_str(), 1);
  ::setenv("RONDO_SECRET", "another one, which comes second", 1);

  EXPECT_EQ(read_secret(), good_secret);
  EXPECT_EQ(read_secret(), good_secret);
}

TEST_F(SecretTest, ComesFromAPipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const shm::Descriptor out(ends[0]);
  ASSERT_EQ(::write(ends[1], good_secret.data(), good_secret.size()),
            static_cast<ssize_t>(good_secret.size()));
  ::close(ends[1]);
  ::setenv("RONDO_SECRET_FD", std::to_string(out.get()).c_str(), 1);

  EXPECT_EQ(read_secret(), good_secret);
}

TEST_F(SecretTest, IsRefusedWhenItIsShort) {
  ::setenv("RONDO_SECRET", "short", 1);

  EXPECT_THAT(error(), AllOf(HasSubstr("RONDO_SECRET"), HasSubstr("fewer than 16 bytes")));
}

TEST_F(SecretTest, IsRefusedFromADescriptorThatIsNotOpen) {
  for (const char* text : {"x", "-1", "3x"}) {
    ::setenv("RONDO_SECRET_FD", text, 1);
    EXPECT_THAT(error(), HasSubstr(std::string("RONDO_SECRET_FD")));
  }
  ::setenv("RONDO_SECRET_FD", "1000000", 1);
  EXPECT_THAT(error(), HasSubstr("RONDO_SECRET_FD=1000000 is not open; let the program"));
}

const std::string secret = "sixteen bytes or more";

const RankIdentity self{.job = std::string(32, 'b'),
                        .rank = 3,
                        .size = 4,
                        .version = "0.1.0",
                        .host = "node3",
                        .process = 5};

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr const char* digits = "0123456789abcdef";
    text += digits[static_cast<unsigned char>(c) >> 4U];
    text += digits[static_cast<unsigned char>(c) & 15U];
  }
  return text;
}

TEST(HandshakeTest, UsesTheStandardsHmac) {
  // RFC 4231, cases 1 and 2.
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256("", "")),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(HandshakeTest, FitsIntoItsFrames) {
  StoreHandshake store;
  RankHandshake rank;
  RankIdentity long_names = self;
  long_names.host = std::string(5000, 'h');
  long_names.version = std::string(5000, 'v');

  const auto answer = rank.answer(store.challenge(), long_names, secret);
  ASSERT_TRUE(answer);
  EXPECT_LE(store.challenge().payload.size(), handshake_cap);
  EXPECT_LE(answer->payload.size(), handshake_cap);
  EXPECT_LE(store.welcome(long_names.host, secret).payload.size(), handshake_cap);
}

TEST(HandshakeTest, RefusesAnAnswerToAnotherChallenge) {
  const StoreHandshake recorded;
  StoreHandshake store;
  RankHandshake rank;

  const auto answer = rank.answer(recorded.challenge(), self, secret);
  ASSERT_TRUE(answer);

  EXPECT_FALSE(store.verify(*answer, secret));
}

TEST(HandshakeTest, RefusesARanksProofAsTheStores) {
  StoreHandshake store;
  RankHandshake rank;
  const auto answer = rank.answer(store.challenge(), self, secret);
  ASSERT_TRUE(answer);

  EXPECT_FALSE(rank.verify({.type = Frame::Type::welcome, .payload = answer->payload}, secret));
  EXPECT_FALSE(rank.verify(*answer, secret));
}

TEST(HandshakeTest, FailsWhenAnyByteOfTheAnswerIsChanged) {
  StoreHandshake store;
  RankHandshake rank;
  const auto answer = rank.answer(store.challenge(), self, secret);
  ASSERT_TRUE(answer);
  for (std::size_t i = 0; i < answer->payload.size(); ++i) {
    Frame changed = *answer;
    changed.payload[i] = static_cast<char>(changed.payload[i] ^ 1);
    EXPECT_FALSE(store.verify(changed, secret)) << "byte " << i;
  }
  Frame longer = *answer;
  longer.payload += 'x';
  EXPECT_FALSE(store.verify(longer, secret));
}

TEST(HandshakeTest, AnswersOnlyAChallenge) {
  const StoreHandshake store;
  RankHandshake rank;
  Frame frame = store.challenge();

  frame.type = Frame::Type::welcome;
  EXPECT_FALSE(rank.answer(frame, self, secret));
  frame = store.challenge();
  frame.payload.pop_back();
  EXPECT_FALSE(rank.answer(frame, self, secret));
  EXPECT_FALSE(rank.answer({.payload = "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3"}, self, secret));
}

TEST(HandshakeTest, NoTwoChallengesAreEqual) {
  EXPECT_NE(StoreHandshake().challenge(), StoreHandshake().challenge());
}

}  // namespace
}  // namespace rondo::transport::bootstrap::auth_test
