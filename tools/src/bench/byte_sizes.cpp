#include "bench/byte_sizes.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <string>

#include "exit_status.hpp"

namespace rondo::tools {
namespace {

constexpr std::size_t largest = std::size_t{1} << 40U;

std::size_t factor_of(char suffix) {
  switch (suffix) {
    case 'K':
    case 'k':
      return std::size_t{1} << 10U;
    case 'M':
    case 'm':
      return std::size_t{1} << 20U;
    case 'G':
    case 'g':
      return std::size_t{1} << 30U;
    default:
      return 0;
  }
}

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw UsageError(fmt::format(
      "the size '{}' {}; write bytes as 4, 64K, 16M or 1G, and ranges as 4:64M", text, why));
}

std::size_t parse_size(std::string_view text, std::size_t element_bytes) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const std::size_t factor = rest.empty() ? 1 : factor_of(rest.front());
  if (error != std::errc{} || rest.size() > 1 || factor == 0) refuse(text, "is not a number");
  if (value == 0 || value > largest / factor) refuse(text, "is out of range");
  if (value * factor % element_bytes != 0) {
    refuse(text, fmt::format("is not a multiple of {}", element_bytes));
  }
  return value * factor;
}

}  // namespace

std::vector<std::size_t> byte_sizes(std::string_view range, std::size_t element_bytes) {
  const std::size_t colon = range.find(':');
  const std::size_t first = parse_size(range.substr(0, colon), element_bytes);
  const std::size_t last =
      colon == std::string_view::npos ? first : parse_size(range.substr(colon + 1), element_bytes);
  if (last < first) refuse(range, "ends before it begins");
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = first; bytes <= last; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

}  // namespace rondo::tools
