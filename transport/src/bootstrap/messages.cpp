#include "bootstrap/messages.hpp"

#include "bootstrap/bytes.hpp"

namespace rondo::transport::rendezvous {

Frame encode(const Blob& blob) {
  Frame frame{.type = Frame::Type::blob};
  append_number(frame.payload, blob.round);
  frame.payload += blob.bytes;
  return frame;
}

Frame encode(const Blobs& blobs) {
  Frame frame{.type = Frame::Type::blobs};
  append_number(frame.payload, blobs.round);
  for (const std::string& part : blobs.parts) append_string(frame.payload, part);
  return frame;
}

Frame encode(const News& news) {
  Frame frame{.type = Frame::Type::news};
  append_number(frame.payload, static_cast<std::uint8_t>(news.kind));
  append_number(frame.payload, static_cast<std::uint32_t>(news.rank));
  append_number(frame.payload, news.context);
  append_string(frame.payload, news.text);
  return frame;
}

std::optional<Blob> decode_blob(std::string_view payload) {
  constexpr std::size_t round_bytes = sizeof(std::uint64_t);
  if (payload.size() < round_bytes) return std::nullopt;
  ByteReader reader(payload);
  return Blob{.round = reader.number<std::uint64_t>(),
              .bytes = std::string(payload.substr(round_bytes))};
}

std::optional<Blobs> decode_blobs(std::string_view payload) {
  ByteReader reader(payload);
  Blobs blobs{.round = reader.number<std::uint64_t>()};
  while (reader.left() != 0) blobs.parts.emplace_back(reader.string());
  if (!reader.all_read()) return std::nullopt;
  return blobs;
}

std::optional<News> decode_news(std::string_view payload) {
  ByteReader reader(payload);
  const auto kind = reader.number<std::uint8_t>();
  News news{.kind = static_cast<News::Kind>(kind),
            .rank = static_cast<std::int32_t>(reader.number<std::uint32_t>()),
            .context = reader.number<std::uint32_t>(),
            .text = std::string(reader.string())};
  const bool known = kind >= static_cast<std::uint8_t>(News::Kind::left) &&
                     kind <= static_cast<std::uint8_t>(News::Kind::diverged);
  if (!known || !reader.all_read() || news.rank < 0) return std::nullopt;
  return news;
}

std::string printable(std::string_view text) {
  constexpr std::size_t most = 500;
  std::string clean(text.substr(0, most));
  for (char& c : clean) {
    if (c < ' ' || c > '~') c = '?';
  }
  return clean;
}

}  // namespace rondo::transport::rendezvous
