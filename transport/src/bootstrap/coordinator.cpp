#include "bootstrap/coordinator.hpp"

#include <charconv>

namespace rondo::transport::rendezvous {
namespace {

bool is_job(std::string_view text) {
  constexpr std::size_t digits = 32;
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::optional<Endpoint> parse_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool six = host.find(':') != std::string_view::npos;
  if (host.empty() || six != bracketed ||
      host.find_first_of("[]/ \t\n") != std::string_view::npos) {
    return std::nullopt;
  }
  Endpoint endpoint{.host = std::string(host)};
  const char* end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, endpoint.port);
  if (error != std::errc{} || rest != end || endpoint.port == 0) return std::nullopt;
  return endpoint;
}

}  // namespace

std::string to_string(const Endpoint& endpoint) {
  const bool six = endpoint.host.find(':') != std::string::npos;
  return (six ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

std::optional<Coordinator> parse_coordinator(std::string_view text) {
  constexpr std::string_view local = "local:";
  constexpr std::string_view tcp = "tcp:";
  if (text.starts_with(local)) {
    const std::string_view job = text.substr(local.size());
    return is_job(job) ? std::optional(Coordinator{.job = std::string(job)}) : std::nullopt;
  }
  const std::size_t slash = text.rfind('/');
  if (!text.starts_with(tcp) || slash == std::string_view::npos) return std::nullopt;
  const std::string_view job = text.substr(slash + 1);
  std::optional<Endpoint> endpoint = parse_endpoint(text.substr(tcp.size(), slash - tcp.size()));
  if (!is_job(job) || !endpoint) return std::nullopt;
  return Coordinator{.job = std::string(job), .endpoint = std::move(endpoint)};
}

}  // namespace rondo::transport::rendezvous
