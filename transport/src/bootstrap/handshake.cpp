#include "bootstrap/handshake.hpp"

#include "bootstrap/bytes.hpp"
#include "bootstrap/hmac.hpp"

namespace rondo::transport::rendezvous {
namespace {

constexpr std::string_view protocol = "RONDOST2";
constexpr std::size_t nonce_bytes = 32;
constexpr std::size_t longest_name = 255;  // a host's, by POSIX

std::string proof(std::string_view secret, std::string_view label, std::string_view store_nonce,
                  std::string_view rank_nonce, std::string_view said) {
  std::string message;
  for (const std::string_view part : {label, store_nonce, rank_nonce, said}) {
    append_string(message, part);
  }
  return hmac_sha256(secret, message);
}

std::string encode(const Introduction& self) {
  std::string bytes;
  append_string(bytes, self.job);
  append_number(bytes, self.rank);
  append_number(bytes, self.size);
  append_string(bytes, self.version.substr(0, longest_name));
  append_string(bytes, self.host.substr(0, longest_name));
  append_number(bytes, self.process);
  return bytes;
}

std::optional<Introduction> decode(std::string_view bytes) {
  ByteReader reader(bytes);
  Introduction self;
  self.job = reader.string();
  self.rank = reader.number<std::uint32_t>();
  self.size = reader.number<std::uint32_t>();
  self.version = reader.string();
  self.host = reader.string();
  self.process = reader.number<std::uint64_t>();
  if (!reader.all_read()) return std::nullopt;
  return self;
}

}  // namespace

Challenger::Challenger() : store_nonce_(random_bytes(nonce_bytes)) {}

Frame Challenger::challenge() const {
  return {.type = Frame::Type::challenge, .payload = std::string(protocol) + store_nonce_};
}

std::optional<Introduction> Challenger::verify(const Frame& answer, std::string_view secret) {
  if (answer.type != Frame::Type::answer) return std::nullopt;
  ByteReader reader(answer.payload);
  const std::string_view said = reader.string();
  const std::string_view nonce = reader.string();
  const std::string_view code = reader.string();
  if (!reader.all_read() || nonce.size() != nonce_bytes) return std::nullopt;
  if (!equal_in_constant_time(code, proof(secret, "rank", store_nonce_, nonce, said))) {
    return std::nullopt;
  }
  rank_nonce_ = nonce;
  return decode(said);
}

Frame Challenger::welcome(std::string_view host, std::string_view secret) const {
  host = host.substr(0, longest_name);
  Frame frame{.type = Frame::Type::welcome};
  append_string(frame.payload, host);
  append_string(frame.payload, proof(secret, "store", store_nonce_, rank_nonce_, host));
  return frame;
}

Applicant::Applicant() : rank_nonce_(random_bytes(nonce_bytes)) {}

std::optional<Frame> Applicant::answer(const Frame& challenge, const Introduction& self,
                                       std::string_view secret) {
  const std::string_view payload = challenge.payload;
  if (challenge.type != Frame::Type::challenge || !payload.starts_with(protocol) ||
      payload.size() != protocol.size() + nonce_bytes) {
    return std::nullopt;
  }
  store_nonce_ = payload.substr(protocol.size());
  const std::string said = encode(self);
  Frame frame{.type = Frame::Type::answer};
  append_string(frame.payload, said);
  append_string(frame.payload, rank_nonce_);
  append_string(frame.payload, proof(secret, "rank", store_nonce_, rank_nonce_, said));
  return frame;
}

std::optional<std::string> Applicant::verify(const Frame& welcome, std::string_view secret) const {
  if (welcome.type != Frame::Type::welcome) return std::nullopt;
  ByteReader reader(welcome.payload);
  const std::string_view host = reader.string();
  const std::string_view code = reader.string();
  if (!reader.all_read() ||
      !equal_in_constant_time(code, proof(secret, "store", store_nonce_, rank_nonce_, host))) {
    return std::nullopt;
  }
  return std::string(host);
}

}  // namespace rondo::transport::rendezvous
