#include "bootstrap/handshake.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bootstrap/hmac.hpp"

namespace rondo::transport::rendezvous::handshake_test {
namespace {

const std::string secret = "sixteen bytes or more";

const Introduction self{.job = std::string(32, 'b'),
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

TEST(HandshakeTest, ProvesBothSides) {
  Challenger store;
  Applicant rank;

  const auto answer = rank.answer(store.challenge(), self, secret);
  ASSERT_TRUE(answer);
  EXPECT_EQ(store.verify(*answer, secret), self);
  EXPECT_EQ(rank.verify(store.welcome("node0", secret), secret), "node0");
}

TEST(HandshakeTest, FitsIntoItsFrames) {
  Challenger store;
  Applicant rank;
  Introduction wordy = self;
  wordy.host = std::string(5000, 'h');
  wordy.version = std::string(5000, 'v');

  const auto answer = rank.answer(store.challenge(), wordy, secret);
  ASSERT_TRUE(answer);
  EXPECT_LE(store.challenge().payload.size(), handshake_cap);
  EXPECT_LE(answer->payload.size(), handshake_cap);
  EXPECT_LE(store.welcome(wordy.host, secret).payload.size(), handshake_cap);
}

TEST(HandshakeTest, FailsWithAnotherSecret) {
  Challenger store;
  Applicant rank;

  const auto answer = rank.answer(store.challenge(), self, secret + "!");
  ASSERT_TRUE(answer);

  EXPECT_FALSE(store.verify(*answer, secret));
}

TEST(HandshakeTest, DoesNotTrustAStoreThatDoesNotKnowTheSecret) {
  Challenger store;
  Applicant rank;
  const auto answer = rank.answer(store.challenge(), self, secret);
  ASSERT_TRUE(answer && store.verify(*answer, secret));

  EXPECT_FALSE(rank.verify(store.welcome("node0", "another secret"), secret));
}

TEST(HandshakeTest, TakesNoAnswerToAnotherChallenge) {
  const Challenger recorded;
  Challenger store;
  Applicant rank;

  const auto answer = rank.answer(recorded.challenge(), self, secret);
  ASSERT_TRUE(answer);

  EXPECT_FALSE(store.verify(*answer, secret));
}

TEST(HandshakeTest, TakesNoProofOfARankForTheStores) {
  Challenger store;
  Applicant rank;
  const auto answer = rank.answer(store.challenge(), self, secret);
  ASSERT_TRUE(answer);

  EXPECT_FALSE(rank.verify({.type = Frame::Type::welcome, .payload = answer->payload}, secret));
  EXPECT_FALSE(rank.verify(*answer, secret));
}

TEST(HandshakeTest, FailsWhenAnyByteOfTheAnswerIsChanged) {
  Challenger store;
  Applicant rank;
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

TEST(HandshakeTest, AnswersNothingButAChallenge) {
  const Challenger store;
  Applicant rank;
  Frame frame = store.challenge();

  frame.type = Frame::Type::welcome;
  EXPECT_FALSE(rank.answer(frame, self, secret));
  frame = store.challenge();
  frame.payload.pop_back();
  EXPECT_FALSE(rank.answer(frame, self, secret));
  EXPECT_FALSE(rank.answer({.payload = "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3"}, self, secret));
}

TEST(HandshakeTest, ChallengesNobodyTwiceTheSameWay) {
  EXPECT_NE(Challenger().challenge(), Challenger().challenge());
}

}  // namespace
}  // namespace rondo::transport::rendezvous::handshake_test
