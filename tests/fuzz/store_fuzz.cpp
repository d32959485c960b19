// What anybody can send to the store, and the store to a rank: none of it may crash, hang or
// be taken for a proof. For libFuzzer; the test runs a fixed number of inputs.

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
  (void)decode_blob(frame.payload);
  (void)decode_blobs(frame.payload);
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
  // As one payload of each type: mutations of lengths reach further than through a stream.
  if (!input.empty()) {
    const auto type = static_cast<Frame::Type>(1 + data[0] % 9);
    take({.type = type, .payload = std::string(input.substr(1))});
  }
  return 0;
}
