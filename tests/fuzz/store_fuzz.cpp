// Bytes that anybody can send to the store, and the store to a rank: none of them may crash, hang
// or be taken for a proof. For libFuzzer; the test runs a fixed number of inputs.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "bootstrap/auth.hpp"
#include "bootstrap/wire.hpp"

namespace {

using namespace rondo::transport::bootstrap;

constexpr std::string_view secret = "what the fuzzer cannot guess";

void require(bool fact) {
  if (!fact) std::abort();
}

void take(const Frame& frame) {
  StoreHandshake store;
  require(!store.verify(frame, secret));
  RankHandshake rank;
  (void)rank.answer(frame, {.job = std::string(32, 'a')}, secret);
  require(!rank.verify(frame, secret));
  if (const auto blob = decode_blob(frame.payload)) {
    require(encode(*blob).payload == frame.payload);
  }
  if (const auto blobs = decode_blobs(frame.payload)) {
    require(encode(*blobs).payload == frame.payload);
  }
  if (const auto roster = decode_roster(frame.payload)) {
    require(encode(*roster).payload == frame.payload);
  }
  if (const auto parts = decode_parts(frame.payload)) {
    require(encode(*parts).payload == frame.payload);
  }
  if (const auto message = decode_status(frame.payload)) {
    require(encode(*message).payload == frame.payload);
  }
  for (const char c : printable(frame.payload)) require(c >= ' ' && c <= '~');
}

// One that knows the secret may say what it likes: it is understood as it was said, or not at all.
void take_signed(std::string_view said) {
  constexpr std::size_t nonce_bytes = 32;
  StoreHandshake store;
  const std::string challenge = store.challenge().payload;
  const std::string store_nonce = challenge.substr(challenge.size() - nonce_bytes);
  const std::string rank_nonce(nonce_bytes, 'r');
  const std::string proof = hmac_sha256(
      secret, pack(std::string_view("rank"), store_nonce, rank_nonce, std::string(said)));
  const auto who = store.verify(
      {.type = Frame::Type::answer, .payload = pack(std::string(said), rank_nonce, proof)}, secret);
  RankIdentity identity;
  require(who.has_value() == unpack(said, identity));
  if (who) require(pack(*who) == said);
}

// A rank and a store with the same secret come to trust each other, whatever they are called.
void shake_hands(const RankIdentity& self) {
  constexpr std::size_t longest_name = 255;
  StoreHandshake store;
  RankHandshake rank;
  const auto answer = rank.answer(store.challenge(), self, secret);
  require(answer.has_value());
  const auto who = store.verify(*answer, secret);
  require(who && who->job == self.job && who->rank == self.rank && who->size == self.size);
  require(who->host == self.host.substr(0, longest_name));
  require(mismatch(*who, *who).empty());
  for (const char c : rank_on_host(*who)) require(c >= ' ' && c <= '~');
  require(rank.verify(store.welcome(self.host, secret), secret) == who->host);
}

// The same frames, however the stream was cut; `part` bytes come at a time.
std::size_t read_stream(std::string_view stream, std::size_t part) {
  FrameReader reader(handshake_cap);
  std::size_t count = 0;
  while (!stream.empty()) {
    reader.push(stream.substr(0, part));
    stream.remove_prefix(std::min(part, stream.size()));
    while (const auto frame = reader.next()) {
      require(frame->payload.size() <= handshake_cap);
      if (count < 8) take(*frame);
      count += 1;
    }
  }
  return count;
}

}  // namespace

// The name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  require(read_stream(input, size + 1) == read_stream(input, 1 + size % 7));
  if (input.empty()) return 0;
  // As one payload of each type: mutations of lengths reach further than through a stream.
  const auto type = static_cast<Frame::Type>(1 + data[0] % static_cast<int>(Frame::last_type));
  const std::string_view payload = input.substr(1);
  take({.type = type, .payload = std::string(payload)});
  take_signed(payload);
  RankIdentity identity;
  if (unpack(payload, identity)) shake_hands(identity);
  return 0;
}
