// Frames and messages of the store, as bytes. Its fuzzer shows that frames are the same however the
// stream is cut, and that a message which is cut or claims too much is refused or means what it
// says.

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>

#include "bootstrap/auth.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/wire.hpp"
#include "support/seeds.hpp"

namespace rondo::transport::bootstrap::wire_test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

constexpr std::size_t cap = 100;

const Frame first{.type = Frame::Type::blob, .payload = "hello"};
const Frame second{.type = Frame::Type::status, .payload = std::string(cap, '\0')};

std::string both() {
  std::string bytes;
  append_frame(bytes, first);
  append_frame(bytes, second);
  return bytes;
}

TEST(WireTest, FramesComeOutAsTheyWentIn) {
  FrameReader reader(cap);

  reader.push(both());

  EXPECT_EQ(reader.next(), first);
  EXPECT_EQ(reader.next(), second);
  EXPECT_EQ(reader.next(), std::nullopt);
  EXPECT_FALSE(reader.broken());
}

TEST(WireTest, AFrameHasALittleEndianLengthAndAType) {
  std::string bytes;
  append_frame(bytes, {.type = Frame::Type::refused, .payload = std::string(258, 'x')});

  EXPECT_EQ(bytes.substr(0, frame_header_bytes), std::string("\x02\x01\0\0\x04", 5));
}

TEST(WireTest, AnUnknownTypeBreaksTheReaderForGood) {
  for (const char type : {'\0', '\x0d', '\xff'}) {
    FrameReader reader(cap);

    reader.push(std::string(4, '\0') + type);
    EXPECT_EQ(reader.next(), std::nullopt);
    reader.push(both());

    EXPECT_EQ(reader.next(), std::nullopt);
    EXPECT_TRUE(reader.broken());
  }
}

TEST(WireTest, AFrameMayBeLongerOnceThatIsAllowed) {
  const Frame frame{.type = Frame::Type::blobs, .payload = std::string(cap + 1, 'x')};
  std::string bytes;
  append_frame(bytes, frame);
  FrameReader reader(cap);
  reader.allow(cap + 1);

  reader.push(bytes);

  EXPECT_EQ(reader.next(), frame);
}

TEST(WireTest, TheReaderHasRoomForOneFrame) {
  FrameReader reader(cap);
  EXPECT_EQ(reader.room(), frame_header_bytes + cap);

  reader.push(both());
  EXPECT_EQ(reader.room(), 0U);
  (void)reader.next();
  EXPECT_EQ(reader.room(), 0U);  // the other fills it
  (void)reader.next();

  EXPECT_EQ(reader.room(), frame_header_bytes + cap);
}

TEST(WireTest, MessagesComeOutAsTheyWentIn) {
  const auto blob = decode_blob(encode(Blob{.round = 7, .bytes = "x"}).payload);
  const auto blobs = decode_blobs(encode(Blobs{.round = 8, .parts = {"", "y"}}).payload);
  const auto status = decode_status(
      encode(StatusMessage{
                 .kind = StatusMessage::Kind::diverged, .rank = 3, .context = 9, .text = "why"})
          .payload);

  ASSERT_TRUE(blob && blobs && status);
  EXPECT_EQ(blob->round, 7U);
  EXPECT_EQ(blob->bytes, "x");
  EXPECT_EQ(blobs->round, 8U);
  EXPECT_THAT(blobs->parts, ElementsAre("", "y"));
  EXPECT_EQ(status->kind, StatusMessage::Kind::diverged);
  EXPECT_EQ(status->rank, 3);
  EXPECT_EQ(status->context, 9U);
  EXPECT_EQ(status->text, "why");
}

TEST(WireTest, MessagesOfNodesComeOutAsTheyWentIn) {
  const Roster roster{.token = 9, .ranks = {1, 4}};
  const NodeParts parts{.round = 3, .parts = {{1, "one"}, {4, ""}}};

  EXPECT_EQ(decode_roster(encode(roster).payload), roster);
  EXPECT_EQ(decode_parts(encode(parts).payload), parts);
  EXPECT_FALSE(decode_roster(encode(Roster{.token = 9}).payload));
}

TEST(WireTest, ConnectionsThatSendTheSameShareOneCopy) {
  const SharedFrame frame =
      share({.type = Frame::Type::blobs, .payload = std::string(1 << 20, 'x')});
  std::vector<shm::Descriptor> ends;
  std::vector<Connection> connections;
  for (int i = 0; i < 3; ++i) {
    std::array<int, 2> pair{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair.data()), 0);
    ends.emplace_back(pair[0]);
    connections.emplace_back(shm::Descriptor(pair[1]), cap);
    connections.back().send(frame);
    EXPECT_FALSE(connections.back().all_sent());
  }
  EXPECT_EQ(frame.use_count(), 4);

  // Bytes that have been sent are not held any more.
  std::string received(frame->size(), '\0');
  for (std::size_t came = 0; came < received.size(); connections[0].exchange()) {
    const ssize_t count = ::recv(ends[0].get(), received.data() + came, received.size() - came, 0);
    if (count > 0) came += static_cast<std::size_t>(count);
  }
  EXPECT_EQ(received, *frame);
  EXPECT_EQ(frame.use_count(), 3);
}

TEST(WireTest, RefusesAStatusOfAnUnknownKind) {
  const std::string status =
      encode(StatusMessage{.kind = StatusMessage::Kind::lost, .text = "why"}).payload;
  EXPECT_FALSE(decode_status('\0' + status.substr(1)));
  EXPECT_FALSE(decode_status('\x09' + status.substr(1)));
}

TEST(WireTest, TextIsMadePrintable) {
  EXPECT_EQ(printable("a\n\x1b[1m\xff"), "a??[1m?");
  EXPECT_EQ(printable(std::string(1000, 'x')).size(), 500U);
}

// For a seed, which is the same each time: what is random ends `from_end` bytes before the end.
Frame without_chance(Frame frame, std::size_t from_end = 0) {
  constexpr std::size_t random_bytes = 32;
  frame.payload.replace(frame.payload.size() - from_end - random_bytes, random_bytes,
                        std::string(random_bytes, 'r'));
  return frame;
}

// As the fuzzer takes them: a byte that stands for the type, and the payload.
void expect_store_seed(const std::string& name, const Frame& frame) {
  test::expect_seed("store/" + name,
                    static_cast<char>(static_cast<int>(frame.type) - 1) + frame.payload);
}

TEST(WireTest, TheFuzzerOfTheStoreBeginsWithAMessageOfEachKind) {
  constexpr std::string_view secret = "a secret that is long enough";
  const RankIdentity identity{
      .job = "job", .rank = 1, .size = 4, .version = "0.1.0", .host = "h1", .process = 7};
  StoreHandshake store;
  RankHandshake rank;
  const Frame challenge = store.challenge();
  const auto answer = rank.answer(challenge, identity, secret);
  ASSERT_TRUE(answer && store.verify(*answer, secret));
  const std::size_t code_bytes = 32 + 4;  // behind its length

  expect_store_seed("challenge", without_chance(challenge));
  expect_store_seed("answer", without_chance(without_chance(*answer), code_bytes));
  expect_store_seed("welcome", without_chance(store.welcome("h0", secret)));
  expect_store_seed("identity", {.type = Frame::Type::answer, .payload = pack(identity)});
  expect_store_seed("refused", {.type = Frame::Type::refused, .payload = "another job"});
  expect_store_seed("blob", encode(Blob{.round = 1, .bytes = "card"}));
  expect_store_seed("blobs", encode(Blobs{.round = 1, .parts = {"card", "", "x"}}));
  expect_store_seed(
      "status",
      encode(StatusMessage{
          .kind = StatusMessage::Kind::diverged, .rank = 3, .context = 9, .text = "why"}));
  const Frame roster = encode(Roster{.token = 9, .ranks = {1, 4}});
  const Frame parts = encode(NodeParts{.round = 3, .parts = {{1, "one"}, {4, ""}}});
  expect_store_seed("roster", roster);
  expect_store_seed("parts", parts);
  // A stream, which it cuts into frames.
  std::string frames;
  append_frame(frames, roster);
  append_frame(frames, parts);
  test::expect_seed("store/frames", frames);
}

// Who is at the other end of a socket, and how many sockets a process may have.

struct Connected {
  shm::Descriptor client;
  shm::Descriptor server;
};

// Through a listener at `host`, as a client that calls `to`.
Connected connect_through(const std::string& host, const std::string& to) {
  const auto soon = std::chrono::steady_clock::now() + 60s;
  const auto listener = listen_at({.host = host, .port = 0});
  const Endpoint endpoint{.host = to, .port = own_address(listener.get()).port()};
  Connected both{.client = connect_until(resolve(endpoint).front(), soon), .server = {}};
  EXPECT_TRUE(wait_until_ready(listener.get(), POLLIN, soon));
  both.server = shm::Descriptor(::accept(listener.get(), nullptr, nullptr));
  return both;
}

TEST(SocketsTest, KnowTheUserAtTheOtherEndOnThisHost) {
  const std::pair<const char*, const char*> ways[] = {{"127.0.0.1", "127.0.0.1"},
                                                      {"::1", "::1"},
                                                      {"::", "127.0.0.1"},
                                                      {"127.0.0.1", "::ffff:127.0.0.1"}};
  for (const auto& [host, to] : ways) {
    const Connected both = connect_through(host, to);
    EXPECT_EQ(user_of_other_end(both.client.get()), ::geteuid()) << host << " from " << to;
    EXPECT_EQ(user_of_other_end(both.server.get()), ::geteuid()) << host << " from " << to;
  }
}

// It would have root's number in the kernel's table.
TEST(SocketsTest, KnowNoUserOfAnEndThatWasClosed) {
  Connected both = connect_through("127.0.0.1", "127.0.0.1");
  {
    const shm::Descriptor closed = std::move(both.client);
  }

  EXPECT_EQ(user_of_other_end(both.server.get()), std::nullopt);
}

// The status of a process of its own, whose limits are not the test's. Being killed is no success.
template <typename Body>
int status_of_child(Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = -1;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : status;
}

TEST(SocketsTest, MayBeMoreThanTheSoftLimitOfOpenFiles) {
  EXPECT_EQ(status_of_child([] {
              rlimit limit{.rlim_cur = 100, .rlim_max = 1000};
              if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
              allow_descriptors(500, "this test");
              ::getrlimit(RLIMIT_NOFILE, &limit);
              const bool raised = limit.rlim_cur >= 500 && limit.rlim_cur < 1000;
              allow_descriptors(10, "this test");
              const rlim_t before = limit.rlim_cur;
              ::getrlimit(RLIMIT_NOFILE, &limit);
              return raised && limit.rlim_cur == before ? 0 : 2;
            }),
            0);
}

TEST(SocketsTest, MayBeAsManyAsTheHardLimitAllowsWhereFewerWillDo) {
  EXPECT_EQ(status_of_child([] {
              rlimit limit{.rlim_cur = 100, .rlim_max = 300};
              if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
              allow_more_descriptors(500);
              ::getrlimit(RLIMIT_NOFILE, &limit);
              return limit.rlim_cur == 300 ? 0 : 2;
            }),
            0);
}

TEST(SocketsTest, ThatTheHardLimitForbidsAreAnError) {
  EXPECT_EQ(status_of_child([] {
              const rlimit limit{.rlim_cur = 100, .rlim_max = 100};
              if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
              try {
                allow_descriptors(500, "the store of rank 0");
              } catch (const Error& error) {
                const std::string what = error.what();
                return what.find("the store of rank 0 needs 5") != std::string::npos &&
                               what.find("may have 100 (ulimit -Hn)") != std::string::npos
                           ? 0
                           : 2;
              }
              return 3;
            }),
            0);
}

}  // namespace
}  // namespace rondo::transport::bootstrap::wire_test
